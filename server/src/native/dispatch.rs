//! From a request to the engine and back: a batch of frames is decided in one go, every reply
//! appended to one buffer.

use crate::conn::connection::Connection;
use crate::conn::dialect::{Decided, Dialect};
use crate::core::Core;
use crate::core::books::GivenBack;
use crate::core::switchboard::Switchboard;
use crate::native::voice::NativeVoice;
use crate::native::{inspect, reply};
use crate::session::outcomes::Remembered;
use bytes::BytesMut;
use engine::{Downgrade, Engine, NotHeld, Release, Renewal, Seat, SessionId, Tick};
use parking_lot::MutexGuard;
use protocol::{
    DecodeError, ErrorCode, Fence, Frame, Key, Lease, NotHeldReason, Reply, Request, RequestId,
    UnavailableReason, limits, request::op,
};
use std::rc::Rc;

/// Decides the requests of one connection.
pub(super) struct Batch {
    pub(super) core: Rc<Core>,
    pub(super) connection: Rc<Connection>,
    voice: Rc<NativeVoice>,
    /// Outcomes of this batch that are worth remembering; empty between batches.
    pub(super) outcomes: Vec<(u64, Remembered)>,
}

impl Batch {
    pub(super) fn new(core: Rc<Core>, connection: Rc<Connection>, voice: Rc<NativeVoice>) -> Self {
        Batch {
            core,
            connection,
            voice,
            outcomes: Vec::new(),
        }
    }

