//! See `fuzz-tests/src/recognise_script.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_tests::recognise_script::run(data));
