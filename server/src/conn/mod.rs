//! Connections, whatever they speak: accepting them, which peers have a place, the loop that
//! reads, decides and writes, and their end.

pub(crate) mod auth;
pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod dialect;
pub(crate) mod id;
pub(crate) mod listener;
mod out_buffer;
pub(crate) mod places;
pub(crate) mod socket;
pub(crate) mod stopping;
