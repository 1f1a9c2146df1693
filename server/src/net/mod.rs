//! The network: listeners, connections, and the way from a request to the engine and back.

mod acquire;
pub(crate) mod connection;
pub(crate) mod dispatch;
pub(crate) mod holdback;
mod inspect;
pub(crate) mod listener;
mod opening;
pub(crate) mod places;
mod reclaim;
pub(crate) mod record;
mod repeat;
pub(crate) mod reply;
pub(crate) mod stopping;
