//! The audit log: one JSON line for every grant, release and loss, in a file of its own.
//!
//! A core that decides about a lock leaves an event in a bounded queue and goes on: it takes no
//! lock, makes no system call and wakes no thread. One thread empties the queue a few times every
//! hundred milliseconds and writes (`writer.rs`). If it cannot keep up, the queue fills. An event
//! that finds no room is dropped and counted, and a line in the file says how many were, once there
//! is room again. A server without an audit log has no queue and pays a branch.
//!
//! `seq` numbers the lines in the order in which the cores left them in the queue. That may differ
//! slightly from the order of the events, since two cores may act on one key at almost the same
//! time: a grant can stand before the release that made it possible. The fence orders the events of
//! one key: every hold has its own, larger ones are later, and each has one line for its beginning
//! and one for its end.
//!
//! The file is never cut: a server appends to it. Each server begins with a line that says `start`,
//! numbers its lines from there, and ends with one that says `stop`, unless it was killed. Events
//! are missing where the numbers have a gap or a line says `dropped`.

mod line;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use writer::Writer;

use crate::core::waiter::Terms;
use crate::session::Session;
use crate::system::clock::Clock;
use crossbeam_queue::ArrayQueue;
use engine::{Grant, Loss, Lost, Mode, Span, Tick};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many events may wait to be written. That covers a busy server while a disk stalls briefly,
/// and takes some 8 MB.
const EVENTS_MAX: usize = 1 << 16;

/// The audit log, as the cores see it: a queue for events.
pub(crate) struct Audit {
    queue: ArrayQueue<Event>,
    clock: Clock,
    /// Events that were not written: the queue was full, or a write failed.
    dropped: AtomicU64,
    written: AtomicU64,
    stopping: AtomicBool,
}

/// What happened to a lock.
struct Event {
    at: Tick,
    key: Arc<[u8]>,
    fence: u64,
    /// The session that holds or held the lock. For `Forced`, the session that forced the release.
    /// `None` if it has ended.
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
        /// The counts of a reentrant hold that are left; zero ends it.
        hold_count: u32,
        /// The server released it, because the client had gone when its grant came.
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

    /// A session was granted a lock that it waited for so long, or claimed one.
    pub(crate) fn granted(
        &self,
        session: Option<Arc<Session>>,
        terms: &Terms<'_>,
        grant: &Grant,
        wait_ms: u64,
    ) {
        let what = What::Grant {
            mode: terms.mode,
            ttl_ms: ttl_ms(terms.span),
            wait_ms,
            hold_count: grant.count,
            trace_id: (!terms.trace_id.is_empty()).then(|| terms.trace_id.into()),
        };
        self.leave(terms.key.into(), grant.fence.get(), session, what);
    }

    /// The owner released a lock, or one count of it.
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

    /// The server released a lock, because the client had gone when its grant came.
    pub(crate) fn returned(
        &self,
        session: Option<Arc<Session>>,
        key: &[u8],
        fence: u64,
        held_ms: u64,
    ) {
        let what = What::Release {
            held_ms,
            hold_count: 0,
            is_returned: true,
        };
        self.leave(key.into(), fence, session, what);
    }

    /// A lock ended without a release by its owner.
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

/// `None`: no end of its own.
fn ttl_ms(span: Span) -> Option<u32> {
    match span {
        Span::Ms(ms) => Some(u32::try_from(ms).unwrap_or(u32::MAX)),
        Span::Session | Span::Forever => None,
    }
}
