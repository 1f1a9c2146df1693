//! Sessions as the server knows them: secret, name, connections, and what was answered lately.
//!
//! The engine knows a session as an id that lives or has ended. Here is what belongs to it on the
//! network side. A session may have connections on several cores, so it is shared; nothing here is
//! touched while an ordinary request is decided, except that outcomes are remembered once per
//! batch.
//!
//! A session has two names. The engine's id names a place in its tables and starts over with every
//! start of the server. The public one is random, is what clients and logs see, and outlives a
//! restart; with it goes a secret that a server with the same key can check (`secret.rs`).
//!
//! | file          | what                                                                 |
//! |---------------|----------------------------------------------------------------------|
//! | `mod.rs`      | one session                                                          |
//! | `actor.rs`    | the client at the other end of a connection, for the audit log       |
//! | `outcomes.rs` | its connections, and what they and it remember                       |
//! | `registry.rs` | all sessions, by either name                                         |
//! | `secret.rs`   | names and secrets                                                    |
//! | `redis_form.rs` | locks of Redis clients in the engine: session, value, database     |
//! | `operator.rs` | an operator who acts over HTTP, without a session                    |
//! | `detached.rs` | the session of the server's own that detached locks belong to        |

pub(crate) mod actor;
mod connection_id;
pub(crate) mod detached;
pub(crate) mod operator;
pub(crate) mod outcomes;
pub(crate) mod redis_form;
pub(crate) mod registry;
pub(crate) mod secret;
#[cfg(test)]
mod tests;
pub(crate) mod waiter;

pub(crate) use connection_id::ConnectionId;

use engine::{BoundMark, Fence, Grant, SessionId, Span, Tick};
use outcomes::{Link, Links, Memory, Outcomes, Recollection, Remembered};
use parking_lot::Mutex;
use protocol::Lease;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wal::RecoveredSession;

