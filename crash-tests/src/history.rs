//! What was seen in a run.
//!
//! All times are microseconds since the run began, on the machine's monotonic clock, which all
//! processes of a run share. The server's clocks appear nowhere.
//!
//! Most clients run in processes of their own. There a [`Recorder`] writes each [`Event`] as a line
//! of JSON; the driver reads the lines and adds them to its own history.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
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
    /// Every time that a process of clients was stopped by SIGSTOP.
    pub pauses: Vec<Pause>,
    /// How far the wall clock may have moved against the monotonic one while a lease lasted. The
    /// server counts the time between two lives by the former.
    pub clock_drift_us: u64,
}

/// One life of the server.
#[derive(Clone, Debug)]
pub struct Life {
    /// When it said that it was ready; `None` if it was killed before.
    pub ready: Option<Time>,
    /// When its end began: read just before the signal was sent.
    pub ended: Time,
    /// By when its process was gone. Until then it may have answered, after SIGTERM in any case.
    pub gone: Time,
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

/// A time for which a process of clients was stopped.
#[derive(Clone, Debug)]
pub struct Pause {
    /// What the names of its clients begin with.
    pub clients: Arc<str>,
    /// When it stood still.
    pub from: Time,
    /// When it was continued: read just before the signal was sent.
    pub to: Time,
}

/// One grant: a lock that a client was told it has.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Grant {
    /// What is locked.
    pub key: Arc<str>,
    /// Under which fence.
    pub fence: u64,
    /// Others may have it too, if they share it as well.
    pub is_shared: bool,
    /// The name of the client that has it.
    pub holder: Arc<str>,
    /// For how long it was asked, or how long its session outlives its last sign of life.
    pub ttl_us: u64,
    /// When the client began to ask.
    pub begun: Time,
    /// When it had the grant.
    pub answered: Time,
    /// Until when the client was told, or could conclude, that the lock is certainly its own: by
    /// the grant and by every renewal that was answered yes.
    pub promises: Vec<Time>,
    /// How it ended.
    pub end: End,
}

/// How a grant ended, as its client sees it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
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
    /// It was given back, and it is not known whether the server heard of it: the guard was
    /// dropped, the answer got lost, or it came too late.
    Abandoned {
        /// When.
        begun: Time,
    },
    /// The client was told that it is gone, or gave it up because it was not confirmed in time.
    Lost {
        /// When the client knew.
        at: Time,
        /// The server said so.
        by_server: bool,
        /// Why, for people.
        why: String,
    },
}

/// The server said that a key was held under a fence: it refused another client, or was asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
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

/// One entry of a history, as a process of clients sends it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Event {
    /// All clients of the process are connected.
    Ready,
    /// Grants are numbered in the order in which they come, from 0.
    Granted(Grant),
    Promised {
        grant: GrantIndex,
        until: Time,
    },
    /// Replaces all earlier promises.
    PromisedAnew {
        grant: GrantIndex,
        until: Time,
    },
    Ended {
        grant: GrantIndex,
        end: End,
    },
    Saw(Sighting),
    /// Failures that the clients met, with their number: the last event.
    Met(BTreeMap<String, u64>),
}

/// Writes a history from many tasks at once.
pub struct Recorder {
    start: Instant,
    /// `start` on the clock of [`monotonic`].
    start_clock: Duration,
    /// Unix time minus monotonic time, when it was last looked at.
    offset_us: Mutex<i128>,
    grant_count: AtomicU64,
    book: Mutex<Book>,
}

/// Where a recorder writes.
enum Book {
    /// Into memory, for the checker.
    Kept(History),
    /// To the process that keeps the history.
    Sent(Box<dyn Write + Send>),
}

/// Names a grant in the history that is being written.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct GrantIndex(usize);

impl Default for Recorder {
    fn default() -> Self {
        let (start, start_clock) = both_clocks();
        Self::new(start, start_clock, Book::Kept(History::default()))
    }
}

impl Recorder {
    fn new(start: Instant, start_clock: Duration, book: Book) -> Self {
        Recorder {
            start,
            start_clock,
            offset_us: Mutex::new(offset_us(start)),
            grant_count: AtomicU64::new(0),
            book: Mutex::new(book),
        }
    }

    /// A recorder for a process of clients. `start_clock` is that of the recorder it writes to.
    pub(crate) fn sending(start_clock: Duration, to: Box<dyn Write + Send>) -> io::Result<Self> {
        let (now, clock) = both_clocks();
        let start = now.checked_sub(clock.saturating_sub(start_clock));
        let start = start.ok_or_else(|| io::Error::other("the run began before the clock"))?;
        Ok(Self::new(start, start_clock, Book::Sent(to)))
    }

