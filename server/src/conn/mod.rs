//! What a connection is made of, whatever it speaks: its socket, its out-buffer, its place, and the
//! two traits by which a protocol takes part. `core/` keeps connections, `serve/` serves them.

pub(crate) mod connection;
pub(crate) mod dialect;
mod out_buffer;
pub(crate) mod places;
pub(crate) mod secure;
pub(crate) mod socket;
