//! What keeps the engine and the log in step, at the start and while the server runs. `storage/` is
//! the log as the cores append to it. What stands here is above the cores: it reads and writes the
//! whole engine, and only the server's start needs it.
//!
//! | file             | what                                                                     |
//! |------------------|--------------------------------------------------------------------------|
//! | `opening.rs`     | at the start: read the log, decide about floor and grace                 |
//! | `restore.rs`     | at the start: put sessions and locks back                                |
//! | `keeper.rs`      | a thread that raises ceilings and horizon before they are reached        |
//! | `turns.rs`       | when the cores of a cluster's leader are asked to end their turns        |
//! | `upkeep.rs`      | a thread for what takes long: snapshots, and the next segment of the log |
//! | `snapshot.rs`    | everything that is held, written down at once                            |

mod keeper;
mod opening;
mod restore;
mod snapshot;
mod turns;
mod upkeep;

pub(crate) use keeper::Keeper;
pub(crate) use opening::{LogSizes, Opening, allow_first_fences, floor_without_log};
pub(crate) use restore::{Known, Restored, restore};
pub(crate) use upkeep::Upkeep;
