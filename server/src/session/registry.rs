//! Sessions as the server knows them: secret, name, connections, and what was answered lately.
//!
//! The engine knows a session as an id that lives or has ended. Here is what belongs to it on the network side. A session
//! may have connections on several cores, so it is shared; nothing here is touched while an ordinary request is decided,
//! except that outcomes are remembered once per batch.
//!
//! A session has two names. The engine's id names a place in its tables and starts over with every start of the server. The
//! public one is random, is what clients and logs see, and outlives a restart; with it goes a secret that whoever has the
//! server's key can check (`secret.rs`).

use crate::conn::id::ConnectionId;
use crate::session::secret::PUBLIC_ID_BITS;
use engine::{BoundMark, Grant, SessionId, Span, Tick};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use protocol::{Lease, SessionSecret};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// How many outcomes each connection remembers, in case its requests are repeated on another one.
pub(crate) const REMEMBERED_MAX: usize = 256;

/// How many outcomes a session remembers of connections that are gone: the ones with the highest ids.
const PAST_MAX: usize = 8 * REMEMBERED_MAX;

/// How many requests that came again a session knows by their ids, in case the first sending is yet to be read.
const REPEATED_MAX: usize = 4 * REMEMBERED_MAX;

/// How many outcomes and ids of repeated requests all sessions together keep before they have to
/// share: two million take about 150 MB. When there are more, a session that adds one keeps of each
/// no more than its share, an equal part of this. So there are never more than three times as many,
/// and a session that needs little loses nothing to those that take much.
const KEPT_MAX: usize = 2 << 20;

/// The least that such a share is.
const SHARE_MIN: usize = 16;

const MAP_COUNT: usize = 1 << MAP_BITS;
const MAP_BITS: u32 = 6;

/// How many random names are tried for a new session. One that is taken comes once in 2^36 times
/// with a hundred thousand sessions.
const NAMES_TRIED_MAX: usize = 8;

pub(crate) struct Registry {
    /// By the engine's id.
    maps: Box<[Map]>,
    /// By public id, each map with all ids of its range, so that they can be listed in order.
    /// Written first and cleared last.
    public: Box<[PublicMap]>,
    pub(crate) memory: Arc<Memory>,
}

/// How much all sessions remember of connections that are gone.
pub(crate) struct Memory {
    kept: AtomicUsize,
    kept_max: usize,
    sessions: AtomicUsize,
}

impl Memory {
    fn new(kept_max: usize) -> Arc<Self> {
        Arc::new(Memory {
            kept: AtomicUsize::new(0),
            kept_max,
            sessions: AtomicUsize::new(0),
        })
    }

    /// How many outcomes, and how many ids, one session may keep now.
    fn share(&self) -> usize {
        if self.kept.load(Ordering::Relaxed) <= self.kept_max {
            return usize::MAX;
        }
        let sessions = self.sessions.load(Ordering::Relaxed).max(1);
        (self.kept_max / sessions).max(SHARE_MIN)
    }
}

type Map = RwLock<HashMap<SessionId, Arc<Session>>>;
type PublicMap = RwLock<BTreeMap<u64, Arc<Session>>>;

/// One client process.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) public_id: u64,
    pub(crate) secret: SessionSecret,
    pub(crate) client_name: Box<str>,
    pub(crate) ttl_ms: u32,
    pub(crate) opened: Tick,
    /// When it was last kept alive, so that not every batch does it.
    kept_ms: AtomicU64,
    is_ending: AtomicBool,
    /// It has, or has had, a lease that is written down by itself although short ones are not. Then its
    /// signs of life are written down, too.
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

#[derive(Default)]
struct Links {
    connections: Vec<Link>,
    /// Of connections that are gone, by request id.
    past: BTreeMap<u64, Remembered>,
    /// The highest id whose outcome a connection that is gone no longer knew, or `past` had no room for.
    forgotten: u64,
    /// The ids that came again.
    repeated: BTreeSet<u64>,
    /// How much of `past` and `repeated` stands in [`Memory::kept`].
    counted: usize,
    /// The session outlived a restart, and nobody has come back to it yet.
    is_restored: bool,
}

struct Link {
    id: ConnectionId,
    address: SocketAddr,
    outcomes: Arc<Mutex<Outcomes>>,
}

/// The latest requests of one connection that changed something, and what they were answered.
#[derive(Default)]
pub(crate) struct Outcomes {
    latest: VecDeque<(u64, Remembered)>,
    /// The highest id whose outcome had to make room.
    forgotten: u64,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remembered {
    Granted(Grant),
    Released {
        count: u32,
    },
    /// It waited when its connection went, and was taken out of line.
    Unanswered,
}

/// What is known of a request that comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recollection {
    /// It took effect, and this was the answer.
    Outcome(Remembered),
    /// It has had no effect.
    NoEffect,
    /// It may have had one, so long ago that nobody knows.
    Forgotten,
}

impl Outcomes {
    pub(crate) fn extend(&mut self, outcomes: impl IntoIterator<Item = (u64, Remembered)>) {
        for outcome in outcomes {
            if self.latest.len() == REMEMBERED_MAX
                && let Some((id, _)) = self.latest.pop_front()
            {
                self.forgotten = self.forgotten.max(id);
            }
            self.latest.push_back(outcome);
        }
    }

    fn find(&self, request_id: u64) -> Option<Remembered> {
        self.latest
            .iter()
            .rev()
            .find(|(id, _)| *id == request_id)
            .map(|(_, outcome)| *outcome)
    }
}

