//! Fencepost's lock machine, with no network, no clock and no files: a lock table for use inside
//! one process, and the heart of the server.
//!
//! A session asks for a key and a lease and gets a [`Grant`] that carries a [`Fence`]: a number
//! larger than that of every earlier grant of the same key, for ever. Locks expire, are handed on
//! in order of arrival, can be shared or reentrant, and cost about eighty bytes each while they are
//! held.
//!
//! ```
//! use fencepost_engine::{Acquire, Alone, Engine, Key, Outcome, Release, Seat, Settings, Tick};
//!
//! let engine = Engine::new(Settings::default(), Alone);
//! let now = Tick::from_ms(0); // the caller has the clock
//! let mut alice = Seat::new(engine.open_session(60_000, now).unwrap());
//! let key = Key::new(b"orders/42").unwrap();
//! let request = Acquire::exclusive(key, 5_000);
//! let Outcome::Granted(grant) = engine.acquire(&mut alice, &request, now) else { panic!() };
//! println!("ours until {:?} under fence {}", grant.until, grant.fence);
//! assert_eq!(engine.release(&mut alice, key, grant.fence, now), Release::Released { count: 0 });
//! ```
//!
//! # The files
//!
//! Each folder uses only those below it.
//!
//! | folder     | what                                                                        |
//! |------------|-----------------------------------------------------------------------------|
//! | `engine/`  | the verbs a caller sees, driving it, sessions, walks over the table         |
//! | `shard/`   | one shard: verbs by CAS, verbs under the room mutex, hand-off, expiry       |
//! | `api/`     | what is asked and answered, the host that is told, settings                 |
//! | `table/`   | from keys to cells: the index, how it grows, how an outgrown one is freed   |
//! | `cell/`    | one key's words and their transitions, its key bytes, short metadata        |
//! | `session/` | which sessions live and until when, what each took through one thread       |
//! | `memory/`  | slots that never move, and where their memory comes from                    |
//! | `time/`    | ticks, leases and the timing wheel                                          |
//! | `sync/`    | std or loom; mailboxes and flags by which cores reach each other            |
//! | `fault.rs` | the deliberate mistakes by which the models are tested                      |
//!
//! # Ground rules
//!
//! - Any core may change a key's lock word by CAS. Only a shard's home core turns its wheel and
//!   evicts its cells. Only the holder of the room mutex touches queues and records.
//! - Nothing here but `Engine::stock_up` waits; nothing reads a clock or touches a file. Time comes
//!   in as `now`, durability as a ceiling of fences.
//! - `unsafe` is in three places that something depends on: `table/epoch.rs` (an outgrown index is
//!   freed), `memory/pieces.rs` (a slot is found by address) and `memory/chunk.rs` (memory from the
//!   kernel); and in `memory/hint.rs` around hints that change nothing a program can see.

#![warn(missing_docs)]
#![deny(unsafe_code)]

#[macro_use]
mod fault;

mod api;
mod cell;
mod engine;
mod fence;
mod memory;
mod session;
mod shard;
mod sync;
mod table;
mod time;

pub use api::{
    Acquire, Alone, Claimed, Downgrade, GaveUp, Grant, HOLDERS_PER_LOOK, Holder, Host, Invalid,
    KeyState, Limit, Loss, Lost, NOTE_BYTES_MAX, NotHeld, OldHold, Outcome, Progress, Release,
    Renewal, Settings, TTL_MS_MAX, WAIT_MS_MAX,
};
pub use engine::walk::{Cursor, Held, Hold, Page, Survey};
pub use engine::{Batch, Engine, WARM_MAX};
#[cfg(loom)]
pub use fault::{Fault, inject};
pub use session::SessionId;
pub use session::seat::{Seat, Ticket};
pub use shard::LAG_BUCKETS;
pub use sync::bound_mark::BoundMark;
pub use sync::mailbox::{Mailbox, MailboxFull, Posted};
pub use sync::sleep::SleepFlag;
#[cfg(loom)]
pub use table::bare::{BareTable, Prepared};
pub use time::tick::Tick;
pub use time::wheel;
pub use types::limits::KEY_BYTES_MAX;
pub use types::{Fence, Key, LimitError, Mode, Span};
