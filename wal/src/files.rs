//! The files of a log, which are read and written without knowing what the log says.

pub(crate) mod key;
pub(crate) mod segment;
