//! What must hold for all messages and for all bytes.

extern crate fencepost_protocol as protocol;

mod allocations;
mod document;
mod garbage;
mod messages;
mod resp;
mod round_trip;

use proptest::test_runner::{Config, FileFailurePersistence};

/// Failing inputs are printed, and their seeds kept beside the source.
fn config() -> Config {
    Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        ..Config::default()
    }
}
