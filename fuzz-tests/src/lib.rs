//! The bodies of the fuzz targets: each takes any bytes, must come to an end without a panic, and
//! asserts what has to hold.
//!
//! They run in two ways. `cargo +nightly fuzz run NAME` searches for inputs for as long as one lets
//! it (`fuzz/`). And `cargo test -p fuzz-tests`, with any toolchain, runs each over its committed
//! corpus (`fuzz/seeds/NAME`) and over a bounded number of mutations of it, the same ones for the
//! same seed.

#![forbid(unsafe_code)]

pub mod answer_http;
pub mod decode_reply;
pub mod decode_request;
pub mod decode_resp;
pub mod read_log;
pub mod read_peer;
pub mod recognise_script;

/// The body of a target.
pub type Run = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Run); 7] = [
    ("answer_http", answer_http::run),
    ("decode_reply", decode_reply::run),
    ("decode_request", decode_request::run),
    ("decode_resp", decode_resp::run),
    ("read_log", read_log::run),
    ("read_peer", read_peer::run),
    ("recognise_script", recognise_script::run),
];
