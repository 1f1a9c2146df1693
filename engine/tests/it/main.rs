//! The engine from outside, as its callers use it. One binary, one file per subject.

extern crate fencepost_engine as engine;

mod common;
mod expiry;
mod fences;
mod input;
mod listing;
mod locks;
mod model;
mod modes;
mod numbers;
mod queues;
mod rest;
mod restart;
mod sessions;
mod take_over;
mod threads;
mod waiter_bytes;
