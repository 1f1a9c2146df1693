//! The way from a caller to the server and back.

pub(crate) mod call;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod lane;
pub(crate) mod pool;
pub(crate) mod reply;
pub(crate) mod watchdog;