    fn decide_one(&mut self, frame: &Frame<'_>, seat: &mut Seat, now: Tick, out: &mut BytesMut) {
        let id = frame.request_id;
        let request = match Request::decode(frame) {
            Ok(request) => request,
            Err(error) => {
                self.core.metrics().malformed.bump();
                return reply::error(ErrorCode::MALFORMED, &error.to_string()).append(id, out);
            }
        };
        if let Some(bounds) = self.connection.bounds()
            && !self.is_allowed(&bounds, id, &request, now, out)
        {
            return;
        }
        let is_repeat = frame.is_repeated();
        if is_repeat {
            self.connection.session.note_repeat(id.get());
            if let Some(reply) = self.recall(id, &request, now) {
                self.core.metrics().repeats_answered.bump();
                return reply.append(id, out);
            }
        } else if self.connection.session.was_repeated(id.get()) {
            // The first sending, read after the second: the client has its answer, and expects
            // nothing of this one.
            let message = "this request came again on another connection, and was answered there";
            return reply::error(ErrorCode::OUT_OF_TURN, message).append(id, out);
        }
        let shared = &self.core.shared;
        match request {
            Request::Acquire(acquire) => self.acquire(id, is_repeat, &acquire, seat, now, out),
            Request::Renew { key, fence, lease } => {
                self.renew(id, key, fence, lease, seat, now, out)
            }
            Request::Release { key, fence } => self.release(id, key, fence, seat, now, out),
            Request::Downgrade { key, fence } => self.downgrade(id, key, fence, seat, now, out),
            Request::Cancel { acquire_id } => self.cancel(id, acquire_id, now, out),
            Request::KeepAlive => self.keep_alive(id, now, out),
            Request::Ping => Reply::Pong.append(id, out),
            Request::Query { key } => inspect::query(shared, key, seat.session(), now, id, out),
            Request::List {
                prefix,
                cursor,
                limit,
            } => {
                let bounds = self.connection.bounds();
                inspect::list(
                    shared,
                    bounds.as_ref().map(|bounds| &***bounds),
                    prefix.as_bytes(),
                    cursor,
                    limit,
                    seat.session(),
                    now,
                    id,
                    out,
                );
            }
            Request::Sessions { cursor, limit } => {
                inspect::sessions(shared, cursor, limit, now, id, out)
            }
            Request::Stats => inspect::stats(shared, id, out),
            Request::ForceRelease {
                key,
                fence,
                trace_id,
            } => self.force_release(id, key, fence, trace_id.as_str(), now, out),
            Request::Goodbye => {
                shared.end_session(seat.session());
                self.core.books.session_ended(&self.connection.session);
                Reply::Bye.append(id, out);
                self.voice.hear_goodbye();
            }
            Request::EndSession { session_id } => self.end_session(id, session_id.get(), out),
            Request::Claim(claim) => self.claim(id, &claim, seat, now, out),
            Request::Hello(_) => {
                reply::error(
                    ErrorCode::OUT_OF_TURN,
                    "this connection has said hello already",
                )
                .append(id, out);
            }
            Request::Unknown { op } => {
                self.core.metrics().malformed.bump();
                let message = format!("this server does not know operation {op:#04x}");
                reply::error(ErrorCode::UNKNOWN_OP, &message).append(id, out);
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a request taken apart, plus the four things every verb needs"
    )]
    fn renew(
        &self,
        id: RequestId,
        key: Key<'_>,
        fence: Fence,
        lease: Lease,
        seat: &Seat,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let metrics = self.core.metrics();
        metrics.renewals.bump();
        if self.is_too_long(lease) {
            return self.refuse_too_long(id, lease, out);
        }
        let engine = &self.core.shared.engine;
        let renew = |seat: &Seat| engine.renew(seat, key, fence, self.renewal_ms(lease), now);
        let outcome = match renew(seat) {
            missed @ Renewal::NotHeld(why) if may_be_detached(why) => {
                let renewed = self.core.ask_as_detached(|seat| renew(seat));
                renewed
                    .filter(|other| matches!(other, Renewal::Renewed { .. }))
                    .unwrap_or(missed)
            }
            outcome => outcome,
        };
        match outcome {
            Renewal::Renewed { until } => {
                let session = &self.connection.session;
                (self.core.books).renewed(session, key.as_bytes(), fence, until, now);
                let ttl_ms = reply::remaining_ms(until, now);
                Reply::Renewed { ttl_ms }.append(id, out);
            }
            Renewal::NotHeld(NotHeld::SessionEnded) => session_ended().append(id, out),
            Renewal::NotHeld(why) => {
                metrics.renewals_failed.bump();
                self.not_held_yet(why, key, now).append(id, out);
            }
            Renewal::Invalid(invalid) => {
                reply::error(ErrorCode::MALFORMED, &format!("{invalid:?}")).append(id, out)
            }
        }
    }

    /// Whether a client asks for more than `lease_max`.
    #[inline]
    pub(super) fn is_too_long(&self, lease: Lease) -> bool {
        matches!(lease, Lease::Ttl { ttl_ms } if u64::from(ttl_ms) > self.core.shared.lease_max_ms)
    }

    #[cold]
    pub(super) fn refuse_too_long(&self, id: RequestId, lease: Lease, out: &mut BytesMut) {
        self.core.metrics().malformed.bump();
        let asked_ms = self.renewal_ms(lease);
        let lease_max_ms = self.core.shared.lease_max_ms;
        let message = format!(
            "a lease of {asked_ms} ms was asked for, at most {lease_max_ms} are allowed here (lease_max)"
        );
        reply::error(ErrorCode::MALFORMED, &message).append(id, out);
    }

    /// A lease that lives by its session is renewed by keeping the session alive; a timed one for
    /// as long as that.
    fn renewal_ms(&self, lease: Lease) -> u64 {
        match lease {
            Lease::Ttl { ttl_ms } => u64::from(ttl_ms),
            Lease::Session => u64::from(self.connection.session.ttl_ms),
        }
    }

    #[inline]
    fn release(
        &mut self,
        id: RequestId,
        key: Key<'_>,
        fence: Fence,
        seat: &mut Seat,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let engine = &self.core.shared.engine;
        let session = &self.connection.session;
        match engine.release_timed(seat, key, fence, now) {
            (Release::Released { count }, held_ms) => {
                let given_back = GivenBack {
                    key: key.as_bytes(),
                    fence,
                    count,
                    held_ms,
                };
                (self.core.books).released(session, &self.connection, &given_back, now);
                self.released(id, count, out);
            }
            (Release::NotHeld(NotHeld::SessionEnded), _) => session_ended().append(id, out),
            (Release::NotHeld(why), _) => match self.release_detached(why, key, fence, now) {
                Some(count) => self.released(id, count, out),
                None => self.not_released(why, id, key, now, out),
            },
        }
    }

    #[inline]
    fn released(&mut self, id: RequestId, count: u32, out: &mut BytesMut) {
        self.outcomes
            .push((id.get(), Remembered::Released { count }));
        let remaining_count = count;
        Reply::Released { remaining_count }.append(id, out);
    }

    #[cold]
    fn not_released(
        &self,
        why: NotHeld,
        id: RequestId,
        key: Key<'_>,
        now: Tick,
        out: &mut BytesMut,
    ) {
        self.core.metrics().release_by_non_owner.bump();
        self.not_held_yet(why, key, now).append(id, out);
    }

    /// Releases a detached lock, which any session may, and says how often it is still held.
    /// `None`: this is none.
    #[cold]
    fn release_detached(&self, why: NotHeld, key: Key<'_>, fence: Fence, now: Tick) -> Option<u32> {
        let core = &self.core;
        let owner = core.shared.detached().filter(|_| may_be_detached(why))?;
        let (outcome, held_ms) = core.ask_as_detached(|seat| {
            let engine = &core.shared.engine;
            engine.release_timed(seat, key, fence, now)
        })?;
        let Release::Released { count } = outcome else {
            return None;
        };
        let given_back = GivenBack {
            key: key.as_bytes(),
            fence,
            count,
            held_ms,
        };
        (core.books).released(owner, &self.connection, &given_back, now);
        Some(count)
    }

    fn downgrade(
        &mut self,
        id: RequestId,
        key: Key<'_>,
        fence: Fence,
        seat: &Seat,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let engine = &self.core.shared.engine;
        let downgrade = |seat: &Seat| engine.downgrade(seat, key, fence, now);
        let outcome = match downgrade(seat) {
            missed @ Downgrade::NotHeld(why) if may_be_detached(why) => {
                let downgraded = self.core.ask_as_detached(|seat| downgrade(seat));
                downgraded
                    .filter(|other| matches!(other, Downgrade::Downgraded))
                    .unwrap_or(missed)
            }
            outcome => outcome,
        };
        match outcome {
            Downgrade::Downgraded => {
                self.core.books.downgraded(key.as_bytes(), fence);
                let holder = engine.holder(key, fence, now);
                let (ttl_ms, hold_count) = holder.map_or((0, 1), |holder| {
                    (reply::remaining_ms(holder.until, now), holder.count)
                });
                Reply::Granted {
                    fence,
                    ttl_ms,
                    hold_count,
                }
                .append(id, out);
            }
            Downgrade::NotHeld(NotHeld::SessionEnded) => session_ended().append(id, out),
            Downgrade::NotHeld(why) => self.not_held_yet(why, key, now).append(id, out),
        }
    }

    fn cancel(&self, id: RequestId, acquire_id: RequestId, now: Tick, out: &mut BytesMut) {
        let ticket = self
            .connection
            .waits
            .borrow()
            .get(&acquire_id.get())
            .copied();
        let cancelled = ticket
            .and_then(|ticket| self.core.shared.engine.cancel(ticket, now))
            .is_some();
        if cancelled {
            self.connection.finish_wait(acquire_id.get());
            self.core.metrics().acquire_cancels.bump();
            // Every request is answered once: first the acquire, then the request that ended it.
            Reply::Cancelled.append(acquire_id, out);
            Reply::Cancelled.append(id, out);
        } else {
            // Its grant or its timeout is in our mailbox, or it was answered long ago.
            Reply::NotWaiting.append(id, out);
        }
    }

    fn keep_alive(&self, id: RequestId, now: Tick, out: &mut BytesMut) {
        self.core.metrics().keep_alives.bump();
        let session = &self.connection.session;
        match self
            .core
            .shared
            .engine
            .keep_alive(session.id, u64::from(session.ttl_ms), now)
        {
            Some(until) => {
                self.core.books.session_kept(session, until);
                let ttl_ms = reply::remaining_ms(until, now);
                Reply::KeptAlive { ttl_ms }.append(id, out);
            }
            None => session_ended().append(id, out),
        }
    }

    fn force_release(
        &self,
        id: RequestId,
        key: Key<'_>,
        fence: Fence,
        trace_id: &str,
        now: Tick,
        out: &mut BytesMut,
    ) {
        let engine = &self.core.shared.engine;
        if engine.force_release(key, fence, now) {
            let operator = &self.connection.session;
            tracing::info!(key = %key.as_bytes().escape_ascii(), fence = fence.get(),
                by = &*operator.client_name, trace_id = named(trace_id), "lock taken away by force");
            (self.core.books).forced(&self.connection, key.as_bytes(), fence, trace_id, now);
            Reply::Released { remaining_count: 0 }.append(id, out);
        } else {
            let why = engine.why_not_held(key, fence);
            self.not_held_yet(why, key, now).append(id, out);
        }
    }

    /// As `not_held`, except in the grace period: there the claim of this very lock may be on its
    /// way, on another connection, and a client that asks too early must not be told that it is
    /// lost.
    fn not_held_yet(&self, why: NotHeld, key: Key<'_>, now: Tick) -> Reply<'static> {
        match self.recovering(now) {
            // Another holder may mean: shared, and the others were faster to claim it.
            Some(recovering) if !is_known_to_be_over(why) => recovering,
            _ => self.not_held(why, key, now),
        }
    }

    /// The answer in the grace period to a client that asks too early.
    pub(super) fn recovering(&self, now: Tick) -> Option<Reply<'static>> {
        let recovering_ms = self.core.shared.recovery.recovering_ms(now);
        recovering_ms.map(|retry_after_ms| Reply::Unavailable {
            reason: UnavailableReason::RECOVERING,
            retry_after_ms,
        })
    }

    /// Why a lock is not the one that was named.
    pub(super) fn not_held(&self, why: NotHeld, key: Key<'_>, now: Tick) -> Reply<'static> {
        let reason = match why {
            NotHeld::Free => NotHeldReason::UNSPECIFIED,
            NotHeld::Never => NotHeldReason::NEVER,
            NotHeld::Expired | NotHeld::SessionEnded => NotHeldReason::EXPIRED,
            NotHeld::Released => NotHeldReason::RELEASED,
            NotHeld::Forced => NotHeldReason::FORCED,
            NotHeld::OtherOwner => NotHeldReason::OTHER_OWNER,
            NotHeld::OtherFence if self.holds(key, now) => NotHeldReason::OTHER_FENCE,
            NotHeld::OtherFence => NotHeldReason::OTHER_OWNER,
        };
        Reply::NotHeld { reason }
    }

    /// Whether this session holds a key, under whatever fence.
    pub(super) fn holds(&self, key: Key<'_>, now: Tick) -> bool {
        self.is_held_by(self.connection.session.id, key, now)
    }

    pub(super) fn is_held_by(&self, owner: SessionId, key: Key<'_>, now: Tick) -> bool {
        let engine = &self.core.shared.engine;
        engine.is_held_by(key, owner, now)
    }
}

impl Dialect for Batch {
    const MESSAGE_BYTES_MAX: usize = limits::FRAME_BYTES_MAX as usize;
    const INCOMPLETE: &'static str = "a frame did not complete in time";
    type Malformed = DecodeError;

    fn decide(
        &mut self,
        bytes: &[u8],
        out: &mut BytesMut,
        out_high: usize,
    ) -> Result<Decided, DecodeError> {
        if bytes.is_empty() {
            return Ok(Decided::default());
        }
        let mut unread = bytes;
        let start = out.len();
        let now = self.core.shared.clock.now();
        // Not another count of `shared` itself: all cores would write to one line with every batch.
        let core = self.core.clone();
        let shared = &*core.shared;
        let _batch = shared.engine.batch();
        let (connection, voice) = (self.connection.clone(), self.voice.clone());
        let mut seat = connection.seat.borrow_mut();
        // Before anything of this is written, what it changes must be remembered: a reply that is
        // lost on the way may be asked for again at any moment.
        let mut memory = voice.outcomes.lock();
        let mut requests = 0;
        // Any sign of life keeps the session alive, but not every one costs a write.
        if self.connection.session.wants_keeping(now) {
            let session = &self.connection.session;
            let ttl_ms = u64::from(session.ttl_ms);
            if let Some(until) = shared.engine.keep_alive(session.id, ttl_ms, now) {
                self.core.books.session_kept(session, until);
            }
        }
        let mut more = false;
        // How many of the requests that come next have been looked at ahead of time.
        let mut warm = 0;
        let result = loop {
            if warm == 0 {
                warm_up(&shared.engine, unread);
                warm = engine::WARM_MAX;
            }
            warm -= 1;
            if more || out.len() >= out_high {
                more = true;
                break Ok(());
            }
            match Frame::split(&mut unread, limits::REQUEST_FRAME_BYTES_MAX) {
                // An answer without an id would be one to the connection. So is this, then.
                Ok(Some(frame)) if frame.request_id == RequestId::NONE => {
                    let field = "request id";
                    break Err(DecodeError::Zero { field });
                }
                Ok(Some(frame)) if frame.is_repeated() => {
                    requests += 1;
                    // Looks into the memory of all connections of the session, this one's among
                    // them. A finder of an outcome may rely on its record being in the log.
                    self.core.replies.append_now();
                    memory.extend(self.outcomes.drain(..));
                    MutexGuard::unlocked(&mut memory, || {
                        self.decide_one(&frame, &mut seat, now, out);
                    });
                    more = takes_long(frame.kind);
                }
                Ok(Some(frame)) => {
                    requests += 1;
                    self.decide_one(&frame, &mut seat, now, out);
                    more = takes_long(frame.kind);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let metrics = self.core.metrics();
        metrics.batches.bump();
        metrics.requests.add(requests);
        self.core.replies.pause_before_append();
        self.core.replies.append_now();
        memory.extend(self.outcomes.drain(..));
        self.core.replies.hold_back(&connection, out, start);
        let bytes = bytes.len() - unread.len();
        result.map(|()| Decided {
            bytes,
            more,
            requests,
            is_last: false,
        })
    }

    fn leave(&mut self) {
        self.connection.session.detach(self.connection.id);
    }
}

/// For a line of the log, which has the field only if there is something to say.
fn named(trace_id: &str) -> Option<&str> {
    (!trace_id.is_empty()).then_some(trace_id)
}

/// Whether the grant that was named has ended in this life of the server.
fn is_known_to_be_over(why: NotHeld) -> bool {
    matches!(why, NotHeld::Expired | NotHeld::Released | NotHeld::Forced)
}

/// Whether a lock that the session does not hold may be a detached one.
fn may_be_detached(why: NotHeld) -> bool {
    matches!(why, NotHeld::OtherOwner | NotHeld::OtherFence)
}

pub(super) fn session_ended() -> Reply<'static> {
    reply::error(
        ErrorCode::SESSION_ENDED,
        "the session has ended; open a new one",
    )
}

/// Has the engine read ahead for the locks that the next requests ask for, if there are enough of
/// them to make it worth while.
fn warm_up(engine: &Engine<Switchboard>, mut unread: &[u8]) {
    if unread.len() < WARM_BYTES_MIN {
        return;
    }
    let frames =
        std::iter::from_fn(|| Frame::split(&mut unread, limits::REQUEST_FRAME_BYTES_MAX).ok()?);
    let keys = frames
        .take(engine::WARM_MAX)
        .filter_map(|frame| Request::peek_key(&frame));
    engine.warm(keys);
}

/// Less than this is one request or two.
const WARM_BYTES_MIN: usize = 128;

/// Requests that look at many things, so that a pipeline full of them would hold up every other
/// connection of the core.
fn takes_long(kind: u8) -> bool {
    matches!(kind, op::LIST | op::SESSIONS | op::STATS)
}
