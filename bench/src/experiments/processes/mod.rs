//! The processes of an experiment: workers that take locks, servers that are killed, the resource.

pub(crate) mod clock;
pub(crate) mod crew;
pub(crate) mod daemon;
pub(crate) mod link;
pub(crate) mod sentinel;
pub(crate) mod store;
pub(crate) mod worker;
