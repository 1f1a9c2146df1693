//! What guards and stores have in common: a key's turn, the decision, the fence on the disk; in
//! this order.
//!
//! The fence counts **before** the write it lets through has begun. The other way round, a crash
//! between the two would leave a write whose fence is forgotten, and an older one would be let
//! through on top of it. The price: a write that fails, or that a crash prevents, has used its
//! fence up. That is safe, and under `AtLeast` it can simply be repeated.

use crate::journal::{self, Journal, SharedLedger};
use crate::ledger::{Bounds, Ledger, Seen, Value};
use crate::refusal::{JournalError, Policy, Refusal};
use crate::turns::{Turn, Turns};
use parking_lot::Mutex;
use protocol::Fence;
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Register<V> {
    /// One mutex, held for a lookup at a time: short beside what any write behind it does.
    ledger: SharedLedger<V>,
    turns: Turns,
    journal: Option<Journal<V>>,
}

/// A write that may begin.
pub(crate) struct Admitted {
    pub(crate) turn: Turn,
    /// What had been seen of the key.
    pub(crate) before: Seen,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) bounds: Bounds,
    pub(crate) writes_max: usize,
    pub(crate) compact_bytes_min: u64,
}

impl<V: Value> Register<V> {
    pub(crate) fn in_memory(settings: Settings) -> Self {
        let ledger = Ledger::new(settings.bounds, journal::fresh_seed());
        Register {
            ledger: Arc::new(Mutex::new(ledger)),
            turns: Turns::new(settings.writes_max),
            journal: None,
        }
    }

    pub(crate) fn open(dir: &Path, settings: Settings) -> Result<Self, JournalError> {
        let (journal, ledger) = Journal::open(dir, settings.bounds, settings.compact_bytes_min)?;
        Ok(Register {
            ledger,
            turns: Turns::new(settings.writes_max),
            journal: Some(journal),
        })
    }

    /// Waits for the key's turn, compares, and records the fence with its value. No other write of
    /// the key begins until the turn is dropped. `policy` is `None` where fences are recorded and
    /// not enforced.
    ///
    /// Cancel safe: if dropped, either nothing happened or the fence was recorded.
    pub(crate) async fn admit(
        &self,
        key: &[u8],
        fence: Fence,
        value: V,
        policy: Option<Policy>,
    ) -> Result<Admitted, Refusal> {
        let turn = self.turns.enter(key)?.wait().await;
        let Some(journal) = &self.journal else {
            let before = self.decide(key, fence, &value, policy)?;
            let turn = self.apply(turn, fence, value);
            return Ok(Admitted { turn, before });
        };
        // No wait between the decision and its way to the disk: a write dropped there would keep
        // the room set aside for it.
        let slot = journal.reserve().await.map_err(Refusal::Broken)?;
        let before = self.decide(key, fence, &value, policy)?;
        let turn = slot
            .append(turn, fence, value)
            .await
            .map_err(Refusal::Broken)?;
        Ok(Admitted { turn, before })
    }

    /// The same, on a thread that may block.
    pub(crate) fn admit_blocking(
        &self,
        key: &[u8],
        fence: Fence,
        value: V,
        policy: Option<Policy>,
    ) -> Result<Admitted, Refusal> {
        let turn = self.turns.enter(key)?.wait_blocking();
        let before = self.decide(key, fence, &value, policy)?;
        let turn = match &self.journal {
            None => self.apply(turn, fence, value),
            Some(journal) => journal
                .append_blocking(turn, fence, value)
                .map_err(Refusal::Broken)?,
        };
        Ok(Admitted { turn, before })
    }

    fn decide(
        &self,
        key: &[u8],
        fence: Fence,
        value: &V,
        policy: Option<Policy>,
    ) -> Result<Seen, Refusal> {
        let mut ledger = self.ledger.lock();
        ledger.admit(key, fence, value, policy)?;
        Ok(ledger.seen(key))
    }

    fn apply(&self, turn: Turn, fence: Fence, value: V) -> Turn {
        self.ledger.lock().apply(turn.key(), fence, value);
        turn
    }

    pub(crate) fn seen(&self, key: &[u8]) -> Seen {
        self.ledger.lock().seen(key)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<(V, Fence)> {
        self.ledger.lock().get(key)
    }

    pub(crate) fn keys(&self) -> usize {
        self.ledger.lock().keys()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.ledger.lock().bytes()
    }

    pub(crate) fn writes(&self) -> usize {
        self.turns.writes()
    }
}
