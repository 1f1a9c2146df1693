//! The leases as replay finds them, ten million in well under a gigabyte.
//!
//! Keys stand one after the other in one buffer, what is known of each in an entry of 56 bytes, and
//! a table of entry numbers finds a key. A key that is released keeps its entry, empty: it is
//! likely to come back in the same log. Several shared holders of one key are a crowd and stand in
//! a map of their own, so that ten thousand readers of one key do not have to be searched for each
//! of their renewals.
//!
//! Nearly all of the time goes into waiting for memory, since every key falls into another corner
//! of the table. So grants are collected first and indexed a hundred at a time: the
//! processor then waits for many corners at once.
//!
//! # Order
//!
//! A thread appends the records of a turn when the turn ends, so records of different threads may
//! stand in the log in another order than their effects had. This is the whole list of what may be
//! reordered; everything else is appended in the order of its effect, to which
//! `server/src/core/books/record.rs` sees.
//!
//! - Records of different keys, and of different fences of one key.
//! - Of one key and fence: the grant, which may stand anywhere behind its place; the end
//!   (`Released` with nothing left), which may stand anywhere before its place; a downgrade, which
//!   may stand anywhere. Each of them may come more than once.
//! - Two records that set when one lease of a native client ends. The client may have renewed it
//!   again on another connection, because the core that served the first one stood still; it was
//!   told the second end, and the first core writes the earlier one behind it.
//!
//! # The rules
//!
//! So the rules give the same for all these orders.
//!
//! - **Between fences.** An exclusive grant says that every holder with a lower fence is gone,
//!   whichever is heard of first. A shared grant above an exclusive one says that the exclusive one
//!   is gone or became shared, and since nothing says which, it is kept, as shared.
//! - **An end is final.** A grant that is heard of behind its end is over.
//! - **A grant takes nothing back.** What was said of it before it was heard of itself is kept.
//! - **Of two ends the later one counts**, but for leases of the Redis port, which appends in the
//!   order of its effects: a `PEXPIRE` may shorten one.
//! - Whatever is kept too much ends with its lease; what is dropped was never held any more.
//!
//! All of this is about one life of a server. The next one may put a lock back that a holder
//! claims, under its old fence, so that ends of an earlier life say nothing any more.

mod holder;
mod image;

use crate::record::Lease;
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable, hash_map};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use types::Mode;

pub(crate) use holder::Owner;
use holder::{Ahead, Beside, Holder, beside, merged};
pub(crate) use image::{Ages, NotAnImage, Owners};

/// What an entry says of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Free,
    /// `Entry::holder` is valid.
    One,
    /// Look into `crowds`.
    Crowd,
    /// The key has another entry, and the index leads to that one only.
    Moved,
}

#[derive(Clone, Copy)]
struct Entry {
    holder: Holder,
    key_at: u64,
    /// Every grant of this life up to this fence is over.
    floor: u64,
    key_bytes: u16,
    held: Held,
    /// When a record last spoke of the key: see [`Leases::begin_generation`].
    generation: u8,
}

const _: () = assert!(size_of::<Entry>() <= 56);

/// The session that holds the locks of the Redis port: see docs/wal.md.
pub(crate) const REDIS_SESSION: u64 = 1;

/// How many grants are collected before they are indexed.
const PENDING_MAX: usize = 128;

/// The holders of all keys.
#[derive(Default)]
pub struct Leases {
    /// Those from `indexed` on are grants that are not in the index yet; their keys may be there
    /// already.
    entries: Vec<Entry>,
    indexed: usize,
    /// Entry numbers, by key.
    index: HashTable<u32>,
    hash_builder: DefaultHashBuilder,
    keys: Vec<u8>,
    /// By entry number and fence. All of a crowd are shared.
    crowds: HashMap<u32, BTreeMap<u64, Holder>>,
    /// By entry number and fence. Most grants have none; a note whose grant is gone stays for a
    /// while.
    notes: HashMap<(u32, u64), Box<[u8]>>,
    /// As soon as there are so many notes, those whose grants are gone are looked for.
    notes_max: usize,
    /// By entry number and fence: grants that are over without being at or below the floor, and
    /// what was said of grants that are yet to come. A ledger forgets them in time; otherwise they
    /// are not more than records in the log.
    ahead: HashMap<(u32, u64), Ahead>,
    /// Filled in at the end of replay: for each owner its session and when that ends, or `None` if
    /// it has ended.
    owners: Arc<[Option<LiveOwner>]>,
    /// The session of the Redis port, once it was granted something. All records of its leases
    /// stand in the order of their effects, so their latest end counts, not the last in time.
    redis: Option<Owner>,
    generation: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveOwner {
    pub(crate) session: u64,
    pub(crate) deadline_unix_ms: u64,
}

impl Leases {
    /// Makes room for so many keys.
    pub(crate) fn reserve(&mut self, keys: usize) {
        self.entries.reserve(keys);
        let Leases {
            index,
            hash_builder,
            entries,
            keys: bytes,
            ..
        } = self;
        index.reserve(keys, |&entry| {
            hash_builder.hash_one(key_of(entries, bytes, entry))
        });
    }

