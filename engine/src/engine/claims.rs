//! Locks that outlived a restart: putting them back, and claiming them. See `shard/claim.rs`.

use super::{Engine, invalid_span};
use crate::api::{Claimed, OldHold};
use crate::api::{Host, Invalid, Limit, NOTE_BYTES_MAX, NotHeld};
use crate::session::seat::{CellRef, Seat, Taken};
use crate::time::tick::Tick;

impl<H: Host> Engine<H> {
    /// Puts back a lock that the log knows. Only before anything else is asked of this engine; two
    /// exclusive holds of one key are a mistake of the caller's, and the second is refused with
    /// `false`. There is room for as many keys as [`Settings::keys_restored`] says; `Err` beyond
    /// that.
    ///
    /// [`Settings::keys_restored`]: crate::Settings::keys_restored
    pub fn restore(&self, seat: &mut Seat, old: &OldHold<'_>, now: Tick) -> Result<bool, Limit> {
        let (number, target) = self.target(old.key, None);
        let answer = self
            .shard(number)
            .restore(target, old, seat.session(), now)?;
        if answer.outcome {
            // Nothing to sweep: what was taken so far is held.
            let cell = CellRef::new(number, answer.slot);
            seat.held.push(Taken::new(cell, old.fence));
        }
        Ok(answer.outcome)
    }

    /// All that is to be put back has been. From here on limits are what the settings say.
    pub fn finish_restoring(&self) {
        for number in 0..self.shard_count() {
            self.shard(number).table.close_reserve();
        }
    }

    /// Claims a lock that the caller held before the restart and that was not written down. It can
    /// be repeated without harm.
    pub fn claim(&self, seat: &mut Seat, old: &OldHold<'_>, now: Tick) -> Claimed {
        if !self.is_open(seat.session(), now) {
            return Claimed::NotHeld(NotHeld::SessionEnded);
        }
        if let Some(invalid) = invalid(old) {
            return Claimed::Invalid(invalid);
        }
        let (number, target) = self.target(old.key, None);
        let shard = self.shard(number);
        let answer = shard.claim(target, old, seat.session(), now);
        if let Claimed::Granted(_) = answer.outcome {
            let cell = CellRef::new(number, answer.slot);
            self.remember(seat, Taken::new(cell, old.fence));
            // As with an acquire: the seat may have been vacated already.
            if !self.is_open(seat.session(), now) {
                shard.vacate(answer.slot, seat.session(), now);
                return Claimed::NotHeld(NotHeld::SessionEnded);
            }
        }
        answer.outcome
    }
}

/// What is wrong with a claim, if anything is.
fn invalid(old: &OldHold<'_>) -> Option<Invalid> {
    if old.metadata.len() > NOTE_BYTES_MAX {
        let metadata_bytes = old.metadata.len();
        return Some(Invalid::Metadata { metadata_bytes });
    }
    if old.count == 0 {
        return Some(Invalid::Reentries);
    }
    invalid_span(old.span)
}
