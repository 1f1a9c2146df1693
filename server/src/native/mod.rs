//! Fencepost's own protocol (`docs/protocol.md`): from a request to the engine and back.

mod acquire;
mod claim;
mod dispatch;
mod guard;
mod inspect;
mod opening;
mod permission;
mod repeat;
mod reply;
mod serve;
mod stray;
mod voice;

pub(crate) use serve::serve;
