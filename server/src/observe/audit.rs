//! The audit log: one JSON line for every grant, release and loss, in a file of its own.
//! `docs/audit.md` has all kinds of lines and their fields; `observe/history` reads them back.
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
//! On the leader of a cluster an event waits with its core until what the core decided is settled
//! ([`hold_events`]; `core/durable_replies.rs` lets it go): another node may lead already, and then
//! it never happened. Those of a leadership that was lost are left out.
//!
//! A server appends to the file and renames it when it is large enough (`file.rs`). The numbers go
//! on over files and starts. Each server begins with a line that says `start` and how the one
//! before it stopped, and ends with one that says `stop`, unless it was killed. Events are missing
//! where the numbers have a gap or a line says `dropped`.

mod event;
mod file;
mod line;
mod sink;
#[cfg(test)]
mod tests;
mod traces;
mod writer;

pub(crate) use event::{Event, LastStop, Restoration, Start};
pub(crate) use file::Rotation;
pub(crate) use writer::Writer;

use crate::session::Session;
use crate::session::actor::Actor;
use crate::session::operator::Operator;
use crate::session::waiter::Terms;
use crate::system::clock::Clock;
use crossbeam_queue::ArrayQueue;
use engine::{Grant, Loss};
use event::{About, Begun, LockEvent, Refused, ServerEvent, What, Who};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many events may wait to be written. That covers a busy server while a disk stalls briefly,
/// and takes some 8 MB.
const EVENTS_MAX: usize = 1 << 16;

/// The audit log, as the cores see it: a queue for events.
pub(crate) struct Audit {
    queue: ArrayQueue<Event>,
    /// What was put back by a start or a reign, which is written before what follows it. Never
    /// touched by a core.
    restored: Mutex<Vec<Event>>,
    has_restored: AtomicBool,
    clock: Clock,
    /// Events that were not written: the queue was full, or a write failed.
    dropped: AtomicU64,
    written: AtomicU64,
    stopping: AtomicBool,
}

thread_local! {
    /// The events of this core's turn, if they wait until it is settled.
    static HELD: RefCell<Option<Vec<Event>>> = const { RefCell::new(None) };
}

/// Has the events of this thread wait from now on, until [`take_held`] takes them. For a core's
/// thread: the engine tells of a loss on whichever core finds out, and has none at hand.
pub(crate) fn hold_events() {
    HELD.set(Some(Vec::new()));
}

/// The events of this thread that wait.
pub(crate) fn take_held() -> Vec<Event> {
    HELD.with_borrow_mut(|held| held.as_mut().map(std::mem::take).unwrap_or_default())
}

