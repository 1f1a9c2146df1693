//! The server over real sockets. One binary, one file per subject.

mod common;
mod locks;
