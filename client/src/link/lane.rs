//! A lane: the queues in front of one connection.
//!
//! Any thread may push, with or without a runtime: a push takes a mutex for a few instructions and
//! wakes the connection's task. Only that task takes. Requests leave each queue in the order in
//! which they came.
//!
//! What bounds the queues: callers take a place from a semaphore before they push,
//! [`QUEUED_CALLS_MAX`] of each kind. Requests about locks that exist need no place: a granted lock
//! has at most one release and one renewal by the watchdog under way, plus what its owner awaits,
//! and they are sent before any request that could bring new grants. A dropped guard therefore
//! always finds room.

use crate::error::{ConnectError, Error};
use crate::limits::{BATCH_CALLS_MAX, QUEUED_CALLS_MAX};
use crate::link::call::{Call, Class};
use parking_lot::Mutex;
use protocol::RequestId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Lane {
    queues: Mutex<Queues>,
    wake: Notify,
    /// A hint for choosing lanes; the truth is in `queues`.
    is_open: AtomicBool,
    prompt_places: Arc<Semaphore>,
    waiting_places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Queues {
    status: Status,
    urgent: VecDeque<Call>,
    prompt: VecDeque<Call>,
    waiting: VecDeque<Call>,
    /// Sent before, on the broken connection of another lane.
    adopted: Vec<Call>,
    /// Acquires whose callers went away. Bounded by the acquires under way.
    cancelled: Vec<RequestId>,
    /// The last thing to be said.
    goodbye: Option<Call>,
    is_leaving: bool,
}

/// Whether there is a connection.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    Open,
    Down {
        since: Instant,
        /// What the last attempt to connect ran into.
        why: Option<ConnectError>,
    },
    /// For good.
    Closed,
}

/// How many more requests may go out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Urgent ones.
    pub(crate) urgent: usize,
    /// Prompt ones, which count against the urgent ones too.
    pub(crate) prompt: usize,
    /// Requests that wait at the server.
    pub(crate) waiting: usize,
}

/// What the connection's task takes out in one go. Kept between takes for its buffers.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) adopted: Vec<Call>,
    pub(crate) calls: Vec<Call>,
    pub(crate) cancelled: Vec<RequestId>,
    pub(crate) is_leaving: bool,
}

