//! What the simulation (`cluster-sim`) sets, and the mistakes that it plants. Without the feature
//! `simulation` nothing of this is there, and `planted` is `false` at compile time.

/// A mistake in the code of this crate. The simulation must find each; those in the code above it
/// (who tells what when) are planted there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "exported to the simulation only")
)]
pub enum Mistake {
    /// A batch counts whatever its number is.
    SeqUnchecked,
    /// A batch counts whatever its reign is.
    StaleReignCounted,
    /// A node's bound of the clock makes up for the time that stamps may have been under way.
    ClockAsUpperBound,
    /// A node's bound of the clock is the best of all reigns, not of the latest.
    ClockOfAllReigns,
    /// An entry is confirmed before it is on the disk.
    AckBeforeSync,
    /// A vote is given before it is on the disk.
    VoteBeforeSync,
    /// An image of the ledger has no sessions.
    SnapshotWithoutSessions,
}

/// What the wall clock shows in a simulation, always.
#[cfg(feature = "simulation")]
pub const WALL_UNIX_MS: u64 = 1_800_000_000_000;

#[cfg(feature = "simulation")]
mod settings {
    use super::Mistake;
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, OnceLock};
    use wal::Wal;

    /// What a simulation sets, once in a process.
    #[derive(Clone, Copy, Default, Debug)]
    pub struct Settings {
        /// The mistake that is made.
        pub mistake: Option<Mistake>,
        /// Entries that are kept behind a snapshot.
        pub kept_entries: u64,
        /// A batch of fewer bytes waits until no other is under way.
        pub companion_bytes: usize,
        /// Of so many batches one is refused, as openraft does when it has not heard from a
        /// majority for a while. 0: none.
        pub refuse_every: u64,
    }

    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    static PROPOSED: AtomicU64 = AtomicU64::new(0);

    /// Whether the next batch is refused.
    pub(crate) fn refuses() -> bool {
        let every = settings().map_or(0, |settings| settings.refuse_every);
        every > 0 && (PROPOSED.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
    }

    /// All nodes of this process are simulated from here on.
    pub fn begin(settings: Settings) {
        let is_first = SETTINGS.set(settings).is_ok();
        assert!(is_first, "a process simulates once");
    }

    pub(crate) fn settings() -> Option<&'static Settings> {
        SETTINGS.get()
    }

    pub(crate) fn is_on() -> bool {
        settings().is_some()
    }

    static STARTED: Mutex<Option<Arc<Wal>>> = Mutex::new(None);

    pub(crate) fn log_started(wal: Arc<Wal>) {
        *STARTED.lock() = Some(wal);
    }

    /// The log that was started last, once. Its turns are the simulation's to make.
    pub fn take_started_log() -> Option<Arc<Wal>> {
        STARTED.lock().take()
    }

    pub(crate) fn planted(mistake: Mistake) -> bool {
        settings().is_some_and(|settings| settings.mistake == Some(mistake))
    }
}

#[cfg(feature = "simulation")]
pub use settings::{Settings, begin, take_started_log};
#[cfg(feature = "simulation")]
pub(crate) use settings::{is_on, log_started, planted, refuses, settings};

/// Whether this mistake is to be made: never, outside the simulation.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) const fn planted(_: Mistake) -> bool {
    false
}

/// Whether the next batch is refused: never by this, outside the simulation.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) const fn refuses() -> bool {
    false
}
