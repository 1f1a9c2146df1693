//! What users of this crate call.

pub mod blocking;
pub(crate) mod builder;
pub(crate) mod client;
pub(crate) mod guard;
pub(crate) mod lock;
pub(crate) mod operator;
