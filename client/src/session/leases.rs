//! All leases of a client, by name for the server's losses, and by next renewal for the watchdog.
//!
//! One mutex guards both orders and the number of the session they belong to, so that a grant can
//! never slip in after its session was declared dead. Lock order: this mutex, then a lease's own.

use crate::clock::Moment;
use crate::error::Loss;
use crate::session::lease::{Lease, SessionLife, Terms};
use parking_lot::Mutex;
use protocol::Fence;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<Held>,
    /// Told when a renewal is due before the watchdog means to look.
    wake: Notify,
}

#[derive(Debug, Default)]
struct Held {
    /// Which of the client's sessions these leases belong to.
    epoch: u64,
    serial: u64,
    by_name: HashMap<(Arc<[u8]>, Fence), Entry>,
    due: BTreeMap<(Moment, u64), Arc<Lease>>,
    /// When the watchdog will look next. It is only woken for what is due before that: a service
    /// that takes and releases locks all day then wakes it a few times a second at most, not once
    /// per lock.
    looks_at: Option<Moment>,
}

#[derive(Debug)]
struct Entry {
    lease: Arc<Lease>,
    due: Option<Moment>,
}

impl Leases {
    /// A grant arrived on a connection of session `epoch`. Gives the lease it belongs to: a new
    /// one, or that of an earlier guard of the same grant. It is lost from the start if that
    /// session is over.
    pub(crate) fn admit(
        &self,
        terms: &Terms,
        epoch: u64,
        life: &Arc<SessionLife>,
        now: Moment,
    ) -> Arc<Lease> {
        let mut held = self.held.lock();
        held.serial += 1;
        let name = (Arc::clone(&terms.key), terms.fence);
        if held.epoch == epoch
            && let Some(entry) = held.by_name.get(&name)
            && entry.lease.join(terms)
        {
            return Arc::clone(&entry.lease);
        }
        let lease = Arc::new(Lease::new(held.serial, terms, Arc::clone(life)));
        if held.epoch != epoch {
            lease.lose(Loss::SessionEnded, now);
            return lease;
        }
        let entry = Entry {
            lease: Arc::clone(&lease),
            due: None,
        };
        if let Some(replaced) = held.by_name.insert(name, entry) {
            held.unschedule(&replaced);
        }
        lease
    }

    /// Has the watchdog renew the lease at `due`.
    pub(crate) fn schedule(&self, lease: &Arc<Lease>, due: Moment) {
        let mut held = self.held.lock();
        let name = (Arc::clone(&lease.key), lease.fence());
        let Some(entry) = held.by_name.get_mut(&name) else {
            return;
        };
        if entry.lease.serial != lease.serial {
            return;
        }
        let before = entry.due.replace(due);
        if let Some(before) = before {
            held.due.remove(&(before, lease.serial));
        }
        held.due.insert((due, lease.serial), Arc::clone(lease));
        if held.looks_at.is_none_or(|looks_at| due < looks_at) {
            self.wake.notify_one();
        }
    }

    /// Has the watchdog renew everything now: a `Lost` may have gone missing with a connection.
    pub(crate) fn schedule_all(&self, now: Moment) {
        let mut held = self.held.lock();
        let held = &mut *held;
        for entry in held.by_name.values_mut() {
            if !entry.lease.is_renewable() {
                continue;
            }
            if let Some(before) = entry.due.replace(now) {
                held.due.remove(&(before, entry.lease.serial));
            }
            held.due
                .insert((now, entry.lease.serial), Arc::clone(&entry.lease));
        }
        self.wake.notify_one();
    }

    /// Moves the leases that are due into `due`, and says when to look again: at the next one, or
    /// at `latest`.
    pub(crate) fn take_due(
        &self,
        now: Moment,
        latest: Moment,
        due: &mut Vec<Arc<Lease>>,
    ) -> Moment {
        let mut held = self.held.lock();
        let held = &mut *held;
        while let Some(first) = held.due.first_entry()
            && first.key().0 <= now
        {
            let lease = first.remove();
            let name = (Arc::clone(&lease.key), lease.fence());
            if let Some(entry) = held.by_name.get_mut(&name)
                && entry.lease.serial == lease.serial
            {
                entry.due = None;
            }
            due.push(lease);
        }
        let next = held.due.first_key_value().map(|((next, _), _)| *next);
        let looks_at = next.map_or(latest, |next| next.min(latest));
        held.looks_at = Some(looks_at);
        looks_at
    }

    /// Completes when [`Self::take_due`] should be called before the time it gave. May be dropped
    /// at any time.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The server says that a lock is lost.
    pub(crate) fn lose(&self, key: &[u8], fence: Fence, loss: Loss, now: Moment) {
        let mut held = self.held.lock();
        if let Some(entry) = held.by_name.remove(&(Arc::from(key), fence)) {
            held.unschedule(&entry);
            entry.lease.lose(loss, now);
        }
    }

    /// Session `epoch` and all before it are over, and everything they held is lost.
    pub(crate) fn lose_all(&self, epoch: u64, loss: Loss, now: Moment) {
        let mut held = self.held.lock();
        if held.epoch > epoch {
            return;
        }
        held.epoch = epoch + 1;
        held.due.clear();
        for (_, entry) in held.by_name.drain() {
            entry.lease.lose(loss, now);
        }
    }

    /// The lease is over and need not be found any more.
    pub(crate) fn forget(&self, lease: &Lease) {
        let mut held = self.held.lock();
        let name = (Arc::clone(&lease.key), lease.fence());
        if held
            .by_name
            .get(&name)
            .is_some_and(|entry| entry.lease.serial == lease.serial)
            && let Some(entry) = held.by_name.remove(&name)
        {
            held.unschedule(&entry);
        }
    }

    /// The lease goes by another fence from now on.
    pub(crate) fn downgrade(&self, lease: &Arc<Lease>, fence: Fence) {
        let mut held = self.held.lock();
        let entry = held
            .by_name
            .remove(&(Arc::clone(&lease.key), lease.fence()));
        lease.note_downgrade(fence);
        if let Some(entry) = entry {
            held.by_name.insert((Arc::clone(&lease.key), fence), entry);
        }
    }

    /// How many leases are not over.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().by_name.len()
    }

    /// All leases that are not over.
    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        let held = self.held.lock();
        held.by_name
            .values()
            .map(|entry| Arc::clone(&entry.lease))
            .collect()
    }
}

impl Held {
    fn unschedule(&mut self, entry: &Entry) {
        if let Some(due) = entry.due {
            self.due.remove(&(due, entry.lease.serial));
        }
    }
}

#[cfg(test)]
mod tests;
