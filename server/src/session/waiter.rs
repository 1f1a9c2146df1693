//! An acquire that waits: which connection to tell, and what it asked for.

use crate::session::ConnectionId;
use engine::{Mode, SessionId, Span, Tick};
use std::sync::Arc;

/// A waiting acquire.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
    pub(crate) request_id: u64,
    /// It came again, after its connection broke.
    pub(crate) is_repeat: bool,
    pub(crate) key: Arc<[u8]>,
    pub(crate) mode: Mode,
    pub(crate) span: Span,
    /// The metadata of the request; empty unless it is to be written down.
    pub(crate) note: Box<[u8]>,
    pub(crate) trace_id: Option<Arc<str>>,
    pub(crate) asked: Tick,
}

impl Waiter {
    /// What it keeps on the heap.
    pub(crate) fn kept_bytes(&self) -> usize {
        let trace_id = self.trace_id.as_deref().unwrap_or_default();
        self.key.len() + self.note.len() + trace_id.len()
    }
}

/// What an acquire or a claim asked for, as far as the log and the audit log want to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) mode: Mode,
    pub(crate) span: Span,
    pub(crate) note: &'a [u8],
    /// Empty if there is none.
    pub(crate) trace_id: &'a str,
}

impl Waiter {
    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms {
            key: &self.key,
            mode: self.mode,
            span: self.span,
            note: &self.note,
            trace_id: self.trace_id.as_deref().unwrap_or_default(),
        }
    }
}