    /// How many keys were mentioned, held or not.
    pub fn keys(&self) -> usize {
        self.entries.len()
    }

    /// How many leases there are whose sessions live. Looks at all of them.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// How much is kept beside the holders.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.ahead.len() + self.notes.len()
    }

    /// Bytes of everything that is kept of keys, by what it counts and not by what is reserved.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        let in_crowds: usize = self.crowds.values().map(BTreeMap::len).sum();
        let notes: usize = self.notes.values().map(|note| note.len()).sum();
        let beside = size_of::<(u32, u64)>();
        self.entries.len() * size_of::<Entry>()
            + self.keys.len()
            + in_crowds * size_of::<(u64, Holder)>()
            + self.notes.len() * (beside + size_of::<Box<[u8]>>())
            + notes
            + self.ahead.len() * (beside + size_of::<Ahead>())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// All leases whose sessions live, ended or not: whose time is over, the caller's clock says.
    /// The holders of one key follow one another in the order of their fences. A lease that lives
    /// as long as its session ends when the session does.
    pub fn iter(&self) -> impl Iterator<Item = Lease<'_>> {
        self.holds().map(|(lease, _)| lease)
    }

    /// The same, each with whether it is a long one: see [`Record::GrantedLong`].
    ///
    /// [`Record::GrantedLong`]: crate::Record::GrantedLong
    pub fn holds(&self) -> impl Iterator<Item = (Lease<'_>, bool)> {
        self.share(0, 1)
    }

    /// The part of [`Leases::holds`] that falls to one of so many readers.
    pub fn share(&self, reader: usize, readers: usize) -> impl Iterator<Item = (Lease<'_>, bool)> {
        let edge = |reader| self.entries.len() * reader / readers;
        let first = edge(reader);
        let entries = (first..).zip(&self.entries[first..edge(reader + 1)]);
        entries.flat_map(move |(number, entry)| {
            let one = (entry.held == Held::One).then_some(&entry.holder);
            let crowd = match entry.held {
                Held::Crowd => self.crowds.get(&(number as u32)),
                _ => None,
            };
            let holders = one
                .into_iter()
                .chain(crowd.into_iter().flat_map(BTreeMap::values));
            holders.filter_map(move |holder| {
                let lease = self.lease(number as u32, holder)?;
                Some((lease, holder.is_long))
            })
        })
    }

    /// The holder as a lease, unless its session has ended.
    fn lease(&self, number: u32, holder: &Holder) -> Option<Lease<'_>> {
        let owner = self.owners[holder.owner as usize]?;
        let note = match holder.has_note {
            true => self.notes.get(&(number, holder.fence)),
            false => None,
        };
        Some(Lease {
            key: key_of(&self.entries, &self.keys, number),
            fence: holder.fence,
            session: owner.session,
            mode: holder.mode,
            is_session_bound: holder.is_session_bound,
            count: holder.count,
            until_unix_ms: match holder.is_session_bound {
                true => owner.deadline_unix_ms,
                false => holder.until_unix_ms,
            },
            granted_unix_ms: holder.granted_unix_ms,
            note: note.map_or(&[], |note| note),
        })
    }

    /// Names the owners, at the end of replay.
    pub(crate) fn settle(&mut self, owners: Arc<[Option<LiveOwner>]>) {
        self.index_pending();
        self.owners = owners;
    }

    /// `owner`, the session that `lease` names, holds what it says.
    pub(crate) fn grant(&mut self, lease: &Lease<'_>, owner: Owner) {
        self.push_grant(lease, owner, false);
    }

    /// The same for a long lease.
    pub(crate) fn grant_long(&mut self, lease: &Lease<'_>, owner: Owner) {
        self.push_grant(lease, owner, true);
    }

    fn push_grant(&mut self, lease: &Lease<'_>, owner: Owner, is_long: bool) {
        self.note_owner(owner, lease.session);
        let holder = Holder {
            fence: lease.fence,
            until_unix_ms: lease.until_unix_ms,
            granted_unix_ms: lease.granted_unix_ms,
            owner,
            count: lease.count,
            mode: lease.mode,
            is_session_bound: lease.is_session_bound,
            is_long,
            has_note: !lease.note.is_empty(),
        };
        let number = u32::try_from(self.entries.len());
        let number = number.expect("four thousand million keys fit no memory");
        if holder.has_note {
            self.notes.insert((number, holder.fence), lease.note.into());
        }
        self.push_entry(lease.key, holder, Held::One);
        if self.entries.len() - self.indexed >= PENDING_MAX {
            self.index_pending();
        }
    }

    /// An owner stands for this session. Numbers of sessions that are over may come again.
    fn note_owner(&mut self, owner: Owner, session: u64) {
        if session == REDIS_SESSION {
            self.redis = Some(owner);
        } else if self.redis == Some(owner) {
            self.redis = None;
        }
    }

    fn push_entry(&mut self, key: &[u8], holder: Holder, held: Held) {
        let key_bytes = u16::try_from(key.len());
        self.entries.push(Entry {
            holder,
            key_at: self.keys.len() as u64,
            floor: holder.floor(),
            key_bytes: key_bytes.expect("the decoder lets nothing longer through"),
            held,
            generation: self.generation,
        });
        self.keys.extend_from_slice(key);
    }

    /// A server starts: records of grants that were decided before do not come any more, but for
    /// claims, under their old fences, of what ended before. Another leader of a cluster claims
    /// nothing: it has what is held from the ledger itself.
    pub(crate) fn begin_life(&mut self) {
        self.index_pending();
        self.ahead.clear();
        self.entries.iter_mut().for_each(|entry| entry.floor = 0);
    }

    /// Indexes the grants that were collected.
    fn index_pending(&mut self) {
        let first = self.indexed;
        let mut hashes = [0; PENDING_MAX];
        let hashes = &mut hashes[..self.entries.len() - first];
        for (hash, number) in hashes.iter_mut().zip(first as u32..) {
            let key = key_of(&self.entries, &self.keys, number);
            *hash = self.hash_builder.hash_one(key);
        }
        for &hash in hashes.iter() {
            // Looks and finds nothing: what counts is that all the memory is asked for before any
            // of it is needed.
            std::hint::black_box(self.index.find(hash, |_| false));
        }
        for (&hash, number) in hashes.iter().zip(first as u32..) {
            let Leases {
                entries,
                index,
                hash_builder,
                keys,
                ..
            } = self;
            let key = key_of(entries, keys, number);
            let same = index.find(hash, |&other| key_of(entries, keys, other) == key);
            match same.copied() {
                Some(known) => self.move_to(known, number),
                None => {
                    index.insert_unique(hash, number, |&number| {
                        hash_builder.hash_one(key_of(entries, keys, number))
                    });
                }
            }
        }
        // Those at the very end that found their keys known are not needed any more.
        while self.entries.len() > first
            && let Some(last) = self.entries.last()
            && last.held == Held::Moved
        {
            self.keys.truncate(last.key_at as usize);
            self.entries.pop();
        }
        self.indexed = self.entries.len();
    }

    /// Moves a grant that was collected to the entry of its key.
    fn move_to(&mut self, known: u32, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.held = Held::Moved;
        let holder = entry.holder;
        if holder.has_note
            && let Some(note) = self.notes.remove(&(number, holder.fence))
        {
            self.notes.insert((known, holder.fence), note);
        }
        self.join(known, holder);
    }

    /// One more holder of a key that has an entry.
    fn join(&mut self, number: u32, mut holder: Holder) {
        let entry = &mut self.entries[number as usize];
        entry.generation = self.generation;
        if holder.fence <= entry.floor {
            return;
        }
        if holder.floor() > entry.floor {
            entry.floor = holder.floor();
            self.drop_below_floor(number);
        }
        let entry = &mut self.entries[number as usize];
        let is_known = match entry.held {
            Held::Free | Held::Moved => false,
            Held::One => entry.holder.fence == holder.fence,
            Held::Crowd => self.crowds[&number].contains_key(&{ holder.fence }),
        };
        match self.ahead.entry((number, holder.fence)) {
            hash_map::Entry::Occupied(ahead) if ahead.get().is_over => return,
            // The grant itself, at last: what was said of it stands.
            hash_map::Entry::Occupied(ahead) if holder.count == 1 => holder.hear(&ahead.remove()),
            // It was counted once more, and stands behind what was said before. The grant itself is
            // yet to come, and must take nothing back of this.
            hash_map::Entry::Occupied(mut ahead) => {
                holder.mode = holder.mode.weaker(ahead.get().mode);
                let until_unix_ms = ahead.get().until_unix_ms.unwrap_or(0);
                holder.until_unix_ms = until_unix_ms.max(holder.until_unix_ms);
                *ahead.get_mut() = Ahead::of(&holder, self.generation);
            }
            hash_map::Entry::Vacant(ahead) if holder.count > 1 && !is_known => {
                ahead.insert(Ahead::of(&holder, self.generation));
            }
            hash_map::Entry::Vacant(_) => {}
        }
        match entry.held {
            Held::Moved => unreachable!("the index leads to no entry that was moved"),
            Held::Free => {
                entry.holder = holder;
                entry.held = Held::One;
            }
            Held::One if entry.holder.fence == holder.fence => {
                entry.holder = merged(&entry.holder, holder);
            }
            Held::One => match beside(&entry.holder, &holder) {
                Beside::Former => {}
                Beside::Latter => entry.holder = holder,
                Beside::BothShared => {
                    entry.held = Held::Crowd;
                    let both = [entry.holder, holder].map(|holder| {
                        let shared = Holder {
                            mode: holder.mode.downgraded(),
                            ..holder
                        };
                        (shared.fence, shared)
                    });
                    self.crowds.insert(number, BTreeMap::from(both));
                }
            },
            Held::Crowd => self.join_crowd(number, holder),
        }
    }

    /// A grant has said that every grant up to the floor is over. That is so even if this grant is
    /// over as well.
    fn drop_below_floor(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        match entry.held {
            Held::One if entry.holder.fence <= entry.floor => entry.held = Held::Free,
            Held::Free | Held::One | Held::Moved => {}
            Held::Crowd => {
                let crowd = self.crowds.get_mut(&number).expect("it says it is a crowd");
                *crowd = crowd.split_off(&(entry.floor + 1));
                self.thin(number);
            }
        }
    }

    fn join_crowd(&mut self, number: u32, holder: Holder) {
        let crowd = self.crowds.get_mut(&number).expect("it says it is a crowd");
        // If others came behind an exclusive holder, it has become shared since.
        let mode = holder.mode.downgraded();
        let entry = crowd.entry(holder.fence);
        entry
            .and_modify(|same| *same = merged(same, holder))
            .or_insert(Holder { mode, ..holder });
        self.thin(number);
    }

    /// A crowd of one is none.
    fn thin(&mut self, number: u32) {
        let crowd = &self.crowds[&number];
        let entry = &mut self.entries[number as usize];
        match crowd.len() {
            0 => entry.held = Held::Free,
            1 => {
                entry.held = Held::One;
                entry.holder = *crowd.values().next().expect("there is one");
            }
            _ => return,
        }
        self.crowds.remove(&number);
    }

    /// Forgets all leases but the long ones. The owners of those.
    pub(crate) fn forget_short(&mut self) -> HashSet<Owner> {
        self.index_pending();
        let mut owners = HashSet::new();
        for number in 0..self.entries.len() as u32 {
            let entry = &mut self.entries[number as usize];
            match entry.held {
                Held::Free | Held::Moved => {}
                Held::One if entry.holder.is_long => {
                    owners.insert(entry.holder.owner);
                }
                Held::One => entry.held = Held::Free,
                Held::Crowd => {
                    let crowd = self.crowds.get_mut(&number).expect("it says it is a crowd");
                    crowd.retain(|_, holder| holder.is_long);
                    owners.extend(crowd.values().map(|holder| holder.owner));
                    self.thin(number);
                }
            }
        }
        owners
    }

    /// The holder of `key` under `fence` released it, or has it `count_left` times still.
    pub(crate) fn release(&mut self, key: &[u8], fence: u64, count_left: u32) {
        match count_left {
            0 => self.end(key, fence),
            count => self.change(key, fence, |said| said.count = Some(count)),
        }
    }

    /// The grant of `key` under `fence` is over, heard of or not.
    fn end(&mut self, key: &[u8], fence: u64) {
        let number = self.find_or_insert(key);
        let entry = &mut self.entries[number as usize];
        match entry.held {
            Held::One if entry.holder.fence == fence => {
                entry.held = Held::Free;
                // Nearly all ends are of this kind, and take no memory.
                match entry.holder.mode {
                    Mode::Exclusive => entry.floor = entry.floor.max(fence),
                    Mode::Shared => {}
                }
            }
            Held::One | Held::Free | Held::Moved => {}
            Held::Crowd => {
                let crowd = self.crowds.get_mut(&number).expect("it says it is a crowd");
                crowd.remove(&fence);
                self.thin(number);
            }
        }
        self.say_ahead(number, fence, |said| said.is_over = true);
    }

    /// Keeps what was said of a grant that is not among the holders.
    fn say_ahead(&mut self, number: u32, fence: u64, say: impl FnOnce(&mut Ahead)) {
        if fence > self.entries[number as usize].floor {
            let said = self.ahead.entry((number, fence)).or_default();
            said.generation = self.generation;
            say(said);
        }
    }

    /// The holder of `key` under `fence` has it until then.
    pub(crate) fn renew(&mut self, key: &[u8], fence: u64, until_unix_ms: u64) {
        self.change(key, fence, |said| {
            said.until_unix_ms = said.until_unix_ms.max(Some(until_unix_ms));
        });
    }

    /// The holder of `key` under `fence` shares it from now on.
    pub(crate) fn downgrade(&mut self, key: &[u8], fence: u64) {
        self.change(key, fence, |said| said.mode = said.mode.downgraded());
    }

    /// Something is said of one grant. If it has not been heard of, it is kept for then.
    fn change(&mut self, key: &[u8], fence: u64, say: impl Fn(&mut Ahead)) {
        let number = self.find_or_insert(key);
        let entry = &mut self.entries[number as usize];
        let holder = match entry.held {
            Held::Free | Held::Moved => None,
            Held::One => Some(&mut entry.holder).filter(|holder| holder.fence == fence),
            Held::Crowd => self
                .crowds
                .get_mut(&number)
                .and_then(|crowd| crowd.get_mut(&fence)),
        };
        if let Some(holder) = holder {
            let mut said = Ahead::default();
            say(&mut said);
            match self.redis == Some(holder.owner) {
                true => holder.hear_latest(&said),
                false => holder.hear(&said),
            }
            if self.ahead.contains_key(&(number, fence)) {
                self.say_ahead(number, fence, say);
            }
        } else {
            self.say_ahead(number, fence, say);
        }
    }

    /// The entry of a key; a new one says that it is free.
    fn find_or_insert(&mut self, key: &[u8]) -> u32 {
        self.index_pending();
        let hash = self.hash_builder.hash_one(key);
        let is_it = |&number: &u32| key_of(&self.entries, &self.keys, number) == key;
        if let Some(&number) = self.index.find(hash, is_it) {
            self.entries[number as usize].generation = self.generation;
            return number;
        }
        let number = u32::try_from(self.entries.len());
        let number = number.expect("four thousand million keys fit no memory");
        self.push_entry(key, Holder::NONE, Held::Free);
        self.indexed = self.entries.len();
        let (entries, keys) = (&self.entries, &self.keys);
        self.index.insert_unique(hash, number, |&number| {
            self.hash_builder.hash_one(key_of(entries, keys, number))
        });
        number
    }
}

fn key_of<'a>(entries: &[Entry], keys: &'a [u8], number: u32) -> &'a [u8] {
    let entry = &entries[number as usize];
    &keys[entry.key_at as usize..][..usize::from(entry.key_bytes)]
}

#[cfg(test)]
mod tests;
