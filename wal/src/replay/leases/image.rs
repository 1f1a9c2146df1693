//! Leases that live long: the ledger of a cluster's node keeps them for as long as it runs, so what
//! is over must go, and a copy of the rest must come and go as bytes.
//!
//! What is over is not forgotten at once: the record of a grant may still come behind that of its
//! end. The ledger counts generations; what a generation decided has been heard of by the end of
//! the next one. So an entry that no record spoke of for [`OLD_AGE`] generations says all that it
//! will ever say, and if its holders are gone it is garbage.
//!
//! ```text
//! key     length u16, bytes, floor u64, age u8, holders u32, each: holder  fence u64, end u64,
//! beginning u64, session u64, count u32, flags u8, note length u16, note then    said u32, each:
//! fence u64, flags u8, end u64, count u32
//! ```

use super::{Ahead, Entry, Held, Holder, Leases, key_of};
use crate::record::{KEY_BYTES_MAX, NOTE_BYTES_MAX};
use crate::replay::leases::Owner;
use std::collections::BTreeMap;
use types::Mode;

/// After so many generations nothing more is heard of what was decided.
const OLD_AGE: u8 = 2;

/// Ages above this are all the same: generations are counted in a byte.
const AGE_MAX: u8 = 128;

/// Fewer entries than this are not worth clearing out.
const CLEAR_OUT_MIN: usize = 64;

/// Among so many notes none is looked for whose grant is gone.
const NOTES_MIN: usize = 64;

const SHARED: u8 = 1 << 0;
const SESSION_BOUND: u8 = 1 << 1;
const LONG: u8 = 1 << 2;
const OVER: u8 = 1 << 3;
const HAS_END: u8 = 1 << 4;
const HAS_COUNT: u8 = 1 << 5;

/// What the ledger knows of a holder's session.
pub(crate) trait Owners {
    /// The id of a session that has not ended, as far as any record says.
    fn session(&self, owner: Owner) -> Option<u64>;
    /// Whether this session may hold something that ends then, now or by its own deadline.
    fn may_hold(&self, owner: Owner, is_session_bound: bool, until_unix_ms: u64) -> bool;
}

/// What an image says of the ages of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ages {
    /// What they are; what is garbage stays out.
    Exact,
    /// All were spoken of a moment ago, so none is garbage.
    AllYoung,
}

/// Bytes that no image has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAnImage;

impl Leases {
    /// What is heard of from now on belongs to this generation.
    pub(crate) fn begin_generation(&mut self, generation: u8) {
        self.generation = generation;
    }

    fn age(&self, entry: &Entry) -> u8 {
        self.generation.wrapping_sub(entry.generation)
    }

    fn holders(&self, number: u32) -> impl Iterator<Item = &Holder> {
        let entry = &self.entries[number as usize];
        let one = (entry.held == Held::One).then_some(&entry.holder);
        let crowd = match entry.held {
            Held::Crowd => self.crowds.get(&number),
            _ => None,
        };
        one.into_iter()
            .chain(crowd.into_iter().flat_map(BTreeMap::values))
    }

    fn is_garbage(&self, number: u32, owners: &impl Owners) -> bool {
        let entry = &self.entries[number as usize];
        // What was moved must never be copied: its key would have two entries.
        entry.held == Held::Moved
            || self.age(entry) >= OLD_AGE
                && !self.holders(number).any(|holder| may_hold(holder, owners))
    }

    /// Makes room of what is over, if there is much of it. Returns how many entries went.
    pub(crate) fn clear_out(&mut self, owners: &impl Owners) -> usize {
        self.index_pending();
        self.forget_said();
        self.forget_notes();
        let count = self.entries.len();
        if count < CLEAR_OUT_MIN {
            return 0;
        }
        let garbage = (0..count as u32)
            .filter(|&number| self.is_garbage(number, owners))
            .count();
        if garbage * 2 >= count {
            self.rebuild(|leases, number| !leases.is_garbage(number, owners));
            return garbage;
        }
        // Ages must not come round to young again.
        let generation = self.generation.wrapping_sub(AGE_MAX);
        for number in 0..count {
            if self.age(&self.entries[number]) > AGE_MAX {
                self.entries[number].generation = generation;
            }
        }
        0
    }

