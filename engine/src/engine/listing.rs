//! Listing keys by prefix, a bounded number of cells at a time.

use super::Engine;
use crate::key::Key;
use crate::request::{Host, KeyState};
use crate::slab::SLOT_MAX;
use crate::tick::Tick;

/// Where a listing goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub(super) u32);

impl Cursor {
    /// The cursor with these bits, as it came over the wire. Any bits are a cursor.
    pub fn from_bits(bits: u32) -> Self {
        Cursor(bits)
    }

    /// The bits, for the wire.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// A part of a listing.
pub struct Page {
    /// Keys that are held or waited for, with their state.
    pub keys: Vec<(Box<[u8]>, KeyState)>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// How many cells one call of `list` looks at.
const SCAN_MAX: u32 = 10_000;

impl<H: Host> Engine<H> {
    /// Keys that begin with `prefix` and are held or waited for, at most `limit` of them, in no particular order. Looks at
    /// a bounded number of cells, so a page may be short or empty and still have a next one.
    pub fn list(&self, prefix: &[u8], cursor: Cursor, limit: usize, now: Tick) -> Page {
        let from = cursor.0;
        let (mut shard, mut slot) = ((from >> 24) as usize, from & SLOT_MAX);
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut next = None;
        if shard < self.shards.len() && limit > 0 {
            let rest = self.shards[shard].table.scan(slot, SCAN_MAX, |found, key| {
                let cell = self.shards[shard].table.cell(found.slot).word();
                if (cell.is_held() || cell.is_queued()) && key.bytes().starts_with(prefix) {
                    names.push(key.bytes().into());
                }
                names.len() < limit
            });
            match rest {
                Some(rest) => slot = rest,
                None => (shard, slot) = (shard + 1, 0),
            }
            next = (shard < self.shards.len()).then_some(Cursor((shard as u32) << 24 | slot));
        }
        let state = |name: Box<[u8]>| {
            let state = self.query(Key::new(&name).ok()?, now)?;
            (state.holder_count > 0 || state.queue_length > 0).then_some((name, state))
        };
        Page {
            keys: names.into_iter().filter_map(state).collect(),
            next,
        }
    }
}
