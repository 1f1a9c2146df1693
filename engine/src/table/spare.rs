//! The next index of a table, laid out before it is needed.
//!
//! No thread waits here: while the prefaulting thread is stopped in the middle of putting one in,
//! an inserter that needs an index lays out its own.

use super::index::Index;
use crate::sync::{AtomicU32, Mutex, Ordering};

pub(super) struct Spare {
    index: Mutex<Option<Index>>,
    /// Not zero while there is one, so that inserters need not take the mutex to know.
    is_there: AtomicU32,
}

impl Default for Spare {
    fn default() -> Self {
        Spare {
            index: Mutex::new(None),
            is_there: AtomicU32::new(0),
        }
    }
}

impl Spare {
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed) != 0
    }

    /// Keeps an index, unless an inserter is just looking.
    pub(super) fn put(&self, index: Index) {
        if let Some(mut place) = self.index.try_lock() {
            *place = Some(index);
            self.is_there.store(1, Ordering::Relaxed);
        }
    }

    /// Takes the index out, if there is one.
    pub(super) fn take(&self) -> Option<Index> {
        if !self.is_there() {
            return None;
        }
        let mut place = self.index.try_lock()?;
        self.is_there.store(0, Ordering::Relaxed);
        place.take()
    }
}
