//! Every concurrent protocol of the engine, in every interleaving. One binary, one file per
//! protocol.

#![cfg(loom)]

mod bound_mark;
mod ceiling;
mod cell;
mod claim;
mod growth;
mod holds;
mod look;
mod mailbox;
mod metadata;
mod prefault;
mod queue;
mod rest;
mod restored;
mod seat;
mod session;
mod shards;
mod sleep;
mod table;
mod take_over;
mod wheel;
