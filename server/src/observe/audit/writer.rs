//! The thread that writes the audit log.

use super::event::{FirstLine, Restoration, Start};
use super::file::{LogFile, Rotation, open};
use super::sink::Sink;
use super::traces::{TRACES_MAX, Traces};
use super::{Audit, EVENTS_MAX, Event, line};
use crate::observe::history::files::Tail;
use crate::system::clock::Clock;
use crate::system::panics::Watch;
use crate::system::standby::Standby;
use engine::Tick;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How long the thread sleeps if the queue is empty. It polls, because waking it would cost a core
/// a system call per event. The queue holds far more than comes in meanwhile.
const REST: Duration = Duration::from_millis(20);

/// How long it sleeps after a round without events. Short enough for the queue to hold the events
/// of a million locks a second.
const IDLE_REST: Duration = Duration::from_millis(50);

/// How many bytes are written at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// How long the thread sleeps if the file cannot be written.
const FAILURE_REST: Duration = Duration::from_secs(1);

/// The thread that writes. Dropping it writes what is left and ends it.
pub(crate) struct Writer {
    path: PathBuf,
    audit: Arc<Audit>,
    /// The next file, which `reopen` has opened.
    next: Arc<Mutex<Option<File>>>,
    stage: Stage,
}

enum Stage {
    Prepared {
        standby: Standby,
        file: LogFile,
        tail: Tail,
    },
    Running(JoinHandle<()>),
    Ended,
}

impl Writer {
    /// Opens the file for appending and starts the thread. Nothing is written yet.
    pub(crate) fn prepare(path: &Path, clock: Clock, rotation: Rotation) -> io::Result<Writer> {
        let next = Arc::default();
        let (file, tail) = LogFile::open(path, rotation, Arc::clone(&next))?;
        let standby = Standby::spawn("audit".to_owned())?;
        Ok(Writer {
            path: path.to_owned(),
            audit: Arc::new(Audit::new(clock, EVENTS_MAX)),
            next,
            stage: Stage::Prepared {
                standby,
                file,
                tail,
            },
        })
    }

    /// Begins to write, with the start and what it put back. The thread holds `watch` while it
    /// runs.
    pub(crate) fn begin(&mut self, watch: Watch, start: Start, restoration: Restoration) {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Prepared {
                standby,
                file,
                tail,
            } => {
                let audit = self.audit.clone();
                let first = FirstLine {
                    start,
                    counts: restoration.counts,
                    tail,
                };
                audit.restored(restoration.events);
                let thread = standby.begin(move || {
                    let _watch = watch;
                    write_all(&audit, file, first);
                });
                self.stage = Stage::Running(thread);
            }
            other => self.stage = other,
        }
    }

    /// Opens the path again and has the thread go on there: a program that rotates logs may have
    /// moved the old file away. Events from before may still go to the old one. If the path cannot
    /// be opened, nothing changes.
    pub(crate) fn reopen(&self) -> io::Result<&Path> {
        *self.next.lock() = Some(open(&self.path)?);
        if let Stage::Running(thread) = &self.stage {
            thread.thread().unpark();
        }
        Ok(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn audit(&self) -> Arc<Audit> {
        self.audit.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Release, paired with the Acquire in `write_all`, which then finds every earlier event.
        self.audit.stopping.store(true, Ordering::Release);
        if let Stage::Running(thread) = std::mem::replace(&mut self.stage, Stage::Ended) {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the audit log ended with a panic");
            }
        }
    }
}

