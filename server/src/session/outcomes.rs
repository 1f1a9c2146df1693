//! What a session remembers: the outcomes of its latest requests, in case they come again because
//! an answer was lost, and its connections, which have them.

use crate::session::ConnectionId;
use engine::Grant;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many outcomes each connection remembers, in case its requests are repeated on another one.
pub(crate) const REMEMBERED_MAX: usize = 256;

/// How many outcomes a session remembers of connections that are gone: the ones with the highest
/// ids.
pub(super) const PAST_MAX: usize = 8 * REMEMBERED_MAX;

/// How many requests that came again a session knows by their ids, in case the first sending is yet
/// to be read.
pub(super) const REPEATED_MAX: usize = 4 * REMEMBERED_MAX;

/// How many outcomes and ids of repeated requests all sessions together keep before they have to
/// share: two million take about 150 MB. When there are more, a session that adds one keeps of each
/// no more than its share, an equal part of this. So there are never more than three times as many,
/// and a session that needs little loses nothing to those that take much.
pub(super) const KEPT_MAX: usize = 2 << 20;

/// The least that such a share is.
pub(super) const SHARE_MIN: usize = 16;

/// How much all sessions remember of connections that are gone.
pub(crate) struct Memory {
    pub(super) kept: AtomicUsize,
    kept_max: usize,
    pub(super) sessions: AtomicUsize,
}

impl Memory {
    pub(super) fn new(kept_max: usize) -> Arc<Self> {
        Arc::new(Memory {
            kept: AtomicUsize::new(0),
            kept_max,
            sessions: AtomicUsize::new(0),
        })
    }

    /// How many outcomes, and how many ids, one session may keep now.
    fn share(&self) -> usize {
        if self.kept.load(Ordering::Relaxed) <= self.kept_max {
            return usize::MAX;
        }
        let sessions = self.sessions.load(Ordering::Relaxed).max(1);
        (self.kept_max / sessions).max(SHARE_MIN)
    }
}

#[derive(Default)]
pub(super) struct Links {
    pub(super) connections: Vec<Link>,
    /// Of connections that are gone, by request id.
    pub(super) past: BTreeMap<u64, Remembered>,
    /// The highest id whose outcome a connection that is gone no longer knew, or `past` had no room
    /// for.
    pub(super) forgotten: u64,
    /// The ids that came again.
    pub(super) repeated: BTreeSet<u64>,
    /// How much of `past` and `repeated` stands in [`Memory::kept`].
    pub(super) counted: usize,
    /// The session outlived a restart, and its client has not come back to it yet.
    pub(super) is_restored: bool,
}

pub(super) struct Link {
    pub(super) id: ConnectionId,
    pub(super) address: SocketAddr,
    pub(super) outcomes: Arc<Mutex<Outcomes>>,
}

/// The latest requests of one connection that changed something, and what they were answered.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(super) latest: VecDeque<(u64, Remembered)>,
    /// The highest id whose outcome had to make room.
    pub(super) forgotten: u64,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remembered {
    Granted(Grant),
    Released {
        count: u32,
    },
    /// It waited when its connection went, and was taken out of line.
    Unanswered,
}

/// What is known of a request that comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recollection {
    /// It took effect, and this was the answer.
    Outcome(Remembered),
    /// It has had no effect.
    NoEffect,
    /// It may have had one, too long ago to be remembered.
    Forgotten,
}

impl Outcomes {
    pub(crate) fn extend(&mut self, outcomes: impl IntoIterator<Item = (u64, Remembered)>) {
        for outcome in outcomes {
            if self.latest.len() == REMEMBERED_MAX
                && let Some((id, _)) = self.latest.pop_front()
            {
                self.forgotten = self.forgotten.max(id);
            }
            self.latest.push_back(outcome);
        }
    }

    pub(super) fn find(&self, request_id: u64) -> Option<Remembered> {
        self.latest
            .iter()
            .rev()
            .find(|(id, _)| *id == request_id)
            .map(|(_, outcome)| *outcome)
    }
}

impl Links {
    /// Lets the oldest go of what is more than this session may keep, and counts what is left.
    /// Outcomes that had no effect can be forgotten without a trace.
    pub(super) fn trim(&mut self, memory: &Memory) {
        self.count(memory);
        let share = memory.share();
        while self.past.len() > PAST_MAX.min(share) {
            if let Some((id, outcome)) = self.past.pop_first()
                && outcome != Remembered::Unanswered
            {
                self.forgotten = self.forgotten.max(id);
            }
        }
        while self.repeated.len() > REPEATED_MAX.min(share) {
            self.repeated.pop_first();
        }
        self.count(memory);
    }

    fn count(&mut self, memory: &Memory) {
        let kept = self.past.len() + self.repeated.len();
        match kept.checked_sub(self.counted) {
            Some(more) => memory.kept.fetch_add(more, Ordering::Relaxed),
            None => memory
                .kept
                .fetch_sub(self.counted - kept, Ordering::Relaxed),
        };
        self.counted = kept;
    }
}
