//! The log as a whole.

mod crash;
mod document;
pub(crate) mod life;
pub(crate) mod model;
