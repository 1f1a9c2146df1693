//! How an engine is laid out, and its limits.

use crate::time::tick::Tick;
use types::Fence;

/// How an engine is laid out, and its limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many shards, rounded up to a power of two, at most 256. Several per core.
    pub shards: usize,
    /// How many keys may have a cell at the same time.
    pub keys_max: u64,
    /// How many keys there will be soon: their index is laid out at once and need not grow. Zero if
    /// that is not known.
    pub keys_expected: u64,
    /// How many keys will be put back by [`Engine::restore`]. They find room, whatever `keys_max`
    /// and `bytes_max` say, until [`Engine::finish_restoring`]: after a restart keys fall into
    /// other shards than before, and the limits may be others.
    ///
    /// [`Engine::restore`]: crate::Engine::restore
    /// [`Engine::finish_restoring`]: crate::Engine::finish_restoring
    pub keys_restored: u64,
    /// How many sessions may be open at the same time.
    pub sessions_max: u32,
    /// How many may wait for one key.
    pub waiters_per_key_max: u32,
    /// How many may wait altogether.
    pub waiters_max: u32,
    /// How many may hold one key together.
    pub shared_holders_max: u32,
    /// How many bytes long keys and metadata may take altogether: at most half of it goes to keys,
    /// at most a quarter to blocks of short metadata, what those cannot use to other metadata. The
    /// first 16 bytes of a key are in its cell and do not count; `keys_max` bounds those.
    /// What waiters keep outside the engine ([`Host::waiter_bytes`]) counts as metadata does.
    ///
    /// [`Host::waiter_bytes`]: crate::Host::waiter_bytes
    pub bytes_max: u64,
    /// How long a free key is remembered after its last lease would have ended.
    pub idle_ms: u64,
    /// How many spin-loop hints (ten to thirty nanoseconds each) a caller that will not wait spends
    /// before it looks a second time at a lock that was granted within the present millisecond, and
    /// is refused if it still is. For threads that try again and again this makes a hot key several
    /// times faster. Zero, for a caller whose thread also serves the holder: refuse at once.
    pub pauses_before_refusal: u32,
    /// Every fence lies above this.
    pub floor: Fence,
    /// No fence lies above this, until the ceiling is raised.
    pub ceiling: Fence,
    /// Makes hashing repeatable, for tests and models. `None`, the default: random, so that no
    /// client can aim at one shard.
    pub hash_seed: Option<u64>,
    /// The time at the start.
    pub now: Tick,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            shards: 64,
            keys_max: 16 << 20,
            keys_expected: 0,
            keys_restored: 0,
            sessions_max: 1 << 20,
            waiters_per_key_max: 10_000,
            waiters_max: 1_000_000,
            shared_holders_max: 10_000,
            bytes_max: 4 << 30,
            idle_ms: 10_000,
            pauses_before_refusal: if cfg!(loom) { 0 } else { 256 },
            floor: Fence::ZERO,
            ceiling: Fence::MAX,
            hash_seed: None,
            now: Tick::default(),
        }
    }
}
