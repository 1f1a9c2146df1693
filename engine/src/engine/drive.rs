//! What the outside drives an engine with: the clock, and the ceiling of its fences.

use super::Engine;
use crate::api::Host;
use crate::api::Progress;
use crate::table::Table;
use crate::time::tick::Tick;
use types::Fence;
use types::Key;

impl<H: Host> Engine<H> {
    /// How many shards there are. Each has a home: the one thread that calls
    /// [`Engine::advance_shard`] for it.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Expires, times out and evicts what is due in one shard, at most `budget` steps of it.
    pub fn advance_shard(&self, shard: usize, now: Tick, budget: &mut u32) -> Progress {
        self.shards[shard].advance(now, budget)
    }

    /// The part of [`Engine::advance_shard`] that clients wait for: waits whose time is up, and
    /// leases that stand in front of a waiter. Cheap when there is nothing to do. `true`: more may
    /// be due.
    pub fn advance_waiters(&self, shard: usize, now: Tick, budget: &mut u32) -> bool {
        self.shards[shard].advance_room(now, budget)
    }

    /// The home of a shard has nothing to do and is about to sleep until `until`, which lies no
    /// later than the `next_due` it was told. From here on [`Host::wake`] is called if something
    /// comes that is due before. `false`: it has come already, and the home has to look again. It
    /// wakes by advancing the shard.
    pub fn rest_shard(&self, shard: usize, until: Tick) -> bool {
        self.shards[shard].rest(until)
    }

    /// The same for sessions, which live where shard 0 does.
    pub fn rest_sessions(&self, until: Tick) -> bool {
        self.common.sessions.rest(until)
    }

    /// Ends sessions whose time is up and tells the host, at most `budget` steps of it.
    pub fn advance_sessions(&self, now: Tick, budget: &mut u32) -> Progress {
        let mut ended = Vec::new();
        let more = self.common.sessions.advance(now, budget, &mut ended);
        for session in ended {
            self.common.host.session_ended(session);
        }
        Progress {
            more,
            next_due: self.common.sessions.next_due(),
        }
    }

    /// All of the above for all shards, for a caller with one thread for it: at most `budget` steps
    /// for each.
    pub fn advance(&self, now: Tick, budget: u32) -> Progress {
        let mut all = self.advance_sessions(now, &mut budget.clone());
        for shard in &self.shards {
            let one = shard.advance(now, &mut budget.clone());
            all.more |= one.more;
            all.next_due = [all.next_due, one.next_due].into_iter().flatten().min();
        }
        all
    }

    /// Whether [`Engine::prefault`] has something to do. Cheap.
    pub fn wants_prefault(&self) -> bool {
        self.memory.wants_prefault()
    }

    /// Does a step towards having memory ready for the keys that come next, so that no inserter
    /// waits for it; `false` when there is enough. It waits for the kernel as long as that takes:
    /// call it from a thread that no client waits for, or not at all.
    pub fn prefault(&self) -> bool {
        let mut tables = self.shards.iter().map(|shard| &shard.table);
        self.memory.prefault(|| tables.any(Table::lay_out_spare))
    }

    /// Allows fences up to `ceiling` in one shard. It never falls.
    pub fn raise_ceiling(&self, shard: usize, ceiling: Fence, now: Tick) {
        self.shards[shard].raise_ceiling(ceiling, now);
    }

    /// The highest fence that may be issued in one shard.
    pub fn ceiling(&self, shard: usize) -> Fence {
        self.shards[shard].bounds.ceiling()
    }

    /// How many fences one shard can still issue for the key that has used most of them, to within
    /// a thousand.
    pub fn headroom(&self, shard: usize) -> u64 {
        self.shards[shard].bounds.headroom()
    }

    /// Which shard a key belongs to.
    pub fn shard_of(&self, key: Key<'_>) -> usize {
        self.locate(key).0
    }
}