    /// When the run began, for [`Recorder::sending`].
    pub fn start_clock(&self) -> Duration {
        self.start_clock
    }

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
        let mut book = self.book.lock();
        book.write(Event::Granted(grant));
        // Under the mutex, so that numbers and entries have one order.
        let index = self.grant_count.fetch_add(1, Ordering::Relaxed);
        GrantIndex(index as usize)
    }

    /// A lock is certainly held until then.
    pub fn promised(&self, grant: GrantIndex, until: Time) {
        self.write(Event::Promised { grant, until });
    }

    /// A lease was set to end then, and what was promised before counts no more.
    pub fn promised_anew(&self, grant: GrantIndex, until: Time) {
        self.write(Event::PromisedAnew { grant, until });
    }

    /// A lock is not held any more.
    pub fn ended(&self, grant: GrantIndex, end: End) {
        self.write(Event::Ended { grant, end });
    }

    /// The server named a holder.
    pub fn saw(&self, sighting: Sighting) {
        self.write(Event::Saw(sighting));
    }

    pub(crate) fn write(&self, event: Event) {
        self.book.lock().write(event);
    }

    /// A client tried to use what it had given back.
    pub fn probed(&self, probe: Probe) {
        self.keep(|history| history.probes.push(probe));
    }

    /// A process of clients was stopped for a while.
    pub fn paused(&self, pause: Pause) {
        self.keep(|history| history.pauses.push(pause));
    }

    /// A life of the server is over.
    pub fn lived(&self, life: Life) {
        let offset = offset_us(self.start);
        let before = std::mem::replace(&mut *self.offset_us.lock(), offset);
        // The clocks are compared once per life, and no lease spans many of them without being
        // renewed.
        let drift = 4 * (offset - before).unsigned_abs() as u64;
        self.keep(|history| {
            history.clock_drift_us = history.clock_drift_us.max(drift);
            history.lives.push(life);
        });
    }

    /// How many lives are over.
    pub(crate) fn life_count(&self) -> usize {
        self.keep(|history| history.lives.len())
    }

    /// Everything that was recorded so far.
    pub fn history(&self) -> History {
        self.keep(|history| history.clone())
    }

    /// For what only the driver records.
    fn keep<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        match &mut *self.book.lock() {
            Book::Kept(history) => change(history),
            Book::Sent(_) => unreachable!("only the driver records this"),
        }
    }
}

impl Book {
    fn write(&mut self, event: Event) {
        match self {
            Book::Kept(history) => history.add(event),
            Book::Sent(to) => {
                let line = serde_json::to_string(&event).expect("events have string keys only");
                // Without the process that keeps the history there is nothing left to do.
                if writeln!(to, "{line}").and_then(|()| to.flush()).is_err() {
                    std::process::exit(1);
                }
            }
        }
    }
}

impl History {
    fn add(&mut self, event: Event) {
        match event {
            Event::Granted(grant) => self.grants.push(grant),
            Event::Promised { grant, until } => {
                let promises = &mut self.grants[grant.0].promises;
                if promises.last() != Some(&until) {
                    promises.push(until);
                }
            }
            Event::PromisedAnew { grant, until } => self.grants[grant.0].promises = vec![until],
            Event::Ended { grant, end } => self.grants[grant.0].end = end,
            Event::Saw(sighting) => self.sightings.push(sighting),
            Event::Ready | Event::Met(_) => {}
        }
    }
}

/// Adds the events of a process of clients to the history of `recorder`.
pub(crate) struct Merger<'a> {
    recorder: &'a Recorder,
    /// By the numbers of the other process.
    grants: Vec<GrantIndex>,
}

impl<'a> Merger<'a> {
    pub(crate) fn new(recorder: &'a Recorder) -> Self {
        let grants = Vec::new();
        Merger { recorder, grants }
    }

    pub(crate) fn add(&mut self, event: Event) -> Result<(), String> {
        let here = |grant: GrantIndex| {
            let known = self.grants.get(grant.0).copied();
            known.ok_or_else(|| format!("an event of a grant that never was: {}", grant.0))
        };
        let event = match event {
            Event::Granted(grant) => {
                self.grants.push(self.recorder.granted(grant));
                return Ok(());
            }
            Event::Promised { grant, until } => Event::Promised {
                grant: here(grant)?,
                until,
            },
            Event::PromisedAnew { grant, until } => Event::PromisedAnew {
                grant: here(grant)?,
                until,
            },
            Event::Ended { grant, end } => Event::Ended {
                grant: here(grant)?,
                end,
            },
            other => other,
        };
        self.recorder.write(event);
        Ok(())
    }
}

/// The machine's monotonic clock. Unlike an [`Instant`], it can be told to another process.
fn monotonic() -> Duration {
    let clock = clock_gettime(ClockId::Monotonic);
    Duration::try_from(clock).expect("it counts from the start of the machine")
}

/// Both clocks at one moment: of many looks the one that took the least time, far below the
/// microsecond that a history counts in.
fn both_clocks() -> (Instant, Duration) {
    let look = || {
        let now = Instant::now();
        let clock = monotonic();
        (now.elapsed(), now, clock)
    };
    let looks = std::iter::repeat_with(look).take(100);
    let (_, now, clock) = looks.min().expect("there are a hundred");
    (now, clock)
}

/// What the wall clock shows minus what the monotonic one does: of several looks the one that took
/// the least time, since a thread that is interrupted between the two sees clocks apart that are
/// not.
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
