//! Looking over all cells for the hold that has lasted longest, some cells at a time: for whoever watches the server.
//!
//! A survey takes no lock for a plain hold, and the room mutex for a moment for each that is in a record. It tells the
//! truth about holds that lasted from the beginning of the survey to its end: those it cannot miss.

use super::{Cursor, Engine};
use crate::fence::Fence;
use crate::request::Host;
use crate::seat::CellRef;
use crate::slab::SLOT_MAX;
use crate::tick::Tick;

/// One grant, found again as long as it lasts: a cell never sees the same fence twice, whatever keys it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    cell: CellRef,
    fence: Fence,
}

/// What a part of the table looked like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survey {
    /// The oldest hold in it, and for how many milliseconds it has been held.
    pub oldest: Option<(Hold, u64)>,
    /// Where to go on; `None` at the end of the table.
    pub next: Option<Cursor>,
}

impl<H: Host> Engine<H> {
    /// Looks at up to `cells_max` cells from `from` on. Times are exact up to 24 days.
    pub fn survey(&self, from: Cursor, mut cells_max: u32, now: Tick) -> Survey {
        let (mut shard, mut slot) = ((from.0 >> 24) as usize, (from.0 & SLOT_MAX).max(1));
        let mut oldest: Option<(Hold, u64)> = None;
        while shard < self.shards.len() {
            let last = self.shards[shard].table.last_slot();
            while slot <= last {
                if cells_max == 0 {
                    let next = Some(Cursor((shard as u32) << 24 | slot));
                    return Survey { oldest, next };
                }
                cells_max -= 1;
                if let Some((fence, age_ms)) = self.shards[shard].oldest_hold(slot, now)
                    && oldest.is_none_or(|(_, most_ms)| age_ms > most_ms)
                {
                    let cell = CellRef::new(shard, slot);
                    oldest = Some((Hold { cell, fence }, age_ms));
                }
                slot += 1;
            }
            (shard, slot) = (shard + 1, 1);
        }
        Survey { oldest, next: None }
    }

    /// For how many milliseconds this hold has lasted; `None` if it is over.
    pub fn held_ms(&self, hold: Hold, now: Tick) -> Option<u64> {
        let shard = self.shards.get(hold.cell.shard())?;
        shard.held_under_ms(hold.cell.slot(), hold.fence, now)
    }
}
