//! Fencepost's own protocol (`docs/protocol.md`): from a request to the engine and back.

mod acquire;
mod claim;
pub(crate) mod dispatch;
mod inspect;
pub(crate) mod opening;
mod repeat;
pub(crate) mod reply;
