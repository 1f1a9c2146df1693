//! Which trace a hold belongs to, so that the line of its end can say so.
//!
//! A client names its trace when it asks for the lock. What ends the hold may be the client's
//! release, the clock, another session or an operator, and none of them knows the trace. The engine
//! does not either: it would carry 64 bytes with every lock for the sake of a few lines. So the
//! thread that writes the log remembers it, from the line of the grant to that of the end. A core
//! pays nothing for that, and a server whose clients name no traces looks into two empty maps.
//!
//! The memory has a bound. It is kept as two generations: when the younger one is full it becomes
//! the older one, and what is left of the older one is forgotten. A hold whose trace is forgotten
//! ends with a line that has none; its fence leads to the grant's line, which has it.

use super::event::{About, LockEvent, What};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

/// How many holds at a time have their traces remembered. That takes some 200 bytes each.
pub(super) const TRACES_MAX: usize = 1 << 16;

/// One hold: its key and its fence.
type Hold = (Arc<[u8]>, u64);

/// The traces of holds that have not ended.
pub(super) struct Traces {
    generation_max: usize,
    younger: HashMap<Hold, Arc<str>>,
    older: HashMap<Hold, Arc<str>>,
}

impl Traces {
    /// Remembers so many at most.
    pub(super) fn new(traces_max: usize) -> Self {
        Traces {
            generation_max: traces_max / 2,
            younger: HashMap::new(),
            older: HashMap::new(),
        }
    }

    /// Takes note of what a line tells, in the order of the lines. Returns the trace for that line.
    pub(super) fn note(&mut self, about: &About) -> Option<Arc<str>> {
        let About::Lock(lock) = about else {
            return None;
        };
        match &lock.what {
            What::Grant(begun) | What::Claim(begun) => {
                if let Some(trace_id) = &begun.trace_id {
                    self.remember(lock, trace_id);
                }
                begun.trace_id.clone()
            }
            What::Release { hold_count: 0, .. } | What::Loss { .. } => self.forget(lock),
            What::Release { .. } => self.find(lock),
            What::Force { trace_id } => trace_id.clone(),
            What::Restore { .. } | What::Lapse => None,
        }
    }

    /// The first trace of a hold stays: a further count of it does not change where it began.
    fn remember(&mut self, lock: &LockEvent, trace_id: &Arc<str>) {
        if self.find(lock).is_some() {
            return;
        }
        if self.younger.len() >= self.generation_max {
            self.older = mem::take(&mut self.younger);
        }
        self.younger.insert(hold_of(lock), trace_id.clone());
    }

    fn find(&self, lock: &LockEvent) -> Option<Arc<str>> {
        if self.is_empty() {
            return None;
        }
        let hold = hold_of(lock);
        let found = self.younger.get(&hold).or_else(|| self.older.get(&hold));
        found.cloned()
    }

    fn forget(&mut self, lock: &LockEvent) -> Option<Arc<str>> {
        if self.is_empty() {
            return None;
        }
        let hold = hold_of(lock);
        let forgotten = self.younger.remove(&hold);
        forgotten.or_else(|| self.older.remove(&hold))
    }

    fn is_empty(&self) -> bool {
        self.younger.is_empty() && self.older.is_empty()
    }
}

fn hold_of(lock: &LockEvent) -> Hold {
    (lock.key.clone(), lock.fence)
}
