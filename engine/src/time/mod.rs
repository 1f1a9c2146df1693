//! Time as the engine knows it: ticks, and the wheel that says which of them are due.

pub(crate) mod lease;
pub(crate) mod rest;
pub(crate) mod tick;
pub mod wheel;
