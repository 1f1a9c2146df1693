//! A server's beginning and end: what must be ready before the first write, its threads, its
//! signals, and how it stops.

mod builder;
mod cores;
mod logging;
mod notify;
mod open_files;
mod pinning;
mod prefault;
mod preflight;
mod run;
mod server;
mod signals;
mod start_error;

pub use builder::Builder;
pub use run::{check, run, run_with};
pub use server::Server;
pub use start_error::StartError;
