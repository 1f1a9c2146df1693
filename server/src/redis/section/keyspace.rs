//! The keyspace before anything in it is locked: where a command's keys are named, and the only way
//! to lock them.
//!
//! A [`Section`] borrows its [`Keyspace`] mutably for as long as it lives. So whatever needs a
//! keyspace (naming keys, looking through all stripes, opening another section) does not compile
//! inside a section, and no core waits for a stripe that it holds itself.

use super::Section;
use crate::conn::connection::Connection;
use crate::core::Core;
use crate::redis::channels::Channels;
use crate::redis::name::Name;
use crate::redis::refusal::Refusal;
use crate::redis::signals::Signals;
use crate::rights::Entitlement;
use crate::session::Session;
use crossbeam_utils::CachePadded;
use engine::{Seat, Tick};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The keyspace, as all cores share it.
pub(crate) struct Space {
    /// The session that holds the locks of all Redis clients.
    pub(crate) session: Arc<Session>,
    pub(crate) channels: Channels,
    /// Commands that wait for an element of a list.
    pub(crate) list_waiters: AtomicUsize,
    /// One mutex for each shard of the engine. Only a [`Keyspace`] locks them.
    stripes: Box<[CachePadded<Mutex<Signals>>]>,
}

impl Space {
    pub(crate) fn new(session: Arc<Session>, shard_count: usize) -> Self {
        Space {
            session,
            channels: Channels::default(),
            list_waiters: AtomicUsize::new(0),
            stripes: (0..shard_count).map(|_| CachePadded::default()).collect(),
        }
    }
}

/// The keyspace, as one command finds it.
pub(crate) struct Keyspace<'a> {
    pub(crate) core: &'a Core,
    connection: &'a Connection,
    space: &'a Space,
    seat: &'a mut Seat,
    pub(crate) now: Tick,
    bounds: Option<&'a Entitlement>,
}

impl<'a> Keyspace<'a> {
    /// For a command that came on this connection. `bounds` are those of its sender, if it has any.
    pub(crate) fn new(
        core: &'a Core,
        connection: &'a Connection,
        space: &'a Space,
        seat: &'a mut Seat,
        now: Tick,
        bounds: Option<&'a Entitlement>,
    ) -> Self {
        Keyspace {
            bounds,
            core,
            connection,
            space,
            seat,
            now,
        }
    }

    /// The name of a key in a database.
    pub(crate) fn name<'n>(&self, db: u8, key: &'n [u8]) -> Result<Name<'n>, Refusal> {
        Name::new(db, key, |key| self.core.shared.engine.shard_of(key))
    }

    /// The names of the signal lists that `is_wanted` picks. Locks one stripe after the other.
    pub(crate) fn lists(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for stripe in &self.space.stripes {
            let signals = stripe.lock();
            let lists = signals.names(self.now).filter(|list| is_wanted(list));
            found.extend(lists.map(Box::<[u8]>::from));
        }
        found
    }

    /// Locks the stripes of the keys. Waits as long as another core's command takes.
    pub(crate) fn open(&mut self, names: &[Name<'_>]) -> Section<'_> {
        let space = self.space;
        let lock = |number: usize| (number, space.stripes[number].lock());
        let stripes = match names {
            [name] => SmallVec::from_iter([lock(name.stripe())]),
            names => {
                // In ascending order, so that two cores never wait for each other.
                let mut numbers: SmallVec<[usize; 4]> = names.iter().map(Name::stripe).collect();
                numbers.sort_unstable();
                numbers.dedup();
                numbers.into_iter().map(lock).collect()
            }
        };
        Section {
            now: self.now,
            core: self.core,
            connection: self.connection,
            space,
            seat: self.seat,
            stripes,
            bounds: self.bounds,
        }
    }
}
