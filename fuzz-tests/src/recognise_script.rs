//! The Redis port's view of a script: any text.

/// See the module.
pub fn run(text: &[u8]) {
    server::fuzzing::recognise_script(text);
}