    /// Forgets what was said of grants of which nothing more is heard.
    fn forget_said(&mut self) {
        let (entries, generation) = (&self.entries, self.generation);
        self.ahead.retain(|&(number, fence), said| {
            let age = generation.wrapping_sub(said.generation);
            age < OLD_AGE && fence > entries[number as usize].floor
        });
    }

    /// Forgets the notes of grants that are gone, whenever there are twice as many as were needed
    /// the last time.
    fn forget_notes(&mut self) {
        if self.notes.len() < self.notes_max.max(NOTES_MIN) {
            return;
        }
        let (entries, crowds) = (&self.entries, &self.crowds);
        self.notes.retain(|(number, fence), _| {
            let entry = &entries[*number as usize];
            match entry.held {
                Held::Free | Held::Moved => false,
                Held::One => entry.holder.fence == *fence,
                Held::Crowd => crowds[number].contains_key(fence),
            }
        });
        self.notes_max = 2 * self.notes.len();
    }

    /// Copies what is to stay.
    fn rebuild(&mut self, stays: impl Fn(&Leases, u32) -> bool) {
        let mut kept = Leases {
            hash_builder: self.hash_builder.clone(),
            generation: self.generation,
            redis: self.redis,
            notes_max: self.notes_max,
            ..Leases::default()
        };
        let mut ahead_of: BTreeMap<u32, Vec<(u64, Ahead)>> = BTreeMap::new();
        for (&(number, fence), &said) in &self.ahead {
            ahead_of.entry(number).or_default().push((fence, said));
        }
        for number in 0..self.entries.len() as u32 {
            if !stays(self, number) {
                continue;
            }
            let to = kept.entries.len() as u32;
            let entry = self.entries[number as usize];
            kept.adopt(key_of(&self.entries, &self.keys, number), entry);
            if let Some(crowd) = self.crowds.remove(&number) {
                kept.crowds.insert(to, crowd);
            }
            let noted: Vec<u64> = kept
                .holders(to)
                .filter(|holder| holder.has_note)
                .map(|holder| holder.fence)
                .collect();
            for fence in noted {
                if let Some(note) = self.notes.remove(&(number, fence)) {
                    kept.notes.insert((to, fence), note);
                }
            }
            for (fence, said) in ahead_of.remove(&number).unwrap_or_default() {
                kept.ahead.insert((to, fence), said);
            }
        }
        *self = kept;
    }

    /// Adds an entry of a key that has none, as it is.
    fn adopt(&mut self, key: &[u8], entry: Entry) {
        use std::hash::BuildHasher;
        self.index_pending();
        let number = self.entries.len() as u32;
        self.push_entry(key, entry.holder, entry.held);
        let added = self.entries.last_mut().expect("it was just pushed");
        added.floor = entry.floor;
        added.generation = entry.generation;
        self.indexed = self.entries.len();
        let hash = self.hash_builder.hash_one(key);
        let (entries, keys) = (&self.entries, &self.keys);
        self.index.insert_unique(hash, number, |&number| {
            self.hash_builder.hash_one(key_of(entries, keys, number))
        });
    }

    /// Marks the owners that some holder names.
    pub(crate) fn name_owners(&self, is_named: &mut [bool]) {
        for number in 0..self.entries.len() as u32 {
            for holder in self.holders(number) {
                is_named[holder.owner as usize] = true;
            }
        }
    }

    /// How many keys have holders that may still hold them. Looks at all of them.
    pub(crate) fn count_held(&mut self, owners: &impl Owners) -> usize {
        self.index_pending();
        let numbers = 0..self.entries.len() as u32;
        numbers
            .filter(|&number| self.holders(number).any(|holder| may_hold(holder, owners)))
            .count()
    }

