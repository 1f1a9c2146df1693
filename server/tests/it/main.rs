//! The server over real sockets. One binary, one file per subject.

extern crate fencepost_server as server;

mod alerts;
mod audit;
mod browser;
mod common;
mod crowd;
mod durable;
mod grace;
mod guarded;
mod healthy;
mod hostile;
mod http;
mod limits;
mod locks;
mod metrics;
mod nodes;
mod noise;
mod order;
mod page;
mod panics;
mod quotas;
mod random;
mod redis;
mod redis_cluster;
mod repeats;
mod rights;
mod sessions;
mod slow;
mod start;
mod stopping;
mod strangers;
mod stress;
mod system;
mod turns;
mod waiting;
mod webdriver;
