//! Guards as their users see them, and the service over real sockets.

mod durable;
mod guard;
mod http;
mod layer;
mod program;
mod support;
