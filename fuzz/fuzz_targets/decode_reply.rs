//! See `fuzz-tests/src/decode_reply.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::decode_reply::run(data));
