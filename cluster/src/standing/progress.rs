//! Whether a node keeps up with its leader.
//!
//! The rule: what the leader had committed at some moment within the last [`BEHIND_MAX`] is applied
//! here. To be as far as the leader at each moment would be too much to ask, since entries are
//! always under way while clients work. A number of entries would mean a millisecond on one machine
//! and a minute on another.

use crate::types::Types;
use openraft::type_config::alias::InstantOf;
use std::time::Duration;

/// A node that is further behind does not count. Much longer than a healthy node needs under any
/// load, so that none flaps.
pub(super) const BEHIND_MAX: Duration = Duration::from_secs(5);

/// What is known of it, since the node has heard its leader.
#[derive(Default)]
pub(super) struct Progress {
    /// What the leader had committed at a moment, while it is not applied here.
    goal: Option<(u64, InstantOf<Types>)>,
    /// What the leader had committed at this moment is applied.
    reached: Option<InstantOf<Types>>,
}

impl Progress {
    /// Looks at what the leader has committed, as it told last, and at what is applied. Whether the
    /// node keeps up.
    pub(super) fn look(
        &mut self,
        told_index: Option<u64>,
        applied_index: Option<u64>,
        now: InstantOf<Types>,
    ) -> bool {
        if let Some((goal_index, at)) = self.goal
            && applied_index >= Some(goal_index)
        {
            self.reached = Some(at);
            self.goal = None;
        }
        match told_index {
            Some(told_index) if applied_index >= Some(told_index) => self.reached = Some(now),
            // One goal at a time: a later one would never be reached by a node that is always
            // behind, although it may be behind by little.
            Some(told_index) => _ = self.goal.get_or_insert((told_index, now)),
            None => {}
        }
        self.reached
            .is_some_and(|reached| now - reached < BEHIND_MAX)
    }
}

#[cfg(test)]
mod tests;
