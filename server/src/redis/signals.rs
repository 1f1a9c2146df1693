//! Signal lists: what `LPUSH` leaves for `BLPOP`. python-redis-lock wakes one waiter with them.
//! They carry no lock and are not durable: a signal that a restart loses costs its waiter a
//! timeout.
//!
//! Each stripe of the keyspace has one such table, behind the stripe's mutex.

use super::long_ttl::LongTtls;
use super::refusal::Refusal;
use crate::session::ConnectionId;
use engine::Tick;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// How many elements a list may have. A signal is one element.
const ELEMENTS_MAX: usize = 1_024;

/// How many lists one stripe may have.
const LISTS_MAX: usize = 16_384;

/// From so many lists on, those that have ended are removed before another one is made.
const SWEEP_FROM: usize = 256;

/// The longest element.
const ELEMENT_BYTES_MAX: usize = 1_024;

/// The lists of one stripe and their waiters.
#[derive(Default)]
pub(crate) struct Signals {
    lists: HashMap<Box<[u8]>, List>,
    waiting: HashMap<Box<[u8]>, VecDeque<ConnectionId>>,
    /// Rises with every change, for `WATCH`.
    changes: u64,
    sweep_at: usize,
    /// The ends of this stripe's locks that the engine does not know.
    pub(crate) long_ttls: LongTtls,
}

struct List {
    elements: VecDeque<Box<[u8]>>,
    until: Tick,
    /// Its end, if that lies further ahead than a tick can say.
    long_ttl_end_unix_ms: Option<u64>,
    /// The number of its latest change.
    change: u64,
    /// Whether it is a set, whose elements have no order and are distinct.
    is_set: bool,
}

impl Signals {
    fn list(&self, name: &[u8], now: Tick) -> Option<&List> {
        self.lists.get(name).filter(|list| !list.until.is_over(now))
    }

    /// Whether there is a list of this name. A list has at least one element.
    pub(crate) fn exists(&self, name: &[u8], now: Tick) -> bool {
        !self.lists.is_empty() && self.list(name, now).is_some()
    }

    pub(crate) fn is_set(&self, name: &[u8], now: Tick) -> bool {
        !self.lists.is_empty() && self.list(name, now).is_some_and(|list| list.is_set)
    }

    pub(crate) fn len(&self, name: &[u8], now: Tick) -> usize {
        self.list(name, now).map_or(0, |list| list.elements.len())
    }

    /// When a list ends; [`Tick::NEVER`] unless `EXPIRE` has set an end.
    pub(crate) fn until(&self, name: &[u8], now: Tick) -> Option<Tick> {
        self.list(name, now).map(|list| list.until)
    }

    /// When a list ends, if [`Self::until`] cannot say it.
    pub(crate) fn long_ttl_end(&self, name: &[u8], now: Tick) -> Option<u64> {
        self.list(name, now)
            .and_then(|list| list.long_ttl_end_unix_ms)
    }

    /// A number that differs after every change of this list. Zero if there is no list.
    pub(crate) fn change(&self, name: &[u8], now: Tick) -> u64 {
        self.list(name, now).map_or(0, |list| list.change)
    }

