//! What all offices of a run share.

use crate::bug::Bug;
use crate::checks::Checks;
use crate::request::Request;
use cluster::types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the offices of all nodes say to the checks.
#[derive(Clone)]
pub(crate) struct Shared(pub Arc<SharedState>);

pub(crate) struct SharedState {
    pub bug: Option<Bug>,
    pub seed: u64,
    pub wall_ahead_ms: BTreeMap<NodeId, i64>,
    pub checks: Mutex<Checks>,
}

impl Shared {
    pub(crate) fn bug(&self, bug: Bug) -> bool {
        self.0.bug == Some(bug)
    }

    /// What the wall clock of a node shows. Nothing but a planted mistake asks for it.
    pub(crate) fn wall_ms(&self, node: NodeId) -> u64 {
        let now_ms = self.0.checks.lock().now_us / 1_000;
        (cluster::simulation::WALL_UNIX_MS + now_ms)
            .saturating_add_signed(self.0.wall_ahead_ms[&node])
    }

    pub(crate) fn reign_begins(&self, node: NodeId, index: u64, begin_ms: u64) {
        self.0.checks.lock().reign_begins(node, index, begin_ms);
    }

    /// The record of this grant will stand behind records of what was decided later. `false`: it is
    /// in the log already.
    pub(crate) fn is_late(&self, fence: u64) -> bool {
        self.0.checks.lock().is_late(fence)
    }

    pub(crate) fn issued(&self, fence: u64, key: u8, request: &Request) {
        self.0.checks.lock().issued(fence, key, request);
    }
}
