//! See `fuzz-tests/src/read_log.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::read_log::run(data));
