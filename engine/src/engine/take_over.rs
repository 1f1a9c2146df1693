//! Taking a key away from its holders and granting it to the caller, in one step: for protocols
//! that have such a verb.

use super::{Engine, invalid_span};
use crate::api::{Acquire, Host, Invalid, NOTE_BYTES_MAX, Outcome};
use crate::cell::Terms;
use crate::session::seat::{CellRef, Seat, Taken};
use crate::time::tick::Tick;
use types::Fence;

impl<H: Host> Engine<H> {
    /// Grants the key to the caller even if it is held: the holders are told that they lost it, and
    /// the waiters stay where they are. With `from`, only if the key is held under that fence now;
    /// `None` then says that it is not, and that nothing was changed.
    ///
    /// [`Outcome::Held`] is answered for a grant so fresh that its owner is not written down yet:
    /// ask again.
    pub fn take_over(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        from: Option<Fence>,
        now: Tick,
    ) -> Option<Outcome> {
        if let Some(invalid) = invalid_span(request.span) {
            return Some(Outcome::Invalid(invalid));
        }
        let metadata_bytes = request.metadata.len();
        if metadata_bytes > NOTE_BYTES_MAX {
            return Some(Outcome::Invalid(Invalid::Metadata { metadata_bytes }));
        }
        if !self.is_open(seat.session(), now) {
            return Some(Outcome::SessionEnded);
        }
        let (number, target) = self.target(request.key, None);
        let shard = self.shard(number);
        let terms = Terms::new(seat.session(), request.span, now);
        let answer = shard.take_over(target, request, &terms, from);
        if let Some(Outcome::Granted(grant)) = &answer.outcome {
            let cell = CellRef::new(number, answer.slot);
            self.remember(seat, Taken::new(cell, grant.fence));
            if !self.is_open(seat.session(), now) {
                return Some(self.refuse_late(shard, answer.slot, seat.session(), now));
            }
        }
        answer.outcome
    }
}
