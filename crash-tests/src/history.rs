//! What was seen in a run. All times are microseconds on the clock of the process that drives the clients, which is
//! monotonic; the server's clocks appear nowhere.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Microseconds since the run began.
pub type Time = u64;

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The lives of the server, in order.
    pub lives: Vec<Life>,
    /// Every grant that a client was told of, in no order.
    pub grants: Vec<Grant>,
    /// Every time that the server named a holder.
    pub sightings: Vec<Sighting>,
    /// Every attempt to use a lock that had been given back.
    pub probes: Vec<Probe>,
    /// How far the wall clock may have moved against the monotonic one while a lease lasted. The server counts the time
    /// between two lives by the former.
    pub clock_drift_us: u64,
}

/// One life of the server.
#[derive(Clone, Debug)]
pub struct Life {
    /// When it said that it was ready; `None` if it was killed before.
    pub ready: Option<Time>,
    /// When its end began: read just before the signal was sent.
    pub ended: Time,
    /// Which signal.
    pub end: LifeEnd,
}

/// How a life of the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEnd {
    /// By SIGKILL.
    Killed,
    /// By SIGTERM: in good order.
    Stopped,
}

/// One grant: a lock that a client was told it has.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What is locked.
    pub key: Arc<str>,
    /// Under which fence.
    pub fence: u64,
    /// Others may have it too, if they share it as well.
    pub is_shared: bool,
    /// Who has it, for people.
    pub holder: Arc<str>,
    /// For how long it was asked, or how long its session outlives its last sign of life.
    pub ttl_us: u64,
    /// When the client began to ask.
    pub begun: Time,
    /// When it had the grant.
    pub answered: Time,
    /// Until when the client was told, or could conclude, that the lock is certainly its own: by the grant and by every
    /// renewal that was answered yes.
    pub promises: Vec<Time>,
    /// How it ended.
    pub end: End,
}

/// How a grant ended, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was still held when the history ended.
    Open,
    /// It was given back, and the server said so.
    Released {
        /// When the client began to.
        begun: Time,
        /// When it had the answer.
        answered: Time,
    },
    /// It was given back, and nobody knows whether the server heard of it: the guard was dropped, the answer got lost, or it
    /// came too late.
    Abandoned {
        /// When.
        begun: Time,
    },
    /// The client was told that it is gone, or gave it up because nobody confirmed it in time.
    Lost {
        /// When the client knew.
        at: Time,
        /// The server said so.
        by_server: bool,
        /// Why, for people.
        why: String,
    },
}

/// The server said that a key was held under a fence: by refusing somebody else, or because it was asked.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// Which key.
    pub key: Arc<str>,
    /// Under which fence.
    pub fence: u64,
    /// Shared with others, perhaps.
    pub is_shared: bool,
    /// When the client began to ask.
    pub begun: Time,
    /// When it had the answer.
    pub answered: Time,
}

/// An attempt to use a lock that had been given back, by the session that had had it.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Which key.
    pub key: Arc<str>,
    /// Under which fence.
    pub fence: u64,
    /// What was asked.
    pub ask: &'static str,
    /// When the client began to ask.
    pub begun: Time,
    /// The server said yes.
    pub is_accepted: bool,
}

/// Writes a history from many tasks at once.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    /// Unix time minus monotonic time, when it was last looked at.
    offset_us: Mutex<i128>,
    grant_count: AtomicU64,
    history: Mutex<History>,
}

/// Names a grant in the history that is being written.
#[derive(Clone, Copy, Debug)]
pub struct GrantIndex(usize);

impl Default for Recorder {
    fn default() -> Self {
        let start = Instant::now();
        Recorder {
            start,
            offset_us: Mutex::new(offset_us(start)),
            grant_count: AtomicU64::new(0),
            history: Mutex::default(),
        }
    }
}

impl Recorder {
    /// The time by which everything is recorded.
    pub fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// A moment, as a time of the history.
    pub fn time_of(&self, moment: Instant) -> Time {
        moment.saturating_duration_since(self.start).as_micros() as u64
    }

    /// How many grants there are so far.
    pub fn grant_count(&self) -> u64 {
        self.grant_count.load(Ordering::Relaxed)
    }

    /// A lock was granted.
    pub fn granted(&self, grant: Grant) -> GrantIndex {
        let mut history = self.history.lock();
        history.grants.push(grant);
        self.grant_count.fetch_add(1, Ordering::Relaxed);
        GrantIndex(history.grants.len() - 1)
    }

    /// A lock is certainly held until then.
    pub fn promised(&self, grant: GrantIndex, until: Time) {
        let promises = &mut self.history.lock().grants[grant.0].promises;
        if promises.last() != Some(&until) {
            promises.push(until);
        }
    }

    /// A lease was set to end then, and whatever was promised before counts no more.
    pub fn promised_anew(&self, grant: GrantIndex, until: Time) {
        self.history.lock().grants[grant.0].promises = vec![until];
    }

    /// A lock is not held any more.
    pub fn ended(&self, grant: GrantIndex, end: End) {
        self.history.lock().grants[grant.0].end = end;
    }

    /// The server named a holder.
    pub fn saw(&self, sighting: Sighting) {
        self.history.lock().sightings.push(sighting);
    }

    /// Somebody tried to use what had been given back.
    pub fn probed(&self, probe: Probe) {
        self.history.lock().probes.push(probe);
    }

    /// A life of the server is over.
    pub fn lived(&self, life: Life) {
        let offset = offset_us(self.start);
        let before = std::mem::replace(&mut *self.offset_us.lock(), offset);
        // The clocks are compared once per life, and no lease spans many of them without being renewed.
        let drift = 4 * (offset - before).unsigned_abs() as u64;
        let mut history = self.history.lock();
        history.clock_drift_us = history.clock_drift_us.max(drift);
        history.lives.push(life);
    }

    /// Everything that was recorded so far.
    pub fn history(&self) -> History {
        self.history.lock().clone()
    }
}

/// What the wall clock shows minus what the monotonic one does: of several looks the one that took the least time, since
/// whoever is interrupted between the two sees clocks apart that are not.
fn offset_us(start: Instant) -> i128 {
    let look = || {
        let before = start.elapsed();
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let took = start.elapsed() - before;
        let unix = unix.unwrap_or(Duration::ZERO);
        let offset_us = unix.as_micros() as i128 - before.as_micros() as i128;
        (took, offset_us)
    };
    let looks = std::iter::repeat_with(look).take(5);
    looks.min().map_or(0, |(_, offset_us)| offset_us)
}
