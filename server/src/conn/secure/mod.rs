//! TLS on the side of the server.
//!
//! rustls does the protocol and no I/O. `handshake.rs` brings a connection to where both sides know
//! each other; from then on `halves.rs` reads and writes as the halves of a plain socket do, so
//! that nothing above a socket knows the difference. `certificates.rs` has what is shown and asked
//! for, and exchanges it while the server runs. `plain.rs` has an answer for peers that speak
//! something else.

mod certificates;
mod halves;
mod handshake;
mod plain;

pub(crate) use certificates::{Certificates, announce, seconds_until};
pub(crate) use halves::{SecureReadHalf, SecureSocket, SecureWriteHalf};
pub(crate) use handshake::{NotSecured, shake_hands};
pub(crate) use plain::Guess;
