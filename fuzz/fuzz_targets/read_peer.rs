//! See `fuzz-tests/src/read_peer.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::read_peer::run(data));
