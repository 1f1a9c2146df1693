//! The client against the real server, over real sockets.

extern crate fencepost_server as server;

mod blocking;
mod cancelling;
mod chaos;
mod cluster;
mod connecting;
mod detached;
mod locking;
mod losing;
mod reconnecting;
mod restarting;
mod scripted;
mod support;
mod tls;
mod watching;
