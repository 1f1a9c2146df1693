//! What holders and waiters say about themselves, and how much of it there may be altogether.
//!
//! A note is counted when it comes in and uncounted when it is dropped, wherever that happens, so
//! no way out of a queue or a record can forget it. Short notes of plain grants are not counted
//! here: they have blocks, whose number is bounded (`noted.rs`).

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::Arc;

/// How many bytes of notes there are, and may be.
pub(crate) struct NoteBudget {
    /// On a line of its own: its neighbours are read by every request.
    used_bytes: CachePadded<AtomicU64>,
    bytes_max: u64,
}

impl NoteBudget {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(NoteBudget {
            used_bytes: CachePadded::new(AtomicU64::new(0)),
            bytes_max,
        })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        // Relaxed here and below: a number that is compared with a bound, and that nothing else
        // depends on.
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn try_take(&self, note_bytes: u64) -> bool {
        let before = self.used_bytes.fetch_add(note_bytes, Ordering::Relaxed);
        if before + note_bytes <= self.bytes_max {
            return true;
        }
        self.give_back(note_bytes);
        false
    }

    fn give_back(&self, note_bytes: u64) {
        self.used_bytes.fetch_sub(note_bytes, Ordering::Relaxed);
    }
}

/// A note that has been counted. An empty one costs nothing.
#[derive(Default)]
pub(crate) struct Note {
    bytes: Box<[u8]>,
    budget: Option<Arc<NoteBudget>>,
}

impl Note {
    /// Keeps these bytes. `None`: there is no room for them.
    pub(crate) fn try_new(bytes: &[u8], budget: &Arc<NoteBudget>) -> Option<Note> {
        if bytes.is_empty() {
            return Some(Note::default());
        }
        budget.try_take(bytes.len() as u64).then(|| Note {
            bytes: bytes.into(),
            budget: Some(budget.clone()),
        })
    }

    /// Keeps bytes that have been accepted before, bound or no bound.
    pub(crate) fn keep(bytes: &[u8], budget: &Arc<NoteBudget>) -> Note {
        let note_bytes = bytes.len() as u64;
        budget.used_bytes.fetch_add(note_bytes, Ordering::Relaxed);
        Note {
            bytes: bytes.into(),
            budget: Some(budget.clone()),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.bytes.len() as u64);
        }
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes.escape_ascii())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notes_are_counted_while_they_live_and_refused_beyond_the_bound() {
        let budget = NoteBudget::new(10);
        let first = Note::try_new(b"123456", &budget).unwrap();
        assert!(Note::try_new(b"12345", &budget).is_none());
        assert_eq!(budget.used_bytes(), 6, "a refused note leaves no trace");
        let second = Note::try_new(b"1234", &budget).unwrap();
        assert_eq!(budget.used_bytes(), 10);
        assert!(Note::try_new(b"", &budget).is_some(), "nothing always fits");
        drop(first);
        assert_eq!(budget.used_bytes(), 4);
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }
}