impl Links {
    /// Lets the oldest go of what is more than this session may keep, and counts what is left.
    /// Outcomes that had no effect can be forgotten without a trace.
    fn trim(&mut self, memory: &Memory) {
        self.count(memory);
        let share = memory.share();
        while self.past.len() > PAST_MAX.min(share) {
            if let Some((id, outcome)) = self.past.pop_first()
                && outcome != Remembered::Unanswered
            {
                self.forgotten = self.forgotten.max(id);
            }
        }
        while self.repeated.len() > REPEATED_MAX.min(share) {
            self.repeated.pop_first();
        }
        self.count(memory);
    }

    fn count(&mut self, memory: &Memory) {
        let kept = self.past.len() + self.repeated.len();
        match kept.checked_sub(self.counted) {
            Some(more) => memory.kept.fetch_add(more, Ordering::Relaxed),
            None => memory
                .kept
                .fetch_sub(self.counted - kept, Ordering::Relaxed),
        };
        self.counted = kept;
    }
}

impl Registry {
    pub(crate) fn new() -> Self {
        Registry {
            maps: (0..MAP_COUNT).map(|_| RwLock::default()).collect(),
            public: (0..MAP_COUNT).map(|_| RwLock::default()).collect(),
            memory: Memory::new(KEPT_MAX),
        }
    }

    fn map(&self, id: SessionId) -> &Map {
        &self.maps[id.get() as usize % MAP_COUNT]
    }

    fn public(&self, public_id: u64) -> &PublicMap {
        &self.public[public_map(public_id)]
    }

    pub(crate) fn find(&self, id: SessionId) -> Option<Arc<Session>> {
        self.map(id).read().get(&id).cloned()
    }

    /// The session that clients know by this id.
    pub(crate) fn find_public(&self, public_id: u64) -> Option<Arc<Session>> {
        self.public(public_id).read().get(&public_id).cloned()
    }

    /// `false`: there is one with its public id already, and this one is not kept.
    pub(crate) fn insert(&self, session: Arc<Session>) -> bool {
        match self
            .public(session.public_id)
            .write()
            .entry(session.public_id)
        {
            Entry::Occupied(_) => return false,
            Entry::Vacant(place) => place.insert(session.clone()),
        };
        self.map(session.id).write().insert(session.id, session);
        true
    }

    pub(crate) fn remove(&self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.map(id).write().remove(&id)?;
        self.public(session.public_id)
            .write()
            .remove(&session.public_id);
        Some(session)
    }

    /// Registers a session under a name that no other has. `make` makes one under a random name; if
    /// another client's session has that name, it is asked again. `None`: every name was taken, and
    /// that is no accident.
    pub(crate) fn insert_new(&self, make: impl FnMut() -> Arc<Session>) -> Option<Arc<Session>> {
        std::iter::repeat_with(make)
            .take(NAMES_TRIED_MAX)
            .find(|session| self.insert(session.clone()))
    }

    /// `true` for the first who says that this session is to be taken down.
    pub(crate) fn begin_ending(&self, id: SessionId) -> bool {
        self.find(id)
            .is_some_and(|session| !session.is_ending.swap(true, Ordering::AcqRel))
    }

    /// Up to `limit` sessions with public ids above `after`, in the order of their ids.
    pub(crate) fn page(&self, after: u64, limit: usize) -> Vec<Arc<Session>> {
        let mut page = Vec::new();
        for map in &self.public[public_map(after)..] {
            let map = map.read();
            let behind = map.range((Bound::Excluded(after), Bound::Unbounded));
            let wanted = limit - page.len();
            page.extend(behind.map(|(_, session)| session.clone()).take(wanted));
            if page.len() == limit {
                break;
            }
        }
        page
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<Arc<Session>> = Vec::new();
        for map in &self.maps {
            all.extend(map.read().values().cloned());
        }
        all
    }
}

/// The map of a public id: a range of them, in their order.
fn public_map(public_id: u64) -> usize {
    let number = public_id >> (PUBLIC_ID_BITS - MAP_BITS);
    // Longer ones than this server makes would come out of a log that it has not written.
    (number as usize).min(MAP_COUNT - 1)
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        (public_id, secret): (u64, SessionSecret),
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
            secret,
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

    /// What the engine is asked for by a request with this lease, of a lock that is to be this
    /// session's. A lock that ends with the session is marked here, before the engine grants it: see
    /// [`BoundMark`].
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

    /// What became of requests before the one with this id nobody knows: the server that answered them is gone.
    pub(crate) fn forget_before(&self, request_id: u64) {
        let mut links = self.links.lock();
        if std::mem::take(&mut links.is_restored) {
            links.forgotten = links.forgotten.max(request_id);
        }
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

    /// Writes down that a request came again: its first sending, if that is read only now, is to have no effect.
    pub(crate) fn note_repeat(&self, request_id: u64) {
        let mut links = self.links.lock();
        links.repeated.insert(request_id);
        links.trim(&self.memory);
        self.repeated_through
            .fetch_max(request_id, Ordering::Relaxed);
    }

    /// Whether a request came again, on another connection. Ids rise, so that most are above all that ever did.
    #[inline]
    pub(crate) fn was_repeated(&self, request_id: u64) -> bool {
        request_id <= self.repeated_through.load(Ordering::Relaxed)
            && self.links.lock().repeated.contains(&request_id)
    }

    /// What became of a request that is now repeated, on whichever connection it came first.
    ///
    /// A connection decides with its outcomes locked. So one that decides the first sending at this moment is waited for;
    /// and one that comes to it later finds, by `was_repeated`, what `note_repeat` wrote down before this. The caller must
    /// not have any outcomes locked: two who wait for each other would wait for ever.
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

#[cfg(test)]
mod tests;
