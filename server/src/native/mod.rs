//! Fencepost's own protocol (`docs/protocol.md`): from a request to the engine and back.

mod acquire;
mod claim;
mod dispatch;
mod inspect;
mod opening;
mod repeat;
mod reply;
mod serve;
mod voice;

pub(crate) use serve::serve;
