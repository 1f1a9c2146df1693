//! The audit log: one JSON line for every grant, release and loss, in a file of its own.
//!
//! Whoever decides about a lock leaves an event in a bounded queue and goes on: no lock, no system call, nobody woken. A
//! thread of its own empties the queue, a few times every hundred milliseconds, and writes (`writer.rs`). When it cannot
//! keep up the queue fills, and what finds no room is dropped and counted; a line in the file says how many once there is
//! room again. A server without an audit log has no queue, and pays a branch.
//!
//! Lines are numbered by `seq` in the order in which they were left in the queue. That may differ by a hair from the order
//! of the events themselves, since two cores may do things to one key at almost the same time: a grant can stand in front
//! of the release that made it possible. What puts the events of one key in order beyond doubt is the fence: every hold
//! has its own, larger ones are later, and each has one line for its beginning and one for its end.
//!
//! The file is never cut: a server adds to what it finds. Its lines begin with one that says `start`, as does their
//! numbering, and end with one that says `stop`, unless it was killed. A gap in the numbers, or a line that says
//! `dropped`, is where events are missing.

mod line;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use writer::Writer;

use crate::core::mail::Waiter;
use crate::session::registry::Session;
use crate::system::clock::Clock;
use crossbeam_queue::ArrayQueue;
use engine::{Grant, Loss, Lost, Mode, Tick};
use protocol::Lease;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many events may wait to be written: what a busy server does in the time a disk hiccups. Some 8 MB.
const EVENTS_MAX: usize = 1 << 16;

/// Where events are left.
pub(crate) struct Audit {
    queue: ArrayQueue<Event>,
    clock: Clock,
    /// Events that were not written: no room in the queue, or no luck with the file.
    dropped: AtomicU64,
    written: AtomicU64,
    stopping: AtomicBool,
}

/// Something happened to a lock.
struct Event {
    at: Tick,
    key: Arc<[u8]>,
    fence: u64,
    /// Whose lock it is; of a force, who used it. `None` for one that is gone already.
    session: Option<Arc<Session>>,
    what: What,
}

enum What {
    Grant {
        mode: Mode,
        /// `None`: as long as its session.
        ttl_ms: Option<u32>,
        wait_ms: u64,
        hold_count: u32,
        trace_id: Option<Arc<str>>,
    },
    Release {
        held_ms: u64,
        /// What is left of a reentrant hold; it ends with zero.
        hold_count: u32,
        /// By the server, for a client that had gone when its grant came.
        is_returned: bool,
    },
    Loss {
        why: Lost,
        held_ms: u64,
        late_ms: u64,
    },
    /// An operator took the lock away; the loss has a line of its own.
    Force,
}

impl Audit {
    fn new(clock: Clock, events_max: usize) -> Self {
        Audit {
            queue: ArrayQueue::new(events_max),
            clock,
            dropped: AtomicU64::new(0),
            written: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// A lock was granted at once.
    pub(crate) fn granted(
        &self,
        session: &Arc<Session>,
        acquire: &protocol::Acquire<'_>,
        grant: &Grant,
    ) {
        let trace_id = acquire.trace_id.as_str();
        self.leave(
            acquire.key.as_bytes().into(),
            grant.fence.get(),
            Some(session.clone()),
            What::Grant {
                mode: acquire.mode,
                ttl_ms: ttl_ms(acquire.lease),
                wait_ms: 0,
                hold_count: grant.count,
                trace_id: (!trace_id.is_empty()).then(|| trace_id.into()),
            },
        );
    }

    /// A lock was granted at once to a client of Redis.
    pub(crate) fn granted_over_redis(
        &self,
        session: &Arc<Session>,
        request: &engine::Acquire<'_>,
        grant: &Grant,
    ) {
        self.leave(
            request.key.bytes().into(),
            grant.fence.get(),
            Some(session.clone()),
            What::Grant {
                mode: request.mode,
                ttl_ms: ttl_ms(crate::redis::lease(request.span)),
                wait_ms: 0,
                hold_count: grant.count,
                trace_id: None,
            },
        );
    }

    /// A lock was claimed by one who held it before the server restarted.
    pub(crate) fn claimed(
        &self,
        session: &Arc<Session>,
        claim: &protocol::Reclaim<'_>,
        grant: &Grant,
    ) {
        self.leave(
            claim.key.as_bytes().into(),
            grant.fence.get(),
            Some(session.clone()),
            What::Grant {
                mode: claim.mode,
                ttl_ms: ttl_ms(claim.lease),
                wait_ms: 0,
                hold_count: grant.count,
                trace_id: None,
            },
        );
    }

    /// A lock was handed to one who had waited.
    pub(crate) fn granted_to_waiter(
        &self,
        session: Option<Arc<Session>>,
        waiter: &Waiter,
        grant: &Grant,
        now: Tick,
    ) {
        self.leave(
            waiter.key.clone(),
            grant.fence.get(),
            session,
            What::Grant {
                mode: waiter.mode,
                ttl_ms: ttl_ms(waiter.lease),
                wait_ms: waiter.asked.ms_until(now),
                hold_count: grant.count,
                trace_id: waiter.trace_id.clone(),
            },
        );
    }

    /// The owner gave a lock back, or one count of it.
    pub(crate) fn released(
        &self,
        session: &Arc<Session>,
        key: &[u8],
        fence: u64,
        hold_count: u32,
        held_ms: u64,
    ) {
        let what = What::Release {
            held_ms,
            hold_count,
            is_returned: false,
        };
        self.leave(key.into(), fence, Some(session.clone()), what);
    }

    /// The server gave a lock back for a client that had gone when its grant came.
    pub(crate) fn returned(
        &self,
        session: Option<Arc<Session>>,
        waiter: &Waiter,
        fence: u64,
        held_ms: u64,
    ) {
        let what = What::Release {
            held_ms,
            hold_count: 0,
            is_returned: true,
        };
        self.leave(waiter.key.clone(), fence, session, what);
    }

    /// A lock went without its owner's doing.
    pub(crate) fn lost(&self, session: Option<Arc<Session>>, loss: &Loss<'_>) {
        let what = What::Loss {
            why: loss.why,
            held_ms: loss.held_ms,
            late_ms: loss.late_ms,
        };
        self.leave(loss.key.bytes().into(), loss.fence.get(), session, what);
    }

    /// An operator took a lock away.
    pub(crate) fn forced(&self, operator: &Arc<Session>, key: &[u8], fence: u64) {
        self.leave(key.into(), fence, Some(operator.clone()), What::Force);
    }

    fn leave(&self, key: Arc<[u8]>, fence: u64, session: Option<Arc<Session>>, what: What) {
        let event = Event {
            at: self.clock.now(),
            key,
            fence,
            session,
            what,
        };
        if self.queue.push(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn ttl_ms(lease: Lease) -> Option<u32> {
    match lease {
        Lease::Ttl { ttl_ms } => Some(ttl_ms),
        Lease::Session => None,
    }
}
