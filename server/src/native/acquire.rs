//! An acquire: granted, put in line or refused, and what is counted and written down of it.

use super::dispatch::{Batch, session_ended};
use crate::core::waiter::{Terms, Waiter};
use crate::native::reply;
use crate::session::Session;
use crate::session::outcomes::Remembered;
use bytes::BytesMut;
use engine::{Outcome, Seat, Tick};
use protocol::{Acquire, BusyBound, ErrorCode, Reply, RequestId, UnavailableReason};
use std::sync::Arc;

impl Batch {
    #[inline]
    pub(super) fn acquire(
        &mut self,
        id: RequestId,
        is_repeat: bool,
        acquire: &Acquire<'_>,
        seat: &mut Seat,
        now: Tick,
        out: &mut BytesMut,
    ) {
        if acquire.is_detached {
            return self.acquire_detached(id, is_repeat, acquire, now, out);
        }
        self.acquire_for(None, id, is_repeat, acquire, seat, now, out);
    }

    /// For the session that all detached locks belong to.
    #[cold]
    fn acquire_detached(
        &mut self,
        id: RequestId,
        is_repeat: bool,
        acquire: &Acquire<'_>,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let core = self.core.clone();
        let owner = match core.shared.open_detached() {
            Ok(owner) => owner,
            Err(limit) => {
                core.metrics().count_busy(limit);
                return reply::busy(limit).append(id, out);
            }
        };
        core.ask_as_detached(|seat| {
            self.acquire_for(Some(owner), id, is_repeat, acquire, seat, now, out);
        });
    }

    /// Without an `owner` it is the connection's own session. The seat is the owner's.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "a request and its owner, plus the four things every verb needs"
    )]
    fn acquire_for(
        &mut self,
        owner: Option<&Arc<Session>>,
        id: RequestId,
        is_repeat: bool,
        acquire: &Acquire<'_>,
        seat: &mut Seat,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let shared = &self.core.shared;
        let owner = owner.unwrap_or(&self.connection.session);
        let metrics = self.core.metrics();
        metrics.acquire_attempts.bump();
        if self.core.is_stopping.get() {
            let reason = UnavailableReason::SHUTTING_DOWN;
            let reply = Reply::Unavailable {
                reason,
                retry_after_ms: 0,
            };
            return reply.append(id, out);
        }
        if self.is_too_long(acquire.lease) {
            return self.refuse_too_long(id, acquire.lease, out);
        }
        let request = engine::Acquire {
            key: acquire.key,
            mode: acquire.mode,
            span: owner.span(acquire.lease),
            reentrant: acquire.is_reentrant,
            metadata: acquire.metadata.as_bytes(),
            asks_who: true,
        };
        let session = seat.session();
        let mut cannot_wait = None;
        // Most acquires are granted at once: only one that is not checks whether it may wait, and
        // makes a waiter.
        let waiter = || {
            cannot_wait = self.why_not_wait(id);
            cannot_wait.is_none().then(|| Waiter {
                connection: self.connection.id,
                session,
                request_id: id.get(),
                is_repeat,
                key: acquire.key.as_bytes().into(),
                mode: request.mode,
                span: request.span,
                note: match shared.storage {
                    Some(_) => request.metadata.into(),
                    None => Box::default(),
                },
                trace_id: (!acquire.trace_id.as_str().is_empty())
                    .then(|| Arc::from(acquire.trace_id.as_str())),
                asked: now,
            })
        };
        let outcome = match u64::from(acquire.wait_ms) {
            0 => shared.engine.acquire(seat, &request, now),
            wait_ms => {
                let engine = &shared.engine;
                engine.acquire_or_wait(seat, &request, wait_ms, waiter, now)
            }
        };
        if let Some(cannot_wait) = cannot_wait {
            return self.refuse_wait(cannot_wait, id, out);
        }
        match outcome {
            Outcome::Granted(grant) => {
                let terms = Terms {
                    key: acquire.key.as_bytes(),
                    mode: request.mode,
                    span: request.span,
                    note: request.metadata,
                    trace_id: acquire.trace_id.as_str(),
                };
                let asker = &self.connection.session;
                (self.core.books).granted(owner, asker, &terms, &grant, 0, now);
                self.outcomes.push((id.get(), Remembered::Granted(grant)));
                reply::granted(&grant, now).append(id, out);
            }
            Outcome::Queued { ticket, .. } => self.connection.start_wait(id.get(), ticket),
            Outcome::Held(holder) | Outcome::UpgradeRefused(holder) => {
                metrics.acquire_refusals.bump();
                let you = self.connection.session.id;
                reply::with_holder(shared, &holder, you, now, |contention| {
                    Reply::Refused(contention).append(id, out);
                });
            }
            Outcome::Busy(limit) => {
                metrics.count_busy(limit);
                reply::busy(limit).append(id, out);
            }
            Outcome::AtCeiling => {
                metrics.at_ceiling.bump();
                // Otherwise the keeper is about to raise the ceiling.
                let at_ceiling = Reply::Unavailable {
                    reason: UnavailableReason::AT_CEILING,
                    retry_after_ms: 1,
                };
                self.recovering(now).unwrap_or(at_ceiling).append(id, out);
            }
            Outcome::SessionEnded => session_ended().append(id, out),
            Outcome::Invalid(invalid) => {
                metrics.malformed.bump();
                reply::error(ErrorCode::MALFORMED, &format!("{invalid:?}")).append(id, out);
            }
        }
    }

    /// Why an acquire that would have to wait may not.
    fn why_not_wait(&self, id: RequestId) -> Option<CannotWait> {
        let waits = self.connection.waits.borrow();
        if waits.len() >= self.core.shared.config.in_flight_max as usize {
            Some(CannotWait::InFlight)
        } else if waits.contains_key(&id.get()) {
            Some(CannotWait::IdTaken)
        } else {
            None
        }
    }

    #[cold]
    fn refuse_wait(&self, why: CannotWait, id: RequestId, out: &mut BytesMut) {
        let metrics = self.core.metrics();
        match why {
            CannotWait::InFlight => {
                metrics.busy_in_flight.bump();
                let bound = BusyBound::IN_FLIGHT;
                let reply = Reply::Busy {
                    bound,
                    retry_after_ms: 0,
                };
                reply.append(id, out);
            }
            CannotWait::IdTaken => {
                metrics.malformed.bump();
                let message = format!("request id {} is taken by an acquire that waits", id.get());
                reply::error(ErrorCode::MALFORMED, &message).append(id, out);
            }
        }
    }
}

/// Why an acquire may not wait.
enum CannotWait {
    /// As many of its connection wait as may.
    InFlight,
    /// Another one waits under its request id.
    IdTaken,
}
