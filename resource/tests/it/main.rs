//! Guards as their users see them, and the service over real sockets.

extern crate fencepost_resource as resource;

#[cfg(feature = "postgres")]
mod database;
mod durable;
mod forgetting;
mod guard;
mod http;
mod layer;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
mod support;
