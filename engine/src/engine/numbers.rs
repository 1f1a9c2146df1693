//! What an engine says of itself: how much is in it, and how late its leases ended.

use super::Engine;
use crate::api::Host;
use crate::shard::LAG_BUCKETS;
use crate::sync::Ordering;
use types::HistogramCounts;

impl<H: Host> Engine<H> {
    /// How many keys have a cell in one shard: held, waited for, or remembered.
    pub fn keys_in_shard(&self, shard: usize) -> u32 {
        self.shards[shard].table.live()
    }

    /// How many keys have a cell.
    pub fn keys(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| u64::from(shard.table.live()))
            .sum()
    }

    /// What long keys and metadata take, as `bytes_max` counts them.
    pub fn bytes(&self) -> u64 {
        let key_bytes: u64 = self
            .shards
            .iter()
            .map(|shard| shard.table.block_bytes())
            .sum();
        key_bytes + self.common.metadata.used_bytes()
    }

    /// How many wait.
    pub fn waiters(&self) -> u32 {
        self.common.waiters.load(Ordering::Relaxed)
    }

    /// How many sessions have a place: open, or ended and not forgotten.
    pub fn sessions(&self) -> u32 {
        self.common.sessions.live()
    }

    /// How many leases the wheel has expired on time, under 2 ms late, under 4, under 8 and so on.
    pub fn expiry_lag(&self) -> HistogramCounts<LAG_BUCKETS> {
        let mut total = HistogramCounts::default();
        for shard in &self.shards {
            total.add(&shard.lag.counts());
        }
        total
    }
}
