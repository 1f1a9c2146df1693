//! See `fuzz-tests/src/decode_resp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::decode_resp::run(data));
