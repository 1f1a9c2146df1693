//! Claims: after a stop without notice, holders say what they held, and the server believes them
//! for a while.

use crate::native::dispatch::Batch;
use crate::native::reply;
use crate::session::outcomes::Remembered;
use crate::session::waiter::Terms;
use bytes::BytesMut;
use engine::{Claimed, OldHold, Seat, Span, Tick};
use protocol::{Claim, ErrorCode, NotHeldReason, Reply, RequestId};

impl Batch {
    /// Puts a lock back for a session that says it held it, unless another claimed it under a
    /// higher fence.
    pub(super) fn claim(
        &mut self,
        id: RequestId,
        claim: &Claim<'_>,
        seat: &mut Seat,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let shared = &self.core.shared;
        let session = &self.connection.session;
        let (key, fence) = (claim.key, claim.fence);
        if shared.recovery.was_taken_away(key.as_bytes(), fence) {
            let reason = NotHeldReason::FORCED;
            return Reply::NotHeld { reason }.append(id, out);
        }
        let was_held = self.holds(claim.key, now);
        let old = OldHold {
            key,
            fence,
            mode: claim.mode,
            // Asked for when the bound was another, perhaps: it is no reason to lose the lock.
            span: match session.span(claim.lease) {
                Span::Ms(ms) => Span::Ms(ms.min(shared.lease_max_ms)),
                span => span,
            },
            count: claim.hold_count,
            // Since when it knows best itself; here it counts from its claim.
            held_ms: 0,
            metadata: claim.metadata.as_bytes(),
        };
        match shared.engine.claim(seat, &old, now) {
            Claimed::Granted(grant) => {
                let terms = Terms {
                    key: key.as_bytes(),
                    mode: old.mode,
                    span: claim.lease.into(),
                    note: old.metadata,
                    trace_id: claim.trace_id.as_str(),
                };
                if let Some(bounds) = self.connection.bounds()
                    && !was_held
                {
                    let reserved = bounds.count_held(key.as_bytes());
                    shared.keep_reserved(key.as_bytes(), &grant, reserved);
                }
                (self.core.books).claimed(&self.connection, &terms, &grant, !was_held, now);
                self.outcomes.push((id.get(), Remembered::Granted(grant)));
                reply::granted(&grant, now).append(id, out);
            }
            Claimed::Superseded => {
                let reason = NotHeldReason::OTHER_OWNER;
                Reply::NotHeld { reason }.append(id, out);
            }
            Claimed::NotHeld(why) => self.not_held(why, claim.key, now).append(id, out),
            Claimed::Busy(limit) => reply::busy(limit).append(id, out),
            Claimed::Invalid(invalid) => {
                reply::error(ErrorCode::MALFORMED, &format!("{invalid:?}")).append(id, out);
            }
        }
    }
}
