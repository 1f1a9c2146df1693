//! Turns to write a key: one at a time, first come, first served.
//!
//! A lock exists only while a write holds it or waits for it, so their number is that of the writes
//! under way, which has a bound. Locks are kept apart from the ledger on purpose: a key may be
//! forgotten while it is being written, its lock must not be.
//!
//! Locks are per key and not striped: behind one there may be a slow write, and a write may well
//! make another, to another key. Sharing a stripe, it would wait for itself.

use crate::limits::KEY_BYTES_MAX;
use crate::refusal::Refusal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

#[derive(Clone)]
pub(crate) struct Turns {
    table: Arc<Mutex<Table>>,
}

struct Table {
    locks: HashMap<Arc<[u8]>, (Lock, usize)>,
    /// Turns and those waiting, over all keys.
    writes: usize,
    writes_max: usize,
}

/// A place in the line for a key. Dropping it leaves the line.
pub(crate) struct Place {
    key: Arc<[u8]>,
    lock: Lock,
    turns: Turns,
}

/// The right to write a key, until dropped.
pub(crate) struct Turn {
    // Dropped in this order: the next in line is called before the lock can be forgotten.
    _held: OwnedMutexGuard<()>,
    place: Place,
}

impl Turns {
    pub(crate) fn new(writes_max: usize) -> Self {
        let table = Table {
            locks: HashMap::new(),
            writes: 0,
            writes_max,
        };
        Turns {
            table: Arc::new(Mutex::new(table)),
        }
    }

    /// Stands in line.
    pub(crate) fn enter(&self, key: &[u8]) -> Result<Place, Refusal> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Refusal::KeyTooLong {
                key_bytes: key.len(),
            });
        }
        let mut table = self.table.lock();
        let writes_max = table.writes_max;
        if table.writes >= writes_max {
            return Err(Refusal::Busy { writes_max });
        }
        table.writes += 1;
        let (key, lock) = match table.locks.entry(key.into()) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().1 += 1;
                (Arc::clone(entry.key()), Arc::clone(&entry.get().0))
            }
            Entry::Vacant(entry) => {
                let (key, lock) = (Arc::clone(entry.key()), Lock::default());
                entry.insert((Arc::clone(&lock), 1));
                (key, lock)
            }
        };
        Ok(Place {
            key,
            lock,
            turns: self.clone(),
        })
    }

    pub(crate) fn writes(&self) -> usize {
        self.table.lock().writes
    }
}

impl Place {
    /// Waits for the turn. Cancel safe: dropping it leaves the line.
    pub(crate) async fn wait(self) -> Turn {
        Turn {
            _held: Arc::clone(&self.lock).lock_owned().await,
            place: self,
        }
    }

    /// Waits for the turn, on a thread that may block.
    pub(crate) fn wait_blocking(self) -> Turn {
        Turn {
            _held: Arc::clone(&self.lock).blocking_lock_owned(),
            place: self,
        }
    }
}

impl Turn {
    pub(crate) fn key(&self) -> &Arc<[u8]> {
        &self.place.key
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.turns.table.lock();
        table.writes -= 1;
        if let Entry::Occupied(mut entry) = table.locks.entry(Arc::clone(&self.key)) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use crate::refusal::Refusal;

    #[tokio::test]
    async fn a_key_has_one_turn_at_a_time_and_no_lock_outlives_its_users() {
        let turns = Turns::new(3);
        let first = turns.enter(b"a").unwrap().wait().await;
        let other = turns.enter(b"b").unwrap().wait().await;
        let mut second = std::pin::pin!(turns.enter(b"a").unwrap().wait());
        assert!(
            polled(second.as_mut()).await.is_none(),
            "the key is being written"
        );
        assert!(matches!(
            turns.enter(b"c"),
            Err(Refusal::Busy { writes_max: 3 })
        ));
        drop(first);
        let second = second.await;
        drop((second, other));
        let table = turns.table.lock();
        assert_eq!((table.writes, table.locks.len()), (0, 0));
    }

    #[tokio::test]
    async fn whoever_stops_waiting_leaves_the_line() {
        let turns = Turns::new(2);
        let first = turns.enter(b"a").unwrap().wait().await;
        {
            let mut waiting = Box::pin(turns.enter(b"a").unwrap().wait());
            assert!(polled(waiting.as_mut()).await.is_none());
        }
        assert_eq!(turns.writes(), 1);
        {
            let mut waiting = Box::pin(turns.enter(b"a").unwrap().wait());
            let is_let_in = polled(waiting.as_mut()).await.is_some();
            assert!(
                !is_let_in,
                "it leaves the lock to the writes that still use it"
            );
        }
        drop(first);
        assert_eq!(turns.writes(), 0);
    }

    #[test]
    fn a_key_that_is_too_long_has_no_line() {
        let turns = Turns::new(1);
        assert!(matches!(
            turns.enter(&[0; 257]),
            Err(Refusal::KeyTooLong { key_bytes: 257 })
        ));
    }

    /// Polls once.
    async fn polled<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => Some(value),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
