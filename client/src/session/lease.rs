//! One granted lock as this client knows it: until when it is certainly ours, and how it ended.
//!
//! # Until when
//!
//! The server's lease begins when the server grants or renews, which is some time after the request
//! was sent and some time before the answer came. Without comparing clocks the client knows nothing
//! more precise, so it takes the earliest moment that is possible: **a lease counts from the moment
//! its request was first sent.** For an answer to a request sent at `s` that promises `ttl`, the
//! lock is ours until `s + ttl - margin` at least. The margin is 2 ms, since the server counts
//! whole milliseconds, and a hundredth of the ttl, for clocks that do not run equally fast.
//!
//! - *After a wait* the same rule holds and is right, but it may leave little: a lock asked for 20
//!   s ago and granted just now with 30 s would count as having 10 s left. A bound taken from the
//!   arrival of the grant would need an upper bound on how long the grant was under way, and there
//!   is none. So when more than a third of the lease is gone by the time a grant arrives, the
//!   client renews once before it hands the guard out, and counts from the sending of that renewal.
//!   The caller pays one round trip in exchange for a lease that is fresh and known to be. After
//!   shorter waits the guard is handed out at once: the watchdog's first renewal would not be due
//!   yet anyway.
//! - *A request that was repeated* after a reconnect counts from its first sending, since that may
//!   be the one that took effect.
//! - *Everything a session holds ends with the session*, whatever the ttl. So `valid_until` is the
//!   earlier of two deadlines: the lease's own, and the session's, which counts from the sending of
//!   the last hello or keep-alive that was answered. (Other requests are signs of life too, but a
//!   server need not take note of each one to the millisecond.) Locks bound to their session have
//!   only the latter.
//! - *A detached lock* belongs to no session, and its own deadline is all there is.
//! - *Reentrant guards* of one grant share one lease, here as on the server, and with it their
//!   deadline.
//!
//! A newer answer replaces the deadline even with an earlier one (a shorter renewal does shorten
//! the lease); an answer to an older request can only make it earlier.

use crate::backoff::spread;
use crate::clock::{self, Moment};
use crate::error::Loss;
use crate::limits::{MARGIN_FRACTION, MARGIN_TICKS, RENEW_FRACTION, RENEW_JITTER};
use crate::metrics::Counters;
use crate::spans;
use parking_lot::Mutex;
use protocol::{Fence, Mode};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// For how long after the sending of its request a lease of `ttl` is certain.
pub(crate) fn certain(ttl: Duration) -> Duration {
    ttl.saturating_sub(MARGIN_TICKS + ttl / MARGIN_FRACTION)
}

/// When something that lasts `ttl` is due for renewal, counted from when it was last known to
/// begin.
pub(crate) fn renewal_interval(ttl: Duration) -> Duration {
    spread(ttl / RENEW_FRACTION, RENEW_JITTER)
}

/// The life of one session, as far as the server's answers prove it.
#[derive(Debug)]
pub(crate) struct SessionLife {
    known: Mutex<KnownLife>,
    /// Where losses of its leases are counted.
    counters: Arc<Counters>,
}

/// The newest request that the server answered by keeping the session alive.
#[derive(Clone, Copy, Debug)]
struct KnownLife {
    sent: Moment,
    /// For how long, as the server promised.
    ttl: Duration,
}

impl SessionLife {
    pub(crate) fn new(ttl: Duration, sent: Moment) -> Self {
        Self {
            known: Mutex::new(KnownLife { sent, ttl }),
            counters: Arc::default(),
        }
    }

    /// Has the losses of its leases counted there.
    pub(crate) fn counted_by(self, counters: Arc<Counters>) -> Self {
        Self { counters, ..self }
    }

    /// A request sent then kept the session alive for `ttl`. The newest request decides, even with
    /// an earlier end: a restarted server may give its sessions less time. An older one says
    /// nothing new.
    pub(crate) fn kept(&self, sent: Moment, ttl: Duration) {
        let mut known = self.known.lock();
        if sent >= known.sent {
            *known = KnownLife { sent, ttl };
        }
    }

    /// How long the session outlives its last sign of life.
    pub(crate) fn ttl(&self) -> Duration {
        self.known.lock().ttl
    }

    /// Until when the session certainly lives.
    pub(crate) fn deadline(&self) -> Moment {
        let known = *self.known.lock();
        known.sent + certain(known.ttl)
    }
}

/// The number of all detached leases; the others count from 1.
const DETACHED_SERIAL: u64 = 0;