/// Writes until the server stops and the queue is empty.
pub(super) fn write_all(audit: &Audit, sink: impl Sink, first: FirstLine) {
    let mut pen = Pen {
        audit,
        sink,
        chunk: Vec::with_capacity(CHUNK_BYTES + 1024),
        chunk_events: 0,
        seq: first.tail.seq,
        dropped_told: 0,
        dropped_written: 0,
        is_failing: false,
        is_torn: first.tail.is_torn,
        traces: Traces::new(TRACES_MAX),
    };
    pen.write_line(|out, seq| line::append_start(out, seq, &first));
    loop {
        // Read before the queue is emptied: events from before the flag was raised are in it.
        let is_last = audit.stopping.load(Ordering::Acquire);
        // Everything before has been written, in whole lines.
        pen.turn_over();
        let reference = (SystemTime::now(), audit.clock.now());
        let mut room_made = 0;
        while room_made < EVENTS_MAX
            && let Some(event) = audit.queue.pop()
        {
            room_made += 1;
            // What was put back before this event was left.
            pen.write_restored(reference);
            pen.write_event(&event, reference);
        }
        pen.write_restored(reference);
        pen.tell_dropped();
        if is_last && audit.queue.is_empty() {
            pen.write_line(line::append_stop);
            pen.finish();
            return;
        }
        pen.flush();
        // After a full round the queue is likely to have more.
        if room_made < EVENTS_MAX && !is_last {
            std::thread::park_timeout(match room_made {
                _ if pen.is_failing => FAILURE_REST,
                0 => IDLE_REST,
                _ => REST,
            });
        }
    }
}

struct Pen<'a, S> {
    audit: &'a Audit,
    sink: S,
    /// Whole lines that are not written yet, and how many events are in them.
    chunk: Vec<u8>,
    chunk_events: u64,
    seq: u64,
    /// How many dropped events the lines report so far, and how many of those lines are written.
    dropped_told: u64,
    dropped_written: u64,
    is_failing: bool,
    /// The file may end with half a line.
    is_torn: bool,
    traces: Traces,
}

impl<S: Sink> Pen<'_, S> {
    fn write_event(&mut self, event: &Event, reference: (SystemTime, Tick)) {
        let time = time_of(event.at, reference);
        self.chunk_events += 1;
        let trace_id = self.traces.note(&event.about);
        let trace_id = trace_id.as_deref();
        self.write_line(|out, seq| line::append_event(out, seq, time, event, trace_id));
    }

    fn write_restored(&mut self, reference: (SystemTime, Tick)) {
        for event in self.audit.take_restored() {
            self.write_event(&event, reference);
        }
    }

    /// Everything before is written, in whole lines, or given up: the file may change.
    fn turn_over(&mut self) {
        self.sink.turn_over(self.seq);
    }

    fn write_line(&mut self, append: impl FnOnce(&mut Vec<u8>, u64)) {
        self.seq += 1;
        append(&mut self.chunk, self.seq);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush();
        }
    }

    /// Reports how many events were dropped since the last such line.
    fn tell_dropped(&mut self) {
        let dropped = self.audit.dropped();
        if dropped > self.dropped_told {
            let since = dropped - self.dropped_told;
            self.dropped_told = dropped;
            self.write_line(|out, seq| line::append_dropped(out, seq, since));
        }
    }

    /// Writes the chunk. If that fails, its events are counted as dropped. Locks are served on.
    fn flush(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let result = if self.is_torn {
            self.sink.write_all(b"\n")
        } else {
            Ok(())
        };
        let result = result.and_then(|()| self.sink.write_all(&self.chunk));
        match result {
            Ok(()) => {
                if self.is_failing {
                    tracing::info!("the audit log is written again");
                }
                self.is_failing = false;
                self.is_torn = false;
                self.dropped_written = self.dropped_told;
                self.audit
                    .written
                    .fetch_add(self.chunk_events, Ordering::Relaxed);
            }
            Err(error) => {
                if !self.is_failing {
                    tracing::error!("the audit log cannot be written, events are dropped: {error}");
                }
                self.is_failing = true;
                self.is_torn = true;
                // A line that reported dropped events may be lost too, so they are reported again.
                self.dropped_told = self.dropped_written;
                self.audit
                    .dropped
                    .fetch_add(self.chunk_events, Ordering::Relaxed);
            }
        }
        self.chunk.clear();
        self.chunk_events = 0;
        self.turn_over();
    }

    fn finish(&mut self) {
        self.flush();
        if let Err(error) = self.sink.sync() {
            tracing::error!("the audit log may not have reached the disk: {error}");
        }
    }
}

/// The wall-clock time of a tick, computed from a moment at which both clocks were read.
fn time_of(at: Tick, (time, tick): (SystemTime, Tick)) -> SystemTime {
    let ahead = Duration::from_millis(tick.ms_until(at));
    let behind = Duration::from_millis(at.ms_until(tick));
    time + ahead - behind
}
