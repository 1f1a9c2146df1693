//! See `fuzz-tests/src/answer_http.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::answer_http::run(data));
