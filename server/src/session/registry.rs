//! All sessions of a server, by the engine's id and by their public one.

use super::Session;
use super::outcomes::{KEPT_MAX, Memory};
use super::secret::PUBLIC_ID_BITS;
use engine::SessionId;
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

type Map = RwLock<HashMap<SessionId, Arc<Session>>>;
type PublicMap = RwLock<BTreeMap<u64, Arc<Session>>>;

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

    /// `true` for the first call that says that this session is to be taken down.
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

#[cfg(test)]
impl Registry {
    /// Keeps everything out of reach but the first range of public ids, as long as what is returned
    /// is there.
    pub(super) fn lock_all_but_first(&self) -> impl Sized + '_ {
        let by_id: Vec<_> = self.maps.iter().map(|map| map.write()).collect();
        let public: Vec<_> = self.public[1..].iter().map(|map| map.write()).collect();
        (by_id, public)
    }
}

/// The map of a public id: a range of them, in their order.
fn public_map(public_id: u64) -> usize {
    let number = public_id >> (PUBLIC_ID_BITS - MAP_BITS);
    // Longer ones than this server makes would come out of a log that it has not written.
    (number as usize).min(MAP_COUNT - 1)
}