    /// Pushes elements to the front of a list, one after the other. Returns how many it has then.
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        elements: &[&[u8]],
        now: Tick,
    ) -> Result<usize, Refusal> {
        if let Some(long) = elements
            .iter()
            .find(|element| element.len() > ELEMENT_BYTES_MAX)
        {
            return Err(Refusal::text(format!(
                "ERR an element of a signal list has at most {ELEMENT_BYTES_MAX} bytes; this one has {}",
                long.len()
            )));
        }
        if self.len(name, now) + elements.len() > ELEMENTS_MAX {
            return Err(Refusal::text(format!(
                "OOM a signal list has at most {ELEMENTS_MAX} elements"
            )));
        }
        if !self.exists(name, now) {
            self.make_room(now)?;
            let list = List {
                elements: VecDeque::new(),
                until: Tick::NEVER,
                long_ttl_end_unix_ms: None,
                change: 0,
                is_set: false,
            };
            self.lists.insert(name.into(), list);
        }
        self.changes += 1;
        let list = self
            .lists
            .get_mut(name)
            .expect("it is there, or was just made");
        list.change = self.changes;
        for element in elements {
            list.elements.push_front((*element).into());
        }
        Ok(list.elements.len())
    }

    /// Adds members to a set, which is made if there is none. Returns how many are new.
    pub(crate) fn add_members(
        &mut self,
        name: &[u8],
        members: &[&[u8]],
        now: Tick,
    ) -> Result<usize, Refusal> {
        let list = self.list(name, now);
        let there = |member: &&[u8]| {
            list.is_some_and(|list| list.elements.iter().any(|element| **element == **member))
        };
        let mut new: Vec<&[u8]> = members
            .iter()
            .filter(|member| !there(member))
            .copied()
            .collect();
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            self.push(name, &new, now)?;
            if let Some(set) = self.lists.get_mut(name) {
                set.is_set = true;
            }
        }
        Ok(new.len())
    }

    fn make_room(&mut self, now: Tick) -> Result<(), Refusal> {
        if self.lists.len() >= self.sweep_at.max(SWEEP_FROM) {
            self.lists.retain(|_, list| !list.until.is_over(now));
            self.sweep_at = self.lists.len() * 2;
        }
        if self.lists.len() >= LISTS_MAX {
            return Err(Refusal::text(
                "OOM there are as many signal lists as there may be",
            ));
        }
        Ok(())
    }

    /// Takes the first element of a list. With the last one the list ends.
    pub(crate) fn pop(&mut self, name: &[u8], now: Tick) -> Option<Box<[u8]>> {
        if !self.exists(name, now) || self.is_set(name, now) {
            return None;
        }
        self.changes += 1;
        let list = self.lists.get_mut(name)?;
        list.change = self.changes;
        let element = list.elements.pop_front();
        if list.elements.is_empty() {
            self.lists.remove(name);
        }
        element
    }

    /// Ends a list. `false`: there was none.
    pub(crate) fn remove(&mut self, name: &[u8], now: Tick) -> bool {
        !self.lists.is_empty()
            && self
                .lists
                .remove(name)
                .is_some_and(|list| !list.until.is_over(now))
    }

    /// Sets when a list ends. `false`: there is none.
    pub(crate) fn expire(
        &mut self,
        name: &[u8],
        until: Tick,
        long_ttl_end_unix_ms: Option<u64>,
        now: Tick,
    ) -> bool {
        if !self.exists(name, now) {
            return false;
        }
        self.changes += 1;
        if let Some(list) = self.lists.get_mut(name) {
            list.until = until;
            list.long_ttl_end_unix_ms = long_ttl_end_unix_ms;
            list.change = self.changes;
        }
        true
    }

    /// The names of all lists.
    pub(crate) fn names(&self, now: Tick) -> impl Iterator<Item = &[u8]> {
        let live = self
            .lists
            .iter()
            .filter(move |(_, list)| !list.until.is_over(now));
        live.map(|(name, _)| &**name)
    }

    // ---- waiters

    /// Queues a connection for an element.
    pub(crate) fn wait(&mut self, name: &[u8], connection: ConnectionId) {
        self.waiting
            .entry(name.into())
            .or_default()
            .push_back(connection);
    }

    /// Whether another connection is first in the queue.
    pub(crate) fn is_behind(&self, name: &[u8], connection: ConnectionId) -> bool {
        let line = self.waiting.get(name);
        line.and_then(VecDeque::front)
            .is_some_and(|first| *first != connection)
    }

    /// The first waiter, which is to be woken.
    pub(crate) fn first_waiting(&self, name: &[u8]) -> Option<ConnectionId> {
        self.waiting.get(name).and_then(VecDeque::front).copied()
    }

    /// Takes a connection out of the queue.
    pub(crate) fn leave(&mut self, name: &[u8], connection: ConnectionId) {
        if let Some(line) = self.waiting.get_mut(name) {
            line.retain(|other| *other != connection);
            if line.is_empty() {
                self.waiting.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::from_ms(ms)
    }

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId {
            core: 0,
            slot,
            generation: 0,
        }
    }

    #[test]
    fn a_list_is_there_as_long_as_it_has_elements_and_time() {
        let mut signals = Signals::default();
        assert_eq!(signals.push(b"s", &[b"1", b"2"], at(0)), Ok(2));
        assert_eq!(signals.pop(b"s", at(0)).as_deref(), Some(&b"2"[..]));
        assert!(signals.expire(b"s", at(5), None, at(0)));
        assert!(signals.exists(b"s", at(5)));
        assert!(!signals.exists(b"s", at(6)));
        assert_eq!(
            signals.push(b"s", &[b"3"], at(6)),
            Ok(1),
            "the old elements went with their time"
        );
        assert_eq!(signals.pop(b"s", at(6)).as_deref(), Some(&b"3"[..]));
        assert!(!signals.exists(b"s", at(6)));
        assert_eq!(signals.pop(b"s", at(6)), None);
    }

    #[test]
    fn a_set_has_each_member_once_and_is_no_list() {
        let mut signals = Signals::default();
        assert_eq!(signals.add_members(b"s", &[b"1", b"2", b"1"], at(0)), Ok(2));
        assert_eq!(signals.add_members(b"s", &[b"2", b"3"], at(0)), Ok(1));
        assert_eq!(signals.add_members(b"s", &[b"3"], at(0)), Ok(0));
        assert!(signals.is_set(b"s", at(0)));
        assert_eq!(signals.pop(b"s", at(0)), None);
        assert!(signals.remove(b"s", at(0)));
        assert_eq!(signals.push(b"s", &[b"1"], at(0)), Ok(1));
        assert!(!signals.is_set(b"s", at(0)));
    }

    #[test]
    fn lists_are_bounded() {
        let mut signals = Signals::default();
        let element: &[u8] = b"x";
        assert!(
            signals
                .push(b"s", &vec![element; ELEMENTS_MAX], at(0))
                .is_ok()
        );
        assert!(signals.push(b"s", &[b"y"], at(0)).is_err());
        assert_eq!(signals.len(b"s", at(0)), ELEMENTS_MAX);
        for number in 1..LISTS_MAX as u32 {
            assert!(signals.push(&number.to_le_bytes(), &[b"x"], at(0)).is_ok());
        }
        assert!(signals.push(b"one more", &[b"x"], at(0)).is_err());
        assert!(signals.expire(b"s", at(1), None, at(0)));
        signals.sweep_at = 0;
        assert!(
            signals.push(b"one more", &[b"x"], at(2)).is_ok(),
            "one has made room"
        );
        assert!(
            signals
                .push(b"t", &[&[0; ELEMENT_BYTES_MAX + 1]], at(2))
                .is_err()
        );
    }

    #[test]
    fn those_who_wait_stand_in_line() {
        let mut signals = Signals::default();
        signals.wait(b"s", connection(1));
        signals.wait(b"s", connection(2));
        assert!(signals.is_behind(b"s", connection(2)));
        assert!(!signals.is_behind(b"s", connection(1)));
        signals.leave(b"s", connection(1));
        assert_eq!(signals.first_waiting(b"s"), Some(connection(2)));
        signals.leave(b"s", connection(2));
        assert_eq!(signals.first_waiting(b"s"), None);
        assert!(signals.waiting.is_empty());
    }
}
