//! What operators are shown: the numbers by name, the metrics page, and HTTP.

pub(crate) mod exposition;
pub(crate) mod http;
mod oldest;
pub(crate) mod stats;
