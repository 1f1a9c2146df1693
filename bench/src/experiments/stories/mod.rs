//! One experiment each; `measured.rs` has those that run a workload of the bench and read its rows.

mod cluster;
pub(crate) mod expiry;
mod failover;
pub(crate) mod liveness;
pub(crate) mod measured;
pub(crate) mod pause;
pub(crate) mod redlock;
pub(crate) mod renew;
pub(crate) mod restart;
mod skew;
pub(crate) mod toctou;
mod two_writers;
mod victim;
