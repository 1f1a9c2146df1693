//! Fencepost's lock machine, with no network, no clock and no files: a lock table for use inside one process, and the heart
//! of the server.
//!
//! A session asks for a key and a lease and gets a [`Grant`] that carries a [`Fence`]: a number larger than that of every
//! earlier grant of the same key, for ever. Locks expire, are handed on in order of arrival, can be shared or reentrant, and
//! cost about eighty bytes each while they are held.
//!
//! ```
//! use engine::{Acquire, Alone, Engine, Key, Outcome, Release, Seat, Settings, Tick};
//!
//! let engine = Engine::new(Settings::default(), Alone);
//! let now = Tick::from_ms(0); // the caller has the clock
//! let mut alice = Seat::new(engine.open_session(60_000, now).unwrap());
//! let key = Key::new(b"orders/42").unwrap();
//! let Outcome::Granted(grant) = engine.acquire(&mut alice, &Acquire::exclusive(key, 5_000), now) else { panic!() };
//! println!("ours until {:?} under fence {}", grant.until, grant.fence);
//! assert_eq!(engine.release(&mut alice, key, grant.fence, now), Release::Released { count: 0 });
//! ```
//!
//! # The files
//!
//! | file            | what                                                                                  |
//! |-----------------|---------------------------------------------------------------------------------------|
//! | `engine.rs`     | the engine: which shard, which seat; `engine/`: settings, sessions, lists, numbers    |
//! | `engine/short_way.rs` | what most calls come to: a cell, found next door or in the index, and a CAS       |
//! | `shard.rs`      | the verbs, as far as a CAS can decide                                                 |
//! | `contended.rs`  | the verbs under a shard's room mutex: queues, shared and reentrant locks               |
//! | `settle.rs`     | bringing a contended key up to date: hand-off; `describe.rs`: who holds it             |
//! | `restore.rs`    | locks that outlive a restart: restored, or claimed by their holders                    |
//! | `home.rs`       | what only a shard's home core does: the wheel, eviction; `inbox.rs`: how it is asked   |
//! | `ending.rs`     | how a lease ends without its owner's doing, by time or with its session                |
//! | `cell.rs`       | one key's words and their transitions; `word.rs`: how the words are packed            |
//! | `table/`        | from keys to cells: the index, how it grows, how it is reclaimed; `key.rs`            |
//! | `slab.rs`       | slots that never move; `pieces.rs`: where they are                                     |
//! | `arena.rs`      | the memory that the slabs of all shards share; `chunk.rs`: where it comes from         |
//! | `hint.rs`       | prefetches, and huge pages for that memory and the indexes                              |
//! | `room.rs`       | the data behind the room mutex; `note.rs`: what holders say of themselves             |
//! | `noted.rs`      | a short note beside a plain grant, without the room                                   |
//! | `session.rs`    | who lives and until when; `seat.rs`: what a session took through one thread           |
//! | `wheel/`        | the timing wheel; `tick.rs`: time; `fence.rs`: fences, floor and ceiling              |
//! | `mailbox.rs`    | how one core leaves work for another                                                  |
//! | `request.rs`    | what is asked and answered                                                            |
//! | `sync.rs`       | std or loom; `fault.rs`: the deliberate mistakes by which the models are tested       |
//!
//! # Ground rules
//!
//! - Any core may change a key's lock word by CAS. Only a shard's home core turns its wheel and evicts its cells. Only the
//!   holder of the room mutex touches queues and records.
//! - Nothing here but `Engine::stock_up` waits; nothing reads a clock or touches a file. Time comes in as `now`, durability as a
//!   ceiling of fences.
//! - `unsafe` is in three places that something depends on: `table/reclaim.rs` (an outgrown index is freed), `pieces.rs` (a slot is found
//!   by address) and `chunk.rs` (memory from the kernel); and in `hint.rs` around hints that change nothing a program can see.

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod arena;
mod cell;
mod chunk;
mod contended;
mod describe;
mod ending;
mod engine;
mod fault;
mod fence;
mod hint;
mod home;
mod inbox;
mod key;
mod mailbox;
mod note;
mod noted;
mod pieces;
mod request;
mod restore;
mod room;
mod seat;
mod session;
mod settle;
mod shard;
mod slab;
mod sleep;
mod sync;
mod table;
mod tick;
pub mod wheel;
mod word;

pub use engine::{Alone, Batch, Cursor, Engine, Held, Hold, Page, Settings, Survey, WARM_MAX};
#[cfg(loom)]
pub use fault::{Fault, inject};
pub use fence::Fence;
pub use home::{LAG_BUCKETS, Progress};
pub use key::{KEY_BYTES_MAX, Key, KeyLengthError};
pub use mailbox::{Mailbox, MailboxFull, Posted};
pub use request::{
    Acquire, Downgrade, GaveUp, Grant, HOLDERS_PER_LOOK, Holder, Host, Invalid, KeyState, Limit,
    Loss, Lost, Mode, NOTE_BYTES_MAX, NotHeld, Outcome, Release, Renewal, Span, TTL_MS_MAX, Ticket,
    WAIT_MS_MAX,
};
pub use restore::{OldHold, Reclaimed};
pub use seat::Seat;
pub use session::SessionId;
pub use sleep::SleepFlag;
pub use tick::Tick;