/// One client process.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) public_id: u64,
    /// The name of the token that it was opened with; empty if that has none. Not set for a session
    /// that was read from the log, until its client comes back.
    token_name: OnceLock<Arc<str>>,
    pub(crate) client_name: Box<str>,
    pub(crate) ttl_ms: u32,
    pub(crate) opened: Tick,
    /// When it was last kept alive, so that not every batch does it.
    kept_ms: AtomicU64,
    is_ending: AtomicBool,
    /// It has, or has had, a lease that is written down by itself although short ones are not. Then
    /// its signs of life are written down, too.
    is_logged: AtomicBool,
    /// Some lock lives, or has lived, as long as this session.
    bound: BoundMark,
    /// The highest id that came again.
    repeated_through: AtomicU64,
    links: Mutex<Links>,
    /// Locks taken minus locks released, per core; each written by its own core only.
    held_by_core: Box<[AtomicI64]>,
    /// Locks lost.
    pub(crate) lost: AtomicI64,
    waiting: AtomicI64,
    memory: Arc<Memory>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let counted = self.links.get_mut().counted;
        self.memory.kept.fetch_sub(counted, Ordering::Relaxed);
        self.memory.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        public_id: u64,
        client_name: &str,
        ttl_ms: u32,
        core_count: usize,
        now: Tick,
        memory: Arc<Memory>,
    ) -> Self {
        memory.sessions.fetch_add(1, Ordering::Relaxed);
        Session {
            id,
            public_id,
            token_name: OnceLock::new(),
            client_name: client_name.into(),
            ttl_ms,
            opened: now,
            kept_ms: AtomicU64::new(now.as_ms()),
            is_ending: AtomicBool::new(false),
            is_logged: AtomicBool::new(false),
            bound: BoundMark::new(),
            repeated_through: AtomicU64::new(0),
            links: Mutex::default(),
            held_by_core: (0..core_count).map(|_| AtomicI64::new(0)).collect(),
            lost: AtomicI64::new(0),
            waiting: AtomicI64::new(0),
            memory,
        }
    }

    /// Whether a client with a token of this name may use it. One that comes first settles that.
    pub(crate) fn is_of(&self, token_name: &Arc<str>) -> bool {
        self.token_name.get_or_init(|| token_name.clone()) == token_name
    }

    /// The name of the token that it was opened with, as far as it is known.
    pub(crate) fn token_name(&self) -> Option<&Arc<str>> {
        self.token_name.get()
    }

    /// What the engine is asked for by a request with this lease, of a lock that is to be this
    /// session's. A lock that ends with the session is marked here, before the engine grants it:
    /// see [`BoundMark`].
    pub(crate) fn span(&self, lease: Lease) -> Span {
        if lease == Lease::Session {
            self.mark_bound();
        }
        lease.into()
    }

    /// A lock of this session ends with it.
    pub(crate) fn mark_bound(&self) {
        self.bound.set();
    }

    pub(crate) fn mark_logged(&self) {
        self.is_logged.store(true, Ordering::Release);
    }

    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged.load(Ordering::Acquire)
    }

    /// Whether some lock lives by this session. Asked after the session was kept alive.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.is_set()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// What became of requests before the one with this id is not known: the server that answered
    /// them is gone.
    pub(crate) fn forget_before(&self, request_id: u64) {
        let mut links = self.links.lock();
        if std::mem::take(&mut links.is_restored) {
            links.forgotten = links.forgotten.max(request_id);
        }
    }

    /// It was read from a log that says which of its requests were answered with grants: those are
    /// answered in the same way when they are repeated, and none of the others had an effect.
    pub(crate) fn remember(&self, recovered: &RecoveredSession) {
        let mut links = self.links.lock();
        links.forgotten = recovered.answers_forgotten;
        for answer in &recovered.answers {
            let grant = Grant {
                fence: Fence::new(answer.fence).expect("the log takes no other fences"),
                // Asked for again when it is answered.
                until: Tick::default(),
                count: answer.count,
            };
            (links.past).insert(answer.request, Remembered::Granted(grant));
        }
        links.trim(&self.memory);
    }

    /// It was read from the log.
    pub(crate) fn mark_restored(&self) {
        self.links.lock().is_restored = true;
    }

    /// Adds a connection. Returns where it remembers its outcomes.
    pub(crate) fn attach(&self, id: ConnectionId, address: SocketAddr) -> Arc<Mutex<Outcomes>> {
        let outcomes = Arc::new(Mutex::new(Outcomes::default()));
        self.links.lock().connections.push(Link {
            id,
            address,
            outcomes: outcomes.clone(),
        });
        outcomes
    }

    /// Takes a connection away that is gone, and keeps what it remembered.
    pub(crate) fn detach(&self, id: ConnectionId) {
        let mut links = self.links.lock();
        if let Some(position) = links.connections.iter().position(|link| link.id == id) {
            let link = links.connections.remove(position);
            let outcomes = link.outcomes.lock();
            links.forgotten = links.forgotten.max(outcomes.forgotten);
            links.past.extend(outcomes.latest.iter().copied());
            links.trim(&self.memory);
        }
    }

    /// Writes down that these requests waited for nothing: should they come again, they are new.
    pub(crate) fn remember_unanswered(&self, request_ids: impl Iterator<Item = u64>) {
        let mut links = self.links.lock();
        links
            .past
            .extend(request_ids.map(|id| (id, Remembered::Unanswered)));
        links.trim(&self.memory);
    }

    pub(crate) fn connections(&self) -> Vec<ConnectionId> {
        self.links
            .lock()
            .connections
            .iter()
            .map(|link| link.id)
            .collect()
    }

    /// The newest connection: where pushes go.
    pub(crate) fn latest_connection(&self) -> Option<ConnectionId> {
        self.links.lock().connections.last().map(|link| link.id)
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.links
            .lock()
            .connections
            .last()
            .map(|link| link.address)
    }

    /// Writes down that a request came again: its first sending, if that is read only now, is to
    /// have no effect.
    pub(crate) fn note_repeat(&self, request_id: u64) {
        let mut links = self.links.lock();
        links.repeated.insert(request_id);
        links.trim(&self.memory);
        self.repeated_through
            .fetch_max(request_id, Ordering::Relaxed);
    }

    /// Whether a request came again, on another connection. Ids rise, so that most are above all
    /// that ever did.
    #[inline]
    pub(crate) fn was_repeated(&self, request_id: u64) -> bool {
        request_id <= self.repeated_through.load(Ordering::Relaxed)
            && self.links.lock().repeated.contains(&request_id)
    }

    /// What became of a request that is now repeated, on whichever connection it came first.
    ///
    /// A connection decides with its outcomes locked. So one that decides the first sending at this
    /// moment is waited for; and one that comes to it later finds, by `was_repeated`, what
    /// `note_repeat` wrote down before this. The caller must not have any outcomes locked: two
    /// callers that wait for each other would wait for ever.
    pub(crate) fn recall(&self, request_id: u64) -> Recollection {
        let live: Vec<_> = {
            let links = self.links.lock();
            let outcomes = links.connections.iter().map(|link| link.outcomes.clone());
            outcomes.collect()
        };
        let mut forgotten = 0;
        for outcomes in live {
            let outcomes = outcomes.lock();
            if let Some(outcome) = outcomes.find(request_id) {
                return Recollection::Outcome(outcome);
            }
            forgotten = forgotten.max(outcomes.forgotten);
        }
        let links = self.links.lock();
        forgotten = forgotten.max(links.forgotten);
        match links.past.get(&request_id) {
            Some(Remembered::Unanswered) => Recollection::NoEffect,
            Some(outcome) => Recollection::Outcome(*outcome),
            // Ids rise, so what is higher than all that was forgotten would be remembered.
            None if request_id > forgotten => Recollection::NoEffect,
            None => Recollection::Forgotten,
        }
    }

    /// Whether enough time has passed since the last time to keep the session alive again.
    pub(crate) fn wants_keeping(&self, now: Tick) -> bool {
        let kept_ms = self.kept_ms.load(Ordering::Relaxed);
        if now.as_ms().saturating_sub(kept_ms) < u64::from(self.ttl_ms / 8) {
            return false;
        }
        self.kept_ms.store(now.as_ms(), Ordering::Relaxed);
        true
    }

    /// Counts locks taken (or, negative, given back) through one core. Only that core calls this.
    pub(crate) fn count_held(&self, core: usize, change: i64) {
        let held = &self.held_by_core[core];
        held.store(held.load(Ordering::Relaxed) + change, Ordering::Relaxed);
    }

    pub(crate) fn count_waiting(&self, change: i64) {
        self.waiting.fetch_add(change, Ordering::Relaxed);
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed).max(0) as u32
    }

    pub(crate) fn held(&self) -> u32 {
        let taken: i64 = self
            .held_by_core
            .iter()
            .map(|held| held.load(Ordering::Relaxed))
            .sum();
        (taken - self.lost.load(Ordering::Relaxed)).max(0) as u32
    }
}
