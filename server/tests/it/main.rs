//! The server over real sockets. One binary, one file per subject.

extern crate fencepost_server as server;

mod audit;
mod common;
mod crowd;
mod durable;
mod grace;
mod healthy;
mod hostile;
mod http;
mod limits;
mod locks;
mod metrics;
mod noise;
mod order;
mod panics;
mod random;
mod redis;
mod repeats;
mod sessions;
mod slow;
mod start;
mod stopping;
mod strangers;
mod stress;
mod system;
mod turns;
mod waiting;
