//! An acquire: granted, put in line or refused, and what is counted and written down of it.

use super::dispatch::{Batch, session_ended};
use crate::conn::connection::ReservedWait;
use crate::native::reply;
use crate::rights::Exceeded;
use crate::session::Session;
use crate::session::outcomes::Remembered;
use crate::session::waiter::{Terms, Waiter};
use bytes::BytesMut;
use engine::{Outcome, Seat, Tick};
use protocol::{Acquire, BusyBound, ErrorCode, Reply, RequestId, UnavailableReason};
use std::sync::Arc;

/// For so long after a start, or after a change of the leader, waiters that come back are put in
/// line by their age. Later a client that says it has waited goes to the end, like every other.
const LINE_BY_AGE_MS: u64 = 2_000;

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
            waited_ms: match is_repeat && acquire.waited_ms > 0 {
                true => self.believed_wait_ms(acquire.waited_ms, now),
                false => 0,
            },
        };
        let bounds = self.connection.bounds();
        let mut reserved = None;
        if let Some(bounds) = &bounds {
            let key = acquire.key.as_bytes();
            match bounds.reserve(key) {
                Ok(reservation) => reserved = Some(reservation),
                // One that is held once more is counted already.
                Err(_) if acquire.is_reentrant && self.holds(acquire.key, now) => {}
                Err(exceeded) => return self.refuse_quota(&exceeded, id, out),
            }
        }
        let mut reserved_wait = None;
        let session = seat.session();
        let mut cannot_wait = None;
        // Most acquires are granted at once: only one that is not checks whether it may wait, and
        // makes a waiter.
        let waiter = || {
            cannot_wait = self.why_not_wait(id);
            if let Some(bounds) = &bounds
                && cannot_wait.is_none()
            {
                match bounds.reserve_wait(acquire.key.as_bytes()) {
                    Ok(reservation) => reserved_wait = Some(reservation),
                    Err(exceeded) => cannot_wait = Some(CannotWait::Quota(exceeded)),
                }
            }
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
                (self.core.books).granted(owner, &self.connection, &terms, &grant, 0, now);
                (self.core.books).answered(asker, id.get(), &grant);
                self.outcomes.push((id.get(), Remembered::Granted(grant)));
                reply::granted(&grant, now).append(id, out);
                if let Some(reserved) = reserved {
                    shared.keep_reserved(acquire.key.as_bytes(), &grant, reserved);
                }
            }
            Outcome::Queued { ticket, .. } => {
                self.core.note_contended(acquire.key.as_bytes(), now);
                self.connection.start_wait(id.get(), ticket);
                if let (Some(held), Some(waiting)) = (reserved, reserved_wait) {
                    (self.connection).reserve(id.get(), ReservedWait { held, waiting });
                }
            }
            Outcome::Held(holder) | Outcome::UpgradeRefused(holder) => {
                metrics.acquire_refusals.bump();
                self.core.note_contended(acquire.key.as_bytes(), now);
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

    /// For how long a client that comes back has stood in line with the server before this one. A
    /// client's word counts only while they all come back.
    #[cold]
    fn believed_wait_ms(&self, waited_ms: u32, now: Tick) -> u64 {
        let served_ms = self.core.shared.serves_since.ms_until(now);
        match served_ms < LINE_BY_AGE_MS {
            true => u64::from(waited_ms),
            false => 0,
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
            CannotWait::Quota(exceeded) => self.refuse_quota(&exceeded, id, out),
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
    /// As many wait as its token, or its prefix, may have.
    Quota(Exceeded),
}
