//! An operator who acts over HTTP, without a session.

use std::sync::Arc;

/// The sender of a request over HTTP that changes something.
pub(crate) struct Operator {
    /// The name of the token that it showed; empty where the server has no tokens.
    pub(crate) token_name: Arc<str>,
    /// Where it connected from.
    pub(crate) address: Box<str>,
    /// The trace that its request is part of, if it named one.
    pub(crate) trace_id: Option<Arc<str>>,
}
