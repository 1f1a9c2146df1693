//! What holders and waiters say about themselves, and how much of it there may be altogether.
//!
//! Metadata is counted when it comes in and uncounted when it is dropped, wherever that happens, so
//! no way out of a queue or a record can forget it. Short metadata of plain grants is not counted
//! here: they have blocks, whose number is bounded (`cell/block.rs`).

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::Arc;

/// How many bytes of metadata there are, and may be.
pub(crate) struct MetadataBudget {
    /// On a line of its own: its neighbours are read by every request.
    used_bytes: CachePadded<AtomicU64>,
    bytes_max: u64,
}

impl MetadataBudget {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(MetadataBudget {
            used_bytes: CachePadded::new(AtomicU64::new(0)),
            bytes_max,
        })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        // Relaxed here and below: a number that is compared with a bound, and that nothing else
        // depends on.
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn try_take(&self, metadata_bytes: u64) -> bool {
        let before = self.used_bytes.fetch_add(metadata_bytes, Ordering::Relaxed);
        if before + metadata_bytes <= self.bytes_max {
            return true;
        }
        self.give_back(metadata_bytes);
        false
    }

    fn give_back(&self, metadata_bytes: u64) {
        self.used_bytes.fetch_sub(metadata_bytes, Ordering::Relaxed);
    }
}

/// Metadata that has been counted. None costs nothing.
#[derive(Default)]
pub(crate) struct Metadata {
    bytes: Box<[u8]>,
    budget: Option<Arc<MetadataBudget>>,
}

impl Metadata {
    /// Keeps these bytes. `None`: there is no room for them.
    pub(crate) fn try_new(bytes: &[u8], budget: &Arc<MetadataBudget>) -> Option<Metadata> {
        if bytes.is_empty() {
            return Some(Metadata::default());
        }
        budget.try_take(bytes.len() as u64).then(|| Metadata {
            bytes: bytes.into(),
            budget: Some(budget.clone()),
        })
    }

    /// Keeps bytes that have been accepted before, bound or no bound.
    pub(crate) fn keep(bytes: &[u8], budget: &Arc<MetadataBudget>) -> Metadata {
        let metadata_bytes = bytes.len() as u64;
        budget
            .used_bytes
            .fetch_add(metadata_bytes, Ordering::Relaxed);
        Metadata {
            bytes: bytes.into(),
            budget: Some(budget.clone()),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.bytes.len() as u64);
        }
    }
}

/// Bytes that a waiter keeps outside the engine, counted as metadata is while it waits.
#[derive(Default)]
pub(crate) struct Kept {
    bytes: u64,
    budget: Option<Arc<MetadataBudget>>,
}

impl Kept {
    /// Counts so many bytes. `None`: there is no room for them.
    pub(crate) fn try_new(bytes: u64, budget: &Arc<MetadataBudget>) -> Option<Kept> {
        if bytes == 0 {
            return Some(Kept::default());
        }
        budget.try_take(bytes).then(|| Kept {
            bytes,
            budget: Some(budget.clone()),
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.bytes);
        }
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes.escape_ascii())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notes_are_counted_while_they_live_and_refused_beyond_the_bound() {
        let budget = MetadataBudget::new(10);
        let first = Metadata::try_new(b"123456", &budget).unwrap();
        assert!(Metadata::try_new(b"12345", &budget).is_none());
        assert_eq!(budget.used_bytes(), 6, "refused metadata leaves no trace");
        let second = Metadata::try_new(b"1234", &budget).unwrap();
        assert_eq!(budget.used_bytes(), 10);
        assert!(
            Metadata::try_new(b"", &budget).is_some(),
            "nothing always fits"
        );
        drop(first);
        assert_eq!(budget.used_bytes(), 4);
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }
}