/// What a grant came with.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) key: Arc<[u8]>,
    pub(crate) fence: Fence,
    pub(crate) mode: Mode,
    /// What to ask for when renewing.
    pub(crate) ttl: Duration,
    /// What the server granted.
    pub(crate) granted: Duration,
    pub(crate) is_session_bound: bool,
    pub(crate) is_auto_renewed: bool,
    pub(crate) metadata: Arc<[u8]>,
    pub(crate) trace_id: Option<Arc<str>>,
    /// When the request was first sent.
    pub(crate) sent: Moment,
}

#[derive(Debug)]
pub(crate) struct Lease {
    /// Tells apart two leases of the same key and fence.
    pub(crate) serial: u64,
    pub(crate) key: Arc<[u8]>,
    pub(crate) metadata: Arc<[u8]>,
    /// Of the acquire, for a claim and for the log.
    pub(crate) trace_id: Option<Arc<str>>,
    pub(crate) is_session_bound: bool,
    /// `None` for a detached lock, which belongs to no session.
    life: Option<Arc<SessionLife>>,
    gone: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fence: Fence,
    mode: Mode,
    ttl: Duration,
    /// When the request was sent that the present deadline comes from, and what it was granted.
    sent: Moment,
    granted: Duration,
    /// The lease's own; see the module's documentation.
    deadline: Moment,
    /// Guards that share this lease.
    hold_count: u32,
    is_auto_renewed: bool,
    /// The watchdog has a renewal under way.
    is_renewing: bool,
    loss: Option<Loss>,
}

impl Lease {
    pub(crate) fn new(serial: u64, terms: &Terms, life: Arc<SessionLife>) -> Self {
        Self::with_life(serial, terms, Some(life))
    }

    /// A lease without a session. It stands in no list: it outlives session and client, the
    /// watchdog does not renew it, and it is not claimed after a restart.
    pub(crate) fn detached(terms: &Terms) -> Self {
        Self::with_life(DETACHED_SERIAL, terms, None)
    }

    fn with_life(serial: u64, terms: &Terms, life: Option<Arc<SessionLife>>) -> Self {
        Self {
            serial,
            key: Arc::clone(&terms.key),
            metadata: Arc::clone(&terms.metadata),
            trace_id: terms.trace_id.clone(),
            is_session_bound: terms.is_session_bound,
            life,
            gone: Notify::new(),
            state: Mutex::new(State {
                fence: terms.fence,
                mode: terms.mode,
                ttl: terms.ttl,
                sent: terms.sent,
                granted: terms.granted,
                deadline: terms.sent + certain(terms.granted),
                hold_count: 1,
                is_auto_renewed: terms.is_auto_renewed,
                is_renewing: false,
                loss: None,
            }),
        }
    }

    /// One more guard for the same grant. `false`: this lease is over.
    pub(crate) fn join(&self, terms: &Terms) -> bool {
        let mut state = self.state.lock();
        if state.loss.is_some() {
            return false;
        }
        state.hold_count += 1;
        state.ttl = state.ttl.max(terms.ttl);
        state.is_auto_renewed |= terms.is_auto_renewed;
        state.note_answer(terms.sent, terms.granted);
        true
    }

    pub(crate) fn fence(&self) -> Fence {
        self.state.lock().fence
    }

    pub(crate) fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    pub(crate) fn hold_count(&self) -> u32 {
        self.state.lock().hold_count
    }

    /// What a renewal asks for.
    pub(crate) fn wanted(&self) -> protocol::Lease {
        if self.is_session_bound {
            return protocol::Lease::Session;
        }
        let ttl_ms = u32::try_from(self.state.lock().ttl.as_millis());
        protocol::Lease::Ttl {
            ttl_ms: ttl_ms.expect("checked against TTL_MS_MAX when the lock was asked for"),
        }
    }

    /// Until when it is certainly ours; the moment of the loss, once it is lost.
    pub(crate) fn deadline(&self) -> Moment {
        self.bound(&self.state.lock())
    }

    fn bound(&self, state: &State) -> Moment {
        match &self.life {
            Some(life) if state.loss.is_none() && self.is_session_bound => life.deadline(),
            Some(life) if state.loss.is_none() => state.deadline.min(life.deadline()),
            _ => state.deadline,
        }
    }

    /// Whether it belongs to no session.
    pub(crate) fn is_detached(&self) -> bool {
        self.life.is_none()
    }

    /// Until when it is ours, or why it is not. A deadline found to have passed is final: an owner
    /// that was told that the lock is gone must not see it come back.
    pub(crate) fn check(&self, now: Moment) -> Result<Moment, Loss> {
        let mut state = self.state.lock();
        if let Some(loss) = state.loss {
            return Err(loss);
        }
        let deadline = self.bound(&state);
        if now < deadline {
            return Ok(deadline);
        }
        // Which of the two it was, because each has a setting of its own that would have helped.
        let loss = match self.is_session_bound || deadline < state.deadline {
            true => Loss::SessionDeadlinePassed,
            false => Loss::DeadlinePassed,
        };
        state.end(loss, deadline);
        let fence = state.fence;
        drop(state);
        self.note_loss(fence, loss);
        Err(loss)
    }

