//! The server over real sockets. One binary, one file per subject.

mod audit;
mod common;
mod crowd;
mod hostile;
mod http;
mod limits;
mod locks;
mod metrics;
mod repeats;
mod sessions;
mod stopping;
mod stress;
mod system;
mod waiting;
