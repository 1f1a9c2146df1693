//! The HTTP side's view: any request head, and any key in a path or prefix in a query.

/// See the module.
pub fn run(head: &[u8]) {
    server::fuzzing::answer_http(head);
}
