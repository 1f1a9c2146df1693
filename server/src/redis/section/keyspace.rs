//! The keyspace before anything in it is locked: where a command's keys are named, and the only way
//! to lock them.
//!
//! A [`Section`] borrows its [`Keyspace`] mutably for as long as it lives. So whatever needs a
//! keyspace (naming keys, looking through all stripes, opening another section) does not compile
//! inside a section, and no core waits for a stripe that it holds itself.

use super::Section;
use crate::core::Core;
use crate::redis::name::Name;
use crate::redis::port::Port;
use crate::redis::refusal::Refusal;
use crate::redis::signals::Signals;
use crossbeam_utils::CachePadded;
use engine::{Seat, Tick};
use parking_lot::Mutex;
use smallvec::SmallVec;

/// The mutexes of the keyspace, one for each shard of the engine. Only a [`Keyspace`] locks them.
pub(crate) struct Stripes(Box<[CachePadded<Mutex<Signals>>]>);

impl Stripes {
    pub(crate) fn new(shard_count: usize) -> Self {
        Stripes((0..shard_count).map(|_| CachePadded::default()).collect())
    }
}

/// The keyspace, as one command finds it.
pub(crate) struct Keyspace<'a> {
    pub(crate) core: &'a Core,
    pub(crate) port: &'a Port,
    seat: &'a mut Seat,
    pub(crate) now: Tick,
}

impl<'a> Keyspace<'a> {
    pub(crate) fn new(core: &'a Core, port: &'a Port, seat: &'a mut Seat, now: Tick) -> Self {
        Keyspace {
            core,
            port,
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
        for stripe in &self.port.stripes.0 {
            let signals = stripe.lock();
            let lists = signals.names(self.now).filter(|list| is_wanted(list));
            found.extend(lists.map(Box::<[u8]>::from));
        }
        found
    }

    /// Locks the stripes of the keys. Waits as long as another core's command takes.
    pub(crate) fn open(&mut self, names: &[Name<'_>]) -> Section<'_> {
        let port = self.port;
        let lock = |number: usize| (number, port.stripes.0[number].lock());
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
            port,
            seat: self.seat,
            stripes,
        }
    }
}