impl Audit {
    fn new(clock: Clock, events_max: usize) -> Self {
        Audit {
            queue: ArrayQueue::new(events_max),
            restored: Mutex::default(),
            has_restored: AtomicBool::new(false),
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

    /// A client was granted a lock that it waited for so long.
    pub(crate) fn granted(&self, by: Arc<Actor>, terms: &Terms<'_>, grant: &Grant, wait_ms: u64) {
        let begun = Begun::new(&by.session, terms, grant, wait_ms);
        self.leave_lock(
            terms.key,
            grant.fence.get(),
            Who::Client(by),
            What::Grant(begun),
        );
    }

    /// A client claimed a lock that it held before the server restarted.
    pub(crate) fn claimed(&self, by: Arc<Actor>, terms: &Terms<'_>, grant: &Grant) {
        let begun = Begun::new(&by.session, terms, grant, 0);
        self.leave_lock(
            terms.key,
            grant.fence.get(),
            Who::Client(by),
            What::Claim(begun),
        );
    }

    /// A grant found its connection gone. The server released the lock after `held_ms`; `None`: it
    /// had ended by itself.
    pub(crate) fn returned(
        &self,
        session: Option<Arc<Session>>,
        terms: &Terms<'_>,
        grant: &Grant,
        wait_ms: u64,
        held_ms: Option<u64>,
    ) {
        let fence = grant.fence.get();
        if let Some(session) = &session {
            let begun = Begun::new(session, terms, grant, wait_ms);
            let who = Who::Session(session.clone());
            self.leave_lock(terms.key, fence, who, What::Grant(begun));
        } else {
            let begun = Begun::without_session(terms, grant, wait_ms);
            self.leave_lock(terms.key, fence, Who::Unknown, What::Grant(begun));
        }
        if let Some(held_ms) = held_ms {
            let what = What::Release {
                held_ms,
                hold_count: 0,
                is_returned: true,
            };
            let who = session.map_or(Who::Unknown, Who::Session);
            self.leave_lock(terms.key, fence, who, what);
        }
    }

    /// A client released a lock, or one count of it.
    pub(crate) fn released(
        &self,
        by: Arc<Actor>,
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
        self.leave_lock(key, fence, Who::Client(by), what);
    }

    /// A lock ended without a release by its owner.
    pub(crate) fn lost(&self, session: Option<Arc<Session>>, loss: &Loss<'_>) {
        let what = What::Loss {
            why: loss.why,
            held_ms: loss.held_ms,
            late_ms: loss.late_ms,
        };
        let who = session.map_or(Who::Unknown, Who::Session);
        self.leave_lock(loss.key.bytes(), loss.fence.get(), who, what);
    }

    /// An operator took a lock away, as a part of its own trace.
    pub(crate) fn forced(&self, operator: Arc<Actor>, key: &[u8], fence: u64, trace_id: &str) {
        let trace_id = (!trace_id.is_empty()).then(|| trace_id.into());
        self.leave_lock(key, fence, Who::Client(operator), What::Force { trace_id });
    }

    /// An operator took a lock away over HTTP.
    pub(crate) fn forced_over_http(&self, operator: Arc<Operator>, key: &[u8], fence: u64) {
        let trace_id = operator.trace_id.clone();
        let who = Who::Operator(operator);
        self.leave_lock(key, fence, who, What::Force { trace_id });
    }

    /// A client asked for something that it has no right to.
    pub(crate) fn refused(
        &self,
        by: Arc<Actor>,
        key: Option<&[u8]>,
        what: &'static str,
        why: String,
    ) {
        self.leave_refusal(Who::Client(by), key, what, why);
    }

    /// The same of one without a session: it asked over HTTP, or was not let in.
    pub(crate) fn refused_stranger(
        &self,
        address: &str,
        token_name: Option<Arc<str>>,
        what: &'static str,
        why: String,
    ) {
        let address = address.into();
        let who = Who::Stranger {
            address,
            token_name,
        };
        self.leave_refusal(who, None, what, why);
    }

    /// Refusals have half of the queue at most: a client that asks again and again must not crowd
    /// out what happens to locks.
    fn leave_refusal(&self, who: Who, key: Option<&[u8]>, what: &'static str, why: String) {
        if self.queue.len() >= self.queue.capacity() / 2 {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let refused = Refused {
            who,
            key: key.map(Into::into),
            what,
            why,
        };
        let about = About::Refusal(Box::new(refused));
        let at = self.clock.now();
        // At once, also on a leader: it is so whatever becomes of what the core decided.
        self.leave_settled(Event { at, about });
    }

    /// The grace period is over: what was held before the start and has neither been put back nor
    /// claimed is gone.
    pub(crate) fn grace_over(&self, claimed: u64) {
        self.leave(About::Server(ServerEvent::GraceOver { claimed }));
    }

    /// This node leads from now on. These locks were put back from what the cluster knows.
    pub(crate) fn leads(&self, term: u64, restoration: Restoration) {
        let counts = restoration.counts;
        let at = self.clock.now();
        let about = About::Server(ServerEvent::Lead { term, counts });
        let lead = Event { at, about };
        self.restored(std::iter::once(lead).chain(restoration.events));
    }

    /// An operator changed the cluster over HTTP.
    pub(crate) fn cluster_changed(&self, by: Arc<Operator>, change: String) {
        self.leave(About::Server(ServerEvent::Changed { by, change }));
    }

    /// This node leads no more.
    pub(crate) fn follows(&self) {
        self.leave(About::Server(ServerEvent::Follow));
    }

    /// Leaves what a start or a reign put back. For threads that may wait: takes a lock.
    fn restored(&self, events: impl IntoIterator<Item = Event>) {
        self.restored.lock().extend(events);
        // Release, paired with the Acquire in `take_restored`. An event that a core leaves
        // afterwards is popped by a writer that has seen this, since the cores are started later.
        self.has_restored.store(true, Ordering::Release);
    }

    fn take_restored(&self) -> Vec<Event> {
        match self.has_restored.load(Ordering::Acquire) {
            false => Vec::new(),
            true => {
                self.has_restored.store(false, Ordering::Release);
                std::mem::take(&mut *self.restored.lock())
            }
        }
    }

    fn leave_lock(&self, key: &[u8], fence: u64, who: Who, what: What) {
        self.leave(About::Lock(LockEvent {
            key: key.into(),
            fence,
            who,
            what,
        }));
    }

    fn leave(&self, about: About) {
        let at = self.clock.now();
        let event = Event { at, about };
        let not_held = HELD.with_borrow_mut(|held| match held {
            // Not more than the queue takes: the others would find no room there.
            Some(held) if held.len() >= self.queue.capacity() => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                None
            }
            Some(held) => {
                held.push(event);
                None
            }
            None => Some(event),
        });
        if let Some(event) = not_held {
            self.leave_settled(event);
        }
    }

    /// Leaves an event that waited, or need not wait, for the writer.
    pub(crate) fn leave_settled(&self, event: Event) {
        if self.queue.push(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
