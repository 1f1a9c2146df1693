//! The log as a whole.

mod crash;
mod document;
mod faults;
mod fences;
pub(crate) mod life;
pub(crate) mod model;
