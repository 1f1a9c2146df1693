//! The ledger: a pure function of the committed log, equal on every node. It applies the rule of
//! the log to entries and the rules of replay of docs/wal.md to records, for exclusive locks.

use crate::raft::{Batch, Entry, Payload};
use crate::record::{Lease, Record};
use crate::{Fault, Fence, Index, KEYS, Rules, Time};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ledger {
    /// The index of the latest marker.
    pub reign: Index,
    /// The next batch of that reign.
    pub seq: u8,
    pub stamp: Time,
    pub ceiling: Fence,
    /// Sessions are opened before the model begins, and are there unless a snapshot forgot them.
    pub has_lost_sessions: bool,
    pub locks: [Option<Lease>; KEYS],
    /// Per key: grants up to this fence are over, also if they are heard of later.
    pub over: [Fence; KEYS],
}

impl Ledger {
    /// Applies the entry at `index`. Whether it counts.
    pub fn apply(&mut self, index: Index, entry: &Entry, rules: Rules) -> bool {
        match &entry.payload {
            Payload::Marker => {
                self.reign = index;
                self.seq = 0;
            }
            Payload::Batch(batch) if self.counts(batch, rules) => {
                self.seq = batch.seq + 1;
                self.stamp = batch.stamp;
                if let Some(record) = batch.record {
                    self.replay(record, rules);
                }
            }
            Payload::Batch(_) => return false,
        }
        true
    }

    /// The rule of the log.
    fn counts(&self, batch: &Batch, rules: Rules) -> bool {
        (batch.reign == self.reign || rules.has(Fault::StaleReignCounted))
            && (batch.seq == self.seq || rules.has(Fault::SeqUnchecked))
            && batch.stamp >= self.stamp
    }

    /// The rules of replay: by fences, whatever the order.
    fn replay(&mut self, record: Record, rules: Rules) {
        let in_order = rules.has(Fault::ReplayTrustsOrder);
        match record {
            Record::Ceiling(fence) => self.ceiling = self.ceiling.max(fence),
            // Of one grant the later end counts: a core that stood still may write down an earlier
            // one behind it.
            Record::Granted(key, lease) | Record::Renewed(key, lease)
                if self.locks[key].is_some_and(|held| held.fence == lease.fence) =>
            {
                let held = self.locks[key].filter(|_| !rules.has(Fault::EarlierEndCounts));
                self.locks[key] = held.max(Some(lease));
            }
            Record::Granted(key, lease) => {
                let is_over = lease.fence <= self.over[key];
                let is_followed = self.locks[key].is_some_and(|held| held.fence > lease.fence);
                if in_order || !is_over && !is_followed {
                    self.locks[key] = Some(lease);
                }
            }
            Record::Renewed(..) => {}
            Record::Released(key, fence) => {
                self.over[key] = self.over[key].max(fence);
                if in_order || self.locks[key].is_some_and(|held| held.fence == fence) {
                    self.locks[key] = None;
                }
            }
        }
    }

    /// The holder of a key. A lease whose session is not open is gone.
    pub fn holder(&self, key: usize) -> Option<Lease> {
        self.locks[key].filter(|_| !self.has_lost_sessions)
    }

    pub fn fold(log: &[Entry], rules: Rules) -> Ledger {
        let mut ledger = Ledger::default();
        for (index, entry) in (1..).zip(log) {
            ledger.apply(index, entry, rules);
        }
        ledger
    }

    /// The records that count, each with its reign.
    pub fn history(log: &[Entry], rules: Rules) -> Vec<(Index, Record)> {
        let mut ledger = Ledger::default();
        let mut records = Vec::new();
        for (index, entry) in (1..).zip(log) {
            if ledger.apply(index, entry, rules)
                && let Payload::Batch(batch) = &entry.payload
            {
                records.extend(batch.record.map(|record| (ledger.reign, record)));
            }
        }
        records
    }
}
