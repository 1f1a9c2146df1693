//! Who acts on a connection, as the audit log names it.

use super::Session;
use std::sync::Arc;

/// The client at the other end of a connection. Shared by all events that the connection leaves in
/// the audit log; replaced when the client gives itself another name or shows another token.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) session: Arc<Session>,
    /// What a client of Redis calls itself. `None`: the session has the name.
    pub(crate) own_name: Option<Box<str>>,
    /// Where it connected from.
    pub(crate) address: Box<str>,
    /// The name of the token that it showed, if that has one.
    pub(crate) token_name: Option<Arc<str>>,
}

impl Actor {
    pub(crate) fn client_name(&self) -> &str {
        self.own_name
            .as_deref()
            .unwrap_or(&self.session.client_name)
    }
}
