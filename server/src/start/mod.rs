//! A server's beginning and end: what must be ready before the first write, its threads, its
//! signals, and how it stops.

pub(crate) mod logging;
mod notify;
mod open_files;
mod pinning;
mod prefault;
mod preflight;
pub(crate) mod server;
pub(crate) mod start_error;
