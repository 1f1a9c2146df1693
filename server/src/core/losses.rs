//! Locks that their owners lost: expired, ended with their session, forced, superseded. The engine
//! tells of them on whichever core finds out, so these counters belong to no core.

use crate::observe::audit::Audit;
use crate::observe::metrics::Durations;
use crate::rights::Holdings;
use crate::session::Session;
use crate::storage::LongLeases;
use crossbeam_utils::CachePadded;
use engine::{Loss, Lost};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Losses {
    /// On lines of their own: the rest is read by every request and hardly ever written.
    pub(crate) counters: CachePadded<Counters>,
    /// `None`, unless the settings ask for an audit log.
    audit: Option<Arc<Audit>>,
    /// What locks count for that are subject to a quota.
    pub(crate) holdings: Holdings,
    /// Leases that are written down one by one. `None` without a log.
    long: Option<Arc<LongLeases>>,
}

/// Locks lost, by reason.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) expired: AtomicU64,
    pub(crate) session_ended: AtomicU64,
    pub(crate) forced: AtomicU64,
    pub(crate) superseded: AtomicU64,
    /// How long they had been held.
    pub(crate) held: Durations,
}

impl Losses {
    pub(crate) fn new(audit: Option<Arc<Audit>>, long: Option<Arc<LongLeases>>) -> Self {
        Losses {
            counters: CachePadded::default(),
            holdings: Holdings::default(),
            audit,
            long,
        }
    }

    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.audit.as_deref()
    }

    /// A lock went without its owner's doing. `session` is `None` for one that is gone already.
    pub(crate) fn book(&self, session: Option<&Arc<Session>>, loss: &Loss<'_>) {
        // The log has the ends of leases and sessions already. The core that takes a lock away
        // writes that down when the engine is done: `Books::forced`, `Books::superseded_others`.
        if let Some(long) = &self.long {
            let (key, fence) = (loss.key.bytes(), loss.fence.get());
            match loss.why {
                Lost::Expired | Lost::SessionEnded => {
                    long.remove(key, fence);
                }
                Lost::Superseded | Lost::Forced => long.take_away(key, fence),
            }
        }
        self.holdings.remove(loss.key.bytes(), loss.fence.get());
        let counters = &*self.counters;
        let counter = match loss.why {
            Lost::Expired => &counters.expired,
            Lost::SessionEnded => &counters.session_ended,
            Lost::Forced => &counters.forced,
            Lost::Superseded => &counters.superseded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        counters.held.record(loss.held_ms);
        if let Some(audit) = &self.audit {
            audit.lost(session.cloned(), loss);
        }
        if let Some(session) = session {
            session.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
