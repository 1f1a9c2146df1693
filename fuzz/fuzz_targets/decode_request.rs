//! See `fuzz-tests/src/decode_request.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::decode_request::run(data));
