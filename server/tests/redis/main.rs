//! The Redis port beside a real Redis, under a driver that knows nothing of Fencepost, and under
//! hostile peers.

extern crate fencepost_server as server;

mod blocking;
mod command;
mod compare;
mod dialogues;
mod differential;
mod driver;
mod hostile;
mod meaning;
mod newer;
mod peer;
mod published;
mod recognised;
mod recovering;
mod reply;
mod scripts;
mod servers;
mod strangers;
mod transactions;