    /// A number that is the same on every node that has the same holders.
    pub(crate) fn hash(&mut self, owners: &impl Owners) -> u64 {
        self.index_pending();
        let mut sum = 0_u64;
        let mut bytes = Vec::new();
        for number in 0..self.entries.len() as u32 {
            for holder in self.holders(number) {
                if !may_hold(holder, owners) {
                    continue;
                }
                bytes.clear();
                bytes.extend_from_slice(key_of(&self.entries, &self.keys, number));
                self.put_holder(number, holder, owners, &mut bytes);
                let low = crc32c::crc32c(&bytes);
                let high = crc32c::crc32c_append(!low, &bytes);
                // Order must not matter: nodes keep their entries in different orders.
                sum = sum.wrapping_add(u64::from(high) << 32 | u64::from(low));
            }
        }
        sum
    }

    /// Appends everything but garbage.
    pub(crate) fn put_image(&mut self, owners: &impl Owners, ages: Ages, out: &mut Vec<u8>) {
        self.index_pending();
        for number in 0..self.entries.len() as u32 {
            let entry = &self.entries[number as usize];
            let (is_left_out, age) = match ages {
                Ages::Exact => (self.is_garbage(number, owners), self.age(entry)),
                Ages::AllYoung => (entry.held == Held::Moved, 0),
            };
            if is_left_out {
                continue;
            }
            let key = key_of(&self.entries, &self.keys, number);
            out.extend_from_slice(&entry.key_bytes.to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(&{ entry.floor }.to_le_bytes());
            out.push(age.min(AGE_MAX));
            let count_at = out.len();
            out.extend_from_slice(&[0; 4]);
            let mut count = 0_u32;
            for holder in self.holders(number) {
                if owners.session(holder.owner).is_some() {
                    self.put_holder(number, holder, owners, out);
                    count += 1;
                }
            }
            out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        }
        // The end of the keys.
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&(self.ahead.len() as u32).to_le_bytes());
        for (&(number, fence), said) in &self.ahead {
            let key = key_of(&self.entries, &self.keys, number);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
            put_said(fence, said, out);
        }
    }

    fn put_holder(&self, number: u32, holder: &Holder, owners: &impl Owners, out: &mut Vec<u8>) {
        let note = match holder.has_note {
            true => self.notes.get(&(number, holder.fence)),
            false => None,
        };
        let note: &[u8] = note.map_or(&[], |note| note);
        let session = owners.session(holder.owner).unwrap_or(0);
        out.extend_from_slice(&{ holder.fence }.to_le_bytes());
        out.extend_from_slice(&{ holder.until_unix_ms }.to_le_bytes());
        out.extend_from_slice(&{ holder.granted_unix_ms }.to_le_bytes());
        out.extend_from_slice(&session.to_le_bytes());
        out.extend_from_slice(&{ holder.count }.to_le_bytes());
        out.push(
            mode_flag(holder.mode)
                | flag(holder.is_session_bound, SESSION_BOUND)
                | flag(holder.is_long, LONG),
        );
        out.extend_from_slice(&(note.len() as u16).to_le_bytes());
        out.extend_from_slice(note);
    }

    /// Reads what [`Leases::put_image`] wrote, into leases that are empty.
    pub(crate) fn take_image(
        &mut self,
        bytes: &mut &[u8],
        belongs: impl Fn(&[u8]) -> bool,
        mut owner: impl FnMut(u64) -> Owner,
    ) -> Result<(), NotAnImage> {
        loop {
            let key_bytes = usize::from(u16::from_le_bytes(take(bytes)?));
            if key_bytes == 0 {
                break;
            }
            let key = take_slice(bytes, key_bytes, KEY_BYTES_MAX)?;
            if !belongs(key) {
                return Err(NotAnImage);
            }
            let floor = u64::from_le_bytes(take(bytes)?);
            let [age] = take(bytes)?;
            let count = u32::from_le_bytes(take(bytes)?);
            let number = self.entries.len() as u32;
            let mut crowd = BTreeMap::new();
            for _ in 0..count {
                let (holder, note, session) = take_holder(bytes, &mut owner)?;
                self.note_owner(holder.owner, session);
                if !note.is_empty() {
                    self.notes.insert((number, holder.fence), note.into());
                }
                crowd.insert(holder.fence, holder);
            }
            let (held, holder) = match crowd.len() {
                0 => (Held::Free, Holder::NONE),
                1 => (Held::One, *crowd.values().next().expect("there is one")),
                _ => (Held::Crowd, Holder::NONE),
            };
            let entry = Entry {
                holder,
                key_at: 0,
                floor,
                key_bytes: 0,
                held,
                generation: self.generation.wrapping_sub(age),
            };
            self.adopt(key, entry);
            if held == Held::Crowd {
                self.crowds.insert(number, crowd);
            }
        }
        let said_count = u32::from_le_bytes(take(bytes)?);
        for _ in 0..said_count {
            let key_bytes = usize::from(u16::from_le_bytes(take(bytes)?));
            let key = take_slice(bytes, key_bytes, KEY_BYTES_MAX)?;
            if key.is_empty() || !belongs(key) {
                return Err(NotAnImage);
            }
            let (fence, said) = take_said(bytes)?;
            let number = self.find_or_insert(key);
            let generation = self.generation;
            self.ahead
                .insert((number, fence), Ahead { generation, ..said });
        }
        Ok(())
    }
}

