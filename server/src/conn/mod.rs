//! Connections, whatever they speak: accepting them, which peers have a place, the loop that
//! reads, decides and writes, and their end.

pub(crate) mod auth;
pub(crate) mod connection;
pub(crate) mod id;
pub(crate) mod listener;
pub(crate) mod places;
pub(crate) mod stopping;
