//! The books of one core: every change of a lock or a session is counted, audited and written down
//! here, and nowhere else. Both protocols and the delivery of hand-offs call the same methods, so
//! that none of them can forget a counter or a record.
//!
//! What is merely asked and refused changes nothing. It is counted where it is asked.
//!
//! A change is booked after the engine has made it and before the peer is told: the reply may
//! wait for the record (`durable_replies.rs`).
//!
//! `record.rs` has what is written down of which change. Locks that the engine takes from their
//! owners are booked by `core/losses.rs`, on whichever core finds out.

mod record;

use super::durable_replies::DurableReplies;
use super::shared::Shared;
use crate::conn::connection::Connection;
use crate::observe::audit::Audit;
use crate::observe::metrics::CoreMetrics;
use crate::session::Session;
use crate::session::operator::Operator;
use crate::session::waiter::{Terms, Waiter};
use engine::{Fence, Grant, Holder, Tick};
use record::RecordTerms;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Books {
    core: usize,
    shared: Arc<Shared>,
    replies: Rc<DurableReplies>,
}

/// A lock that was given back, or one count of it.
pub(crate) struct GivenBack<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) fence: Fence,
    /// What is left of a reentrant hold; it ends with zero.
    pub(crate) count: u32,
    pub(crate) held_ms: u64,
}

impl Books {
    pub(crate) fn new(core: usize, shared: Arc<Shared>, replies: Rc<DurableReplies>) -> Self {
        Books {
            core,
            shared,
            replies,
        }
    }

    fn metrics(&self) -> &CoreMetrics {
        self.shared.metrics.core(self.core)
    }

    /// Where audit events are left, if the settings ask for an audit log.
    #[inline]
    fn audit(&self) -> Option<&Audit> {
        self.shared.audit()
    }

    /// `owner` was granted a lock that `asker` asked for: its session, unless the lock is detached.
    /// The asker waited for it so long.
    #[inline]
    pub(crate) fn granted(
        &self,
        owner: &Session,
        asker: &Connection,
        terms: &Terms<'_>,
        grant: &Grant,
        waited_ms: u64,
        now: Tick,
    ) {
        let metrics = self.metrics();
        metrics.acquire_grants.bump();
        metrics.acquire_wait.record_alone(waited_ms);
        if grant.count == 1 {
            self.count_begun(owner);
        }
        if let Some(audit) = self.audit() {
            audit.granted(asker.actor(), terms, grant, waited_ms);
        }
        if !terms.trace_id.is_empty() {
            log_traced(terms, grant, waited_ms);
        }
        self.record_grant(owner, grant, &RecordTerms::of(terms), now);
    }

    /// A grant, booked before, went to a waiter so long after the last holder was rid of the lock.
    pub(crate) fn handed_off(&self, after: Duration) {
        let us = after.as_micros() as u64;
        self.metrics().hand_off.record_alone(us);
    }

    /// A grant found its connection gone. The lock was given back after `held_ms`; `None`: it had
    /// ended by itself. Neither is written down: the grant was not.
    pub(crate) fn returned(
        &self,
        session: Option<Arc<Session>>,
        waiter: &Waiter,
        grant: &Grant,
        held_ms: Option<u64>,
        now: Tick,
    ) {
        let metrics = self.metrics();
        metrics.holds_begun.bump();
        if let Some(held_ms) = held_ms {
            metrics.holds_ended.bump();
            metrics.grants_returned.bump();
            metrics.held.record_alone(held_ms);
        }
        if let Some(audit) = self.audit() {
            let waited_ms = waiter.asked.ms_until(now);
            audit.returned(session, &waiter.terms(), grant, waited_ms, held_ms);
        }
    }

    /// A client claimed a lock that its session held before the server restarted. `is_new`: it had
    /// not claimed it before.
    pub(crate) fn claimed(
        &self,
        asker: &Connection,
        terms: &Terms<'_>,
        grant: &Grant,
        is_new: bool,
        now: Tick,
    ) {
        let session = &asker.session;
        if is_new {
            self.count_begun(session);
            self.shared.recovery.count_claim();
        }
        self.record_grant(session, grant, &RecordTerms::of(terms), now);
        self.record_superseded(terms.key);
        if let Some(audit) = self.audit() {
            audit.claimed(asker.actor(), terms, grant);
        }
    }

