//! What counts for a quota: a [`Reservation`]. It is made before the engine is asked, and ends when
//! it is dropped. That of a lock that was granted is kept in [`Holdings`] until the lock ends,
//! however it ends; that of a request in line is kept by its connection. A request in line counts
//! as held, too, since its grant may come at any moment. So a quota is exceeded only by claims,
//! which are not refused, and by operators that take a lock over; and none leaks.
//!
//! Locks that were held when a quota was set, or when the server started, count from their next
//! grant or claim on.

use super::entitlement::Entitlement;
use super::quota::{Bound, Exceeded, Meter};
use ahash::RandomState;
use engine::Tick;
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Parts of [`Holdings`], so that cores seldom wait for each other.
const PART_COUNT: usize = 16;

/// One lock or one wait, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    bound: Bound,
    meters: SmallVec<[Arc<Meter>; 2]>,
}

impl Reservation {
    /// Whether there is a quota that it counts for.
    pub(crate) fn is_counted(&self) -> bool {
        !self.meters.is_empty()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for meter in &self.meters {
            meter.gauge(self.bound).subtract();
        }
    }
}

impl Entitlement {
    /// Counts one lock on this key that is about to be asked for.
    pub(crate) fn reserve(&self, key: &[u8]) -> Result<Reservation, Exceeded> {
        self.reserve_for(Bound::Held, key)
    }

    /// Counts one request that is about to stand in line for this key.
    pub(crate) fn reserve_wait(&self, key: &[u8]) -> Result<Reservation, Exceeded> {
        self.reserve_for(Bound::Waiters, key)
    }

    fn reserve_for(&self, bound: Bound, key: &[u8]) -> Result<Reservation, Exceeded> {
        let mut reservation = Reservation {
            bound,
            meters: SmallVec::new(),
        };
        for meter in self.meters_of(key) {
            let gauge = meter.gauge(bound);
            if gauge.is_bounded() {
                let added = gauge.try_add();
                added.map_err(|most| meter.exceeded(bound, most, 0))?;
                reservation.meters.push(meter.clone());
            }
        }
        Ok(reservation)
    }

    /// Counts one lock on this key that replaces another or was held before: it is not refused.
    pub(crate) fn count_held(&self, key: &[u8]) -> Reservation {
        let meters = self.meters_of(key);
        let meters = meters.filter(|meter| meter.gauge(Bound::Held).is_bounded());
        let meters: SmallVec<[Arc<Meter>; 2]> = meters.cloned().collect();
        for meter in &meters {
            meter.gauge(Bound::Held).add();
        }
        Reservation {
            bound: Bound::Held,
            meters,
        }
    }

    /// Pays for one operation.
    pub(crate) fn charge(&self, now: Tick, must: bool) -> Result<(), Exceeded> {
        match self.meter() {
            Some(meter) => meter.charge(now, must),
            None => Ok(()),
        }
    }

    /// That of the name, and that of the longest prefix of the key that has one.
    fn meters_of<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = &'a Arc<Meter>> + use<'a> {
        let of_prefix = self.prefix_meter(key);
        self.meter().into_iter().chain(of_prefix)
    }
}

/// The reservations of locks that are held.
pub(crate) struct Holdings {
    parts: [Mutex<Part>; PART_COUNT],
    /// How many there are in all parts. Most servers have none, and look no further.
    count: AtomicUsize,
    hasher: RandomState,
}

type Part = HashMap<Box<[u8]>, SmallVec<[(u64, Reservation); 1]>>;

impl Default for Holdings {
    fn default() -> Self {
        Holdings {
            parts: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl Holdings {
    fn part(&self, key: &[u8]) -> &Mutex<Part> {
        &self.parts[self.hasher.hash_one(key) as usize % PART_COUNT]
    }

    pub(crate) fn insert(&self, key: &[u8], fence: u64, reservation: Reservation) {
        let mut part = self.part(key).lock();
        // Under the mutex, as in `remove`: the count is never less than what is in the parts.
        self.count.fetch_add(1, Ordering::Relaxed);
        part.entry(key.into())
            .or_default()
            .push((fence, reservation));
    }

    /// A lock has ended.
    #[inline]
    pub(crate) fn remove(&self, key: &[u8], fence: u64) {
        // A core that releases what it has just inserted sees its own count; one that learnt of the
        // lock from another core has synchronised with it since.
        if self.count.load(Ordering::Relaxed) > 0 {
            self.remove_some(key, fence);
        }
    }

    #[cold]
    fn remove_some(&self, key: &[u8], fence: u64) {
        let mut part = self.part(key).lock();
        let Some(holds) = part.get_mut(key) else {
            return;
        };
        if let Some(place) = holds.iter().position(|(other, _)| *other == fence) {
            holds.swap_remove(place);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        if holds.is_empty() {
            part.remove(key);
        }
    }

    /// Whether a lock that is held counts for every quota that bounds this sender at its key.
    pub(crate) fn counts_for(&self, key: &[u8], fence: u64, sender: &Entitlement) -> bool {
        let part = self.part(key).lock();
        let holds = part.get(key).map(|holds| &holds[..]).unwrap_or_default();
        let counted = holds.iter().find(|(other, _)| *other == fence);
        let counted = counted.map(|(_, reservation)| &reservation.meters[..]);
        let counted = counted.unwrap_or_default();
        let mut bounding =
            (sender.meters_of(key)).filter(|meter| meter.gauge(Bound::Held).is_bounded());
        bounding.all(|meter| counted.iter().any(|other| Arc::ptr_eq(other, meter)))
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