    /// It is gone. Returns how it ended, which may have been before.
    pub(crate) fn lose(&self, loss: Loss, now: Moment) -> Loss {
        let mut state = self.state.lock();
        if let Some(earlier) = state.loss {
            return earlier;
        }
        let at = now.min(self.bound(&state));
        state.end(loss, at);
        let fence = state.fence;
        drop(state);
        self.note_loss(fence, loss);
        loss
    }

    /// It has just been lost, under this fence: tells all tasks that wait for that.
    fn note_loss(&self, fence: Fence, loss: Loss) {
        if let Some(life) = &self.life {
            life.counters.count_loss(loss);
        }
        spans::lost(&self.key, fence, self.trace_id.as_deref(), loss);
        self.gone.notify_waiters();
    }

    /// How it ended, if it did.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.state.lock().loss
    }

    /// Completes when it is gone.
    pub(crate) async fn gone(&self) -> Loss {
        loop {
            // Made before the check, so that a loss between the two is not missed.
            let gone = self.gone.notified();
            let now = Moment::now();
            match self.check(now) {
                Err(loss) => return loss,
                // By then the deadline may have moved: the loop looks again.
                Ok(deadline) => tokio::select! {
                    () = gone => {}
                    () = clock::sleep_until(deadline.min(now + clock::LOOK_MAX)) => {}
                },
            }
        }
    }

    /// One guard less.
    pub(crate) fn leave(&self, now: Moment) -> Leaving {
        let mut state = self.state.lock();
        state.hold_count = state
            .hold_count
            .checked_sub(1)
            .expect("a guard leaves once");
        let leaving = Leaving {
            fence: state.fence,
            is_last: state.hold_count == 0,
            loss: state.loss,
        };
        if leaving.is_last && state.loss.is_none() {
            state.end(Loss::Released, now);
            drop(state);
            self.gone.notify_waiters();
        }
        leaving
    }

    /// A request about this lease was answered: it has `granted`, counted from `sent`.
    pub(crate) fn note_answer(&self, sent: Moment, granted: Duration) {
        self.state.lock().note_answer(sent, granted);
    }

    /// It is shared from now on, under this fence.
    pub(crate) fn note_downgrade(&self, fence: Fence) {
        let mut state = self.state.lock();
        state.fence = fence;
        state.mode = state.mode.downgraded();
    }

    /// Whether so much of the lease is gone that it is renewed before its owner gets it.
    pub(crate) fn is_stale(&self, now: Moment) -> bool {
        let state = self.state.lock();
        !self.is_session_bound && now >= state.sent + state.granted / RENEW_FRACTION
    }

    /// When the watchdog should renew it, if it should.
    pub(crate) fn renewal_due(&self) -> Option<Moment> {
        let state = self.state.lock();
        let is_wanted = state.is_auto_renewed && !self.is_session_bound && state.loss.is_none();
        is_wanted.then(|| state.sent + renewal_interval(state.granted))
    }

    /// What the server granted last.
    pub(crate) fn granted(&self) -> Duration {
        self.state.lock().granted
    }

    /// Whether the watchdog may renew it at all. The lease of a session is renewed with the
    /// session, but after a reconnect it is asked for as well.
    pub(crate) fn is_renewable(&self) -> bool {
        let state = self.state.lock();
        state.loss.is_none() && (state.is_auto_renewed || self.is_session_bound)
    }

    /// The watchdog begins a renewal. `false`: there is one under way, or nothing left to renew.
    pub(crate) fn start_renewing(&self) -> bool {
        let mut state = self.state.lock();
        let starts = state.loss.is_none() && !state.is_renewing;
        state.is_renewing |= starts;
        starts
    }

    /// The watchdog's renewal was answered or given up.
    pub(crate) fn stop_renewing(&self) {
        self.state.lock().is_renewing = false;
    }
}

impl State {
    fn note_answer(&mut self, sent: Moment, granted: Duration) {
        let deadline = sent + certain(granted);
        if self.loss.is_some() {
            // Lost stays lost.
        } else if sent >= self.sent {
            self.sent = sent;
            self.granted = granted;
            self.deadline = deadline;
        } else {
            // The server may have seen this one last.
            self.deadline = self.deadline.min(deadline);
        }
    }

    fn end(&mut self, loss: Loss, at: Moment) {
        self.loss = Some(loss);
        self.deadline = at;
    }
}

/// What a guard learns when it leaves its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) fence: Fence,
    pub(crate) is_last: bool,
    /// How the lease had ended before.
    pub(crate) loss: Option<Loss>,
}

#[cfg(test)]
pub(crate) mod tests;