    /// A grant, booked before, took the place of every other holder of its key.
    pub(crate) fn superseded_others(&self, key: &[u8]) {
        self.record_superseded(key);
    }

    /// The answer to a repeated acquire relies on this hold being in the log. Its first record may
    /// not be on the disk yet, nor even in the log: writes it down once more.
    pub(crate) fn write_again(&self, owner: &Session, key: &[u8], holder: &Holder, now: Tick) {
        let grant = Grant {
            fence: holder.fence,
            until: holder.until,
            count: holder.count,
        };
        self.record_grant(owner, &grant, &RecordTerms::of_holder(key, holder), now);
    }

    /// A lease was renewed.
    #[inline]
    pub(crate) fn renewed(
        &self,
        session: &Session,
        key: &[u8],
        fence: Fence,
        until: Tick,
        now: Tick,
    ) {
        self.record_renewal(session, key, fence, until, now);
    }

    /// `owner`'s lock was given back by `asker`: its session, unless the lock is detached.
    #[inline]
    pub(crate) fn released(
        &self,
        owner: &Session,
        asker: &Connection,
        given_back: &GivenBack<'_>,
        now: Tick,
    ) {
        let GivenBack {
            key,
            fence,
            count,
            held_ms,
        } = *given_back;
        let metrics = self.metrics();
        metrics.releases.bump();
        if count == 0 {
            metrics.holds_ended.bump();
            metrics.held.record_alone(held_ms);
            owner.count_held(self.core, -1);
            let holdings = &self.shared.engine.host().losses.holdings;
            holdings.remove(key, fence.get());
        }
        if let Some(audit) = self.audit() {
            audit.released(asker.actor(), key, fence.get(), count, held_ms);
        }
        self.record_release(key, fence.get(), count, now);
    }

    /// An exclusive lock became a shared one.
    pub(crate) fn downgraded(&self, key: &[u8], fence: Fence) {
        self.record_downgrade(key, fence.get());
    }

    /// `operator` took a lock away from its holder. That the holder lost it is booked by
    /// [`Losses`](super::losses::Losses). The trace is the operator's; empty if it named none.
    pub(crate) fn forced(
        &self,
        operator: &Connection,
        key: &[u8],
        fence: Fence,
        trace_id: &str,
        now: Tick,
    ) {
        if let Some(audit) = self.audit() {
            audit.forced(operator.actor(), key, fence.get(), trace_id);
        }
        self.record_taken_away(key, fence, now);
    }

    /// The same by an operator over HTTP.
    pub(crate) fn forced_over_http(
        &self,
        operator: Arc<Operator>,
        key: &[u8],
        fence: Fence,
        now: Tick,
    ) {
        if let Some(audit) = self.audit() {
            audit.forced_over_http(operator, key, fence.get());
        }
        self.record_taken_away(key, fence, now);
    }

    pub(crate) fn session_opened(&self, session: &Session) {
        self.record_session_opened(session);
        self.metrics().sessions_opened.bump();
    }

    /// A session was kept alive until then.
    pub(crate) fn session_kept(&self, session: &Session, until: Tick) {
        self.record_session_kept(session, until);
    }

    /// A client ended its session.
    pub(crate) fn session_ended(&self, session: &Session) {
        self.record_session_ended(session);
    }

    fn count_begun(&self, owner: &Session) {
        self.metrics().holds_begun.bump();
        owner.count_held(self.core, 1);
    }
}

/// A grant whose asker named its trace has a line in the log, for operators that follow traces
/// there.
#[cold]
fn log_traced(terms: &Terms<'_>, grant: &Grant, waited_ms: u64) {
    let (key, fence, trace_id) = (terms.key.escape_ascii(), grant.fence.get(), terms.trace_id);
    tracing::debug!(%key, fence, trace_id, waited_ms, "granted");
}
