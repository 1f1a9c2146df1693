//! Exports the simulation's own `getrandom`, so that crates that look it up by its name find it
//! before the C library's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
}
