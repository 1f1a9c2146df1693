//! The nouns of Fencepost: what is locked, under which number, how, and for how long.
//!
//! The wire, the engine, the log, the server and the client speak of the same things, so they use
//! the same types: no crate converts a key or a mode of another one. Plain values, no
//! dependencies but serde, for a fence, where its feature is on. How a value becomes bytes is the
//! business of the crate that owns the format.
//!
//! | file           | what                                                |
//! |----------------|-----------------------------------------------------|
//! | `key.rs`       | [`Key`]: what is locked                             |
//! | `fence.rs`     | [`Fence`]: the number of a grant                    |
//! | `mode.rs`      | [`Mode`]: which holders a lock has at the same time |
//! | `lease.rs`     | [`Lease`] and [`Span`]: how long a grant lasts      |
//! | `session.rs`   | [`SessionId`]: the public name of a session         |
//! | `limits.rs`    | [`limits`]: the bounds of all of these              |
//! | `histogram.rs` | [`Histogram`]: how all of them count durations      |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod fence;
mod histogram;
mod key;
mod lease;
pub mod limits;
mod mode;
mod session;

pub use fence::{Fence, NoFence};
pub use histogram::{Histogram, HistogramCounts};
pub use key::Key;
pub use lease::{Lease, Span};
pub use limits::LimitError;
pub use mode::Mode;
pub use session::SessionId;