impl Lane {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            queues: Mutex::new(Queues {
                status: Status::Down {
                    since: now,
                    why: None,
                },
                urgent: VecDeque::new(),
                prompt: VecDeque::new(),
                waiting: VecDeque::new(),
                adopted: Vec::new(),
                cancelled: Vec::new(),
                goodbye: None,
                is_leaving: false,
            }),
            wake: Notify::new(),
            is_open: AtomicBool::new(false),
            prompt_places: Arc::new(Semaphore::new(QUEUED_CALLS_MAX)),
            waiting_places: Arc::new(Semaphore::new(QUEUED_CALLS_MAX)),
        }
    }

    // ---- for callers

    /// Whether there is a connection, by a look that does not wait.
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed: it only chooses a queue; what is pushed is published by the queue's mutex.
        self.is_open.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> Status {
        self.queues.lock().status.clone()
    }

    /// Waits for a place in the queue of `class`. May be dropped at any time.
    pub(crate) async fn place(&self, class: Class) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let places = match class {
            Class::Urgent => return Ok(None),
            Class::Prompt => &self.prompt_places,
            Class::Waiting => &self.waiting_places,
        };
        match Arc::clone(places).acquire_owned().await {
            Ok(place) => Ok(Some(place)),
            Err(_closed) => Err(Error::Closed),
        }
    }

    /// Queues a request. It fails at once if the lane is closed.
    pub(crate) fn push(&self, call: Call) {
        let mut queues = self.queues.lock();
        if matches!(queues.status, Status::Closed) {
            // Its end may run a caller's waker, which may push: not under the mutex.
            drop(queues);
            return call.fail(Error::Closed);
        }
        match call.class {
            Class::Urgent => queues.urgent.push_back(call),
            Class::Prompt => queues.prompt.push_back(call),
            Class::Waiting => queues.waiting.push_back(call),
        }
        drop(queues);
        self.wake.notify_one();
    }

    /// The caller of this acquire has gone away.
    pub(crate) fn cancel(&self, acquire_id: RequestId) {
        let mut queues = self.queues.lock();
        // Without a connection nothing waits at the server, and what was never sent is dropped when
        // its turn comes.
        if matches!(queues.status, Status::Open) {
            queues.cancelled.push(acquire_id);
            drop(queues);
            self.wake.notify_one();
        }
    }

    /// Takes over requests that were sent on a connection that broke.
    pub(crate) fn adopt(&self, calls: Vec<Call>) {
        let mut queues = self.queues.lock();
        if matches!(queues.status, Status::Closed) {
            drop(queues);
            calls.into_iter().for_each(|call| call.fail(Error::Closed));
            return;
        }
        queues.adopted.extend(calls);
        drop(queues);
        self.wake.notify_one();
    }

    /// Has the connection closed, after this last word if there is one.
    pub(crate) fn leave(&self, goodbye: Option<Call>) {
        let mut queues = self.queues.lock();
        if matches!(queues.status, Status::Closed) {
            drop(queues);
            if let Some(call) = goodbye {
                call.fail(Error::Closed);
            }
            return;
        }
        queues.is_leaving = true;
        queues.goodbye = goodbye;
        drop(queues);
        self.wake.notify_one();
    }

    // ---- for the connection's task

    /// Completes when something may have been pushed. May be dropped at any time.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn set_open(&self) {
        self.queues.lock().status = Status::Open;
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// There is no connection (any more). Keeps the beginning of an outage that goes on.
    pub(crate) fn set_down(&self, why: Option<ConnectError>, now: Instant) {
        self.is_open.store(false, Ordering::Relaxed);
        let mut queues = self.queues.lock();
        queues.cancelled.clear();
        queues.status = match &queues.status {
            Status::Closed => Status::Closed,
            Status::Open => Status::Down { since: now, why },
            Status::Down { since, why: before } => Status::Down {
                since: *since,
                why: why.or_else(|| before.clone()),
            },
        };
    }

    /// Whether the last word has been put here and not been taken.
    pub(crate) fn has_goodbye(&self) -> bool {
        self.queues.lock().goodbye.is_some()
    }

    /// Takes what may be sent. Nothing is dropped here, so no waker runs under the mutex.
    pub(crate) fn take(&self, room: Room, batch: &mut Batch) {
        let mut queues = self.queues.lock();
        let queues = &mut *queues;
        let urgent = room.urgent.min(BATCH_CALLS_MAX);
        let taken = move_front(&mut queues.urgent, urgent, &mut batch.calls);
        let prompt = room.prompt.min(urgent - taken);
        move_front(&mut queues.prompt, prompt, &mut batch.calls);
        let waiting = room.waiting.min(BATCH_CALLS_MAX);
        move_front(&mut queues.waiting, waiting, &mut batch.calls);
        batch.adopted.append(&mut queues.adopted);
        batch.cancelled.append(&mut queues.cancelled);
        batch.calls.extend(queues.goodbye.take());
        batch.is_leaving = queues.is_leaving;
    }

    /// Takes everything, sent or not, in order: for another lane to carry on with, or to fail.
    pub(crate) fn take_all(&self) -> Vec<Call> {
        let mut queues = self.queues.lock();
        let queues = &mut *queues;
        queues.cancelled.clear();
        let mut calls = std::mem::take(&mut queues.adopted);
        calls.extend(queues.urgent.drain(..));
        calls.extend(queues.prompt.drain(..));
        calls.extend(queues.waiting.drain(..));
        calls.extend(queues.goodbye.take());
        calls
    }

    /// Closes the lane for good and fails all requests in it.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        self.queues.lock().status = Status::Closed;
        self.prompt_places.close();
        self.waiting_places.close();
        for call in self.take_all() {
            call.fail(Error::Closed);
        }
    }
}

/// Moves the first `count_max` calls, or all if there are fewer, and says how many they were.
fn move_front(from: &mut VecDeque<Call>, count_max: usize, to: &mut Vec<Call>) -> usize {
    let count = from.len().min(count_max);
    to.extend(from.drain(..count));
    count
}

#[cfg(test)]
mod tests;
