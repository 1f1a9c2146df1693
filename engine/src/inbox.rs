//! How any core asks for the home core's attention: a lock-free list through the cells themselves. A cell is on it once at
//! most, so it needs no bound. What the home core does with it is in `home.rs`.

use crate::cell::{Cell, Terms};
use crate::fault::{self, Fault};
use crate::request::Host;
use crate::shard::Shard;
use crate::slab::{NONE, SLOT_MAX};
use crate::sync::Ordering;
use crate::tick::Tick;
use crate::word::Kind;

/// In a cell's `inbox` field: the cell is in the inbox or about to be.
pub(crate) const REQUESTED: u32 = 1 << 31;

/// Beside it: the cell has a new key, and is in no wheel yet.
pub(crate) const NEWBORN: u32 = 1 << 30;

const _: () = assert!(
    SLOT_MAX & (REQUESTED | NEWBORN) == 0,
    "flags and link share a word"
);

impl<H: Host> Shard<H> {
    /// Makes sure that the wheel looks at this cell when the lease just written ends. Returns that moment.
    #[inline(always)]
    pub(crate) fn watch(&self, cell: &Cell, slot: u32, terms: &Terms) -> Tick {
        let until = match terms.kind {
            Kind::Session => self.common.sessions.deadline(terms.owner),
            _ => terms.deadline,
        };
        if cell.is_armed_after(until.over_at()) {
            self.ask_attention(cell, slot);
        }
        until
    }

    /// Asks the home core to look at a cell that it knows.
    #[cold]
    pub(crate) fn ask_attention(&self, cell: &Cell, slot: u32) {
        self.put_into_inbox(cell, slot, REQUESTED);
    }

    /// Makes a cell known to the home core, once its key is in the index.
    #[cold]
    pub(crate) fn introduce(&self, cell: &Cell, slot: u32) {
        self.put_into_inbox(cell, slot, REQUESTED | NEWBORN);
    }

    /// Puts a cell into the inbox of the home core, unless it is there already.
    fn put_into_inbox(&self, cell: &Cell, slot: u32, flags: u32) {
        if cell.inbox.fetch_or(flags, Ordering::AcqRel) & REQUESTED != 0 {
            return;
        }
        let mut link = NONE;
        let mut first = self.inbox.load(Ordering::Relaxed);
        loop {
            if fault::injected(Fault::LinkOverwritesFlags) {
                cell.inbox.store(REQUESTED | first, Ordering::Relaxed);
            } else {
                // The link is ours alone, the flags beside it are not. And what others did before they set theirs is seen
                // by the home core only if we do not come between with a plain store.
                cell.inbox.fetch_xor(link ^ first, Ordering::Relaxed);
            }
            link = first;
            // Release, paired with the swap of the home core: it finds the link written.
            match self
                .inbox
                .compare_exchange_weak(first, slot, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}
