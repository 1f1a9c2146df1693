//! A server's beginning and end: what must be ready before the first write, its threads, its
//! signals, and how it stops.

mod builder;
pub(crate) mod cores;
mod logging;
pub(crate) mod notify;
pub(crate) mod open_files;
mod pinning;
pub(crate) mod prefault;
pub(crate) mod preflight;
mod server;
pub(crate) mod signals;
pub(crate) mod start_error;

pub use builder::Builder;
pub use server::Server;
pub(crate) use server::reload;
pub use start_error::StartError;