fn may_hold(holder: &Holder, owners: &impl Owners) -> bool {
    owners.may_hold(holder.owner, holder.is_session_bound, holder.until_unix_ms)
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn mode_flag(mode: Mode) -> u8 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => SHARED,
    }
}

fn put_said(fence: u64, said: &Ahead, out: &mut Vec<u8>) {
    out.extend_from_slice(&fence.to_le_bytes());
    out.push(
        mode_flag(said.mode)
            | flag(said.is_over, OVER)
            | flag(said.until_unix_ms.is_some(), HAS_END)
            | flag(said.count.is_some(), HAS_COUNT),
    );
    out.extend_from_slice(&said.until_unix_ms.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&said.count.unwrap_or(0).to_le_bytes());
}

fn take_said(bytes: &mut &[u8]) -> Result<(u64, Ahead), NotAnImage> {
    let fence = u64::from_le_bytes(take(bytes)?);
    let [flags] = take(bytes)?;
    let until_unix_ms = u64::from_le_bytes(take(bytes)?);
    let count = u32::from_le_bytes(take(bytes)?);
    let said = Ahead {
        is_over: flags & OVER != 0,
        mode: Mode::from_is_shared(flags & SHARED != 0),
        until_unix_ms: (flags & HAS_END != 0).then_some(until_unix_ms),
        count: (flags & HAS_COUNT != 0).then_some(count),
        ..Ahead::default()
    };
    Ok((fence, said))
}

fn take_holder<'a>(
    bytes: &mut &'a [u8],
    owner: &mut impl FnMut(u64) -> Owner,
) -> Result<(Holder, &'a [u8], u64), NotAnImage> {
    let fence = u64::from_le_bytes(take(bytes)?);
    let until_unix_ms = u64::from_le_bytes(take(bytes)?);
    let granted_unix_ms = u64::from_le_bytes(take(bytes)?);
    let session = u64::from_le_bytes(take(bytes)?);
    let count = u32::from_le_bytes(take(bytes)?);
    let [flags] = take(bytes)?;
    let note_bytes = usize::from(u16::from_le_bytes(take(bytes)?));
    let note = take_slice(bytes, note_bytes, NOTE_BYTES_MAX)?;
    if fence == 0 || count == 0 {
        return Err(NotAnImage);
    }
    let holder = Holder {
        fence,
        until_unix_ms,
        granted_unix_ms,
        owner: owner(session),
        count,
        mode: Mode::from_is_shared(flags & SHARED != 0),
        is_session_bound: flags & SESSION_BOUND != 0,
        is_long: flags & LONG != 0,
        has_note: !note.is_empty(),
    };
    Ok((holder, note, session))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], NotAnImage> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(NotAnImage)?;
    *bytes = rest;
    Ok(*taken)
}

fn take_slice<'a>(
    bytes: &mut &'a [u8],
    length: usize,
    length_max: usize,
) -> Result<&'a [u8], NotAnImage> {
    if length > length_max {
        return Err(NotAnImage);
    }
    let (taken, rest) = bytes.split_at_checked(length).ok_or(NotAnImage)?;
    *bytes = rest;
    Ok(taken)
}
