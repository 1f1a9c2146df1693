//! What is told of a key: its holders, its queue, its last fence.

use super::contended::Contended;
use super::room::{Record, RecordHolder};
use super::{Shard, Target, held_ms};
use crate::api::{HOLDERS_PER_LOOK, Holder, Host, KeyState, NotHeld};
use crate::cell::word::Word;
use crate::cell::{Cell, Seen};
use crate::session::SessionId;
use crate::table::epoch::{self, Guard};
use crate::time::lease::Kind;
use crate::time::tick::Tick;
use types::Fence;
use types::Mode;

/// How a session holds a key.
pub(super) struct Hold {
    pub(super) mode: Mode,
    pub(super) fence: Fence,
}

/// What was read of a key without the room mutex.
enum Look<T> {
    /// The key has no cell.
    Absent,
    /// Its word is plain, and this is what was read behind it.
    Plain(T),
    /// Waiters or a record are involved: only the holder of the room mutex can say.
    NeedsRoom,
}

impl<H: Host> Shard<H> {
    /// Reads a plain key without writing to it. `read` is given the word and what is published of
    /// its grant.
    ///
    /// What was read belongs together if the word is the same afterwards. The words of a slot never
    /// repeat, so the cell was this key's and this grant's all the time: a later grantor writes
    /// owner, lease and metadata behind its word, and a later key is written behind a dead one.
    ///
    /// Only a lease that is over is written to: it is ended, so that no renewal by a slower clock
    /// revives what was shown as free, and its holder is told.
    fn look_at<T>(
        &self,
        target: Target<'_>,
        now: Tick,
        guard: &Guard,
        read: impl Fn(&Cell, Word, Option<Seen>) -> T,
    ) -> Look<T> {
        loop {
            let Some(found) = self.find(target, guard) else {
                return Look::Absent;
            };
            let (cell, word) = (self.table.cell(found.slot), found.word);
            if word.belongs_to_room() {
                return Look::NeedsRoom;
            }
            let seen = self.seen(cell, word);
            if let Some(seen) = seen
                && self.is_over(&seen, now)
            {
                self.expire_plain(cell, word, &seen, target.key, now);
                continue;
            }
            let told = read(cell, word, seen);
            if cell.word() == word || fault!(LookUnchecked) {
                return Look::Plain(told);
            }
        }
    }

    /// What is known of a key, with the first holders whose fences lie above this one.
    pub(crate) fn query(&self, target: Target<'_>, above: Fence, now: Tick) -> Option<KeyState> {
        let guard = epoch::pin();
        let read = |cell: &Cell, word: Word, seen| {
            let is_shown = word.is_held() && word.fence() > above;
            let holder = is_shown.then(|| self.describe_seen(cell, word, seen, true, 0, now));
            KeyState {
                fence: word.fence(),
                holders: holder.into_iter().collect(),
                holder_count: u32::from(word.is_held()),
                queue_length: 0,
            }
        };
        match self.look_at(target, now, &guard, read) {
            Look::Absent => None,
            Look::Plain(state) => Some(state),
            Look::NeedsRoom => {
                let mut room = self.room.lock();
                let mut key = self.enter(&mut room, target, now, &guard)?;
                key.catch_up();
                Some(key.state(above))
            }
        }
    }

    /// The holder of a key under this very fence.
    pub(crate) fn holder(&self, target: Target<'_>, fence: Fence, now: Tick) -> Option<Holder> {
        let guard = epoch::pin();
        let read = |cell: &Cell, word: Word, seen| {
            let is_named = word.is_held() && word.fence() == fence;
            is_named.then(|| self.describe_seen(cell, word, seen, true, 0, now))
        };
        match self.look_at(target, now, &guard, read) {
            Look::Absent => None,
            Look::Plain(holder) => holder,
            Look::NeedsRoom => {
                let mut room = self.room.lock();
                let mut key = self.enter(&mut room, target, now, &guard)?;
                key.catch_up();
                key.holder(fence)
            }
        }
    }

    /// Whether a session holds a key, under whatever fence.
    pub(crate) fn is_held_by(&self, target: Target<'_>, owner: SessionId, now: Tick) -> bool {
        let guard = epoch::pin();
        let read = |_: &Cell, _, seen: Option<Seen>| seen.is_some_and(|seen| seen.owner == owner);
        match self.look_at(target, now, &guard, read) {
            Look::Absent => false,
            Look::Plain(is_held) => is_held,
            Look::NeedsRoom => {
                let mut room = self.room.lock();
                let entered = self.enter(&mut room, target, now, &guard);
                entered.is_some_and(|mut key| {
                    key.catch_up();
                    key.hold_of(owner).is_some()
                })
            }
        }
    }

    /// Calls `visit` with the fence of each grant under which `owner` holds this cell.
    pub(crate) fn each_hold(&self, slot: u32, owner: SessionId, mut visit: impl FnMut(Fence)) {
        let cell = self.table.cell(slot);
        let mut word = cell.word();
        if word.is_rich() {
            let room = self.room.lock();
            if let Some(record) = room.record(slot) {
                let holders = record.holders.iter().filter(|holder| holder.owner == owner);
                holders.for_each(|holder| visit(holder.fence));
                return;
            }
            word = cell.word();
        }
        if cell.seen(word).is_some_and(|seen| seen.owner == owner) {
            visit(word.fence());
        }
    }

    /// For how many milliseconds a cell has been held under this fence; `None` if it is not.
    pub(crate) fn held_under_ms(&self, slot: u32, fence: Fence, now: Tick) -> Option<u64> {
        let room = self.room.lock();
        let record = room.record(slot);
        let seen = self.seen_under(self.table.cell(slot), record, fence)?;
        Some(held_ms(seen.since_low32, now))
    }

    /// The oldest hold of one cell, if it is held, and for how many milliseconds.
    pub(crate) fn oldest_hold(&self, slot: u32, now: Tick) -> Option<(Fence, u64)> {
        let cell = self.table.cell(slot);
        let mut word = cell.word();
        let seen = loop {
            let seen = self.seen(cell, word)?;
            // Else what was read may be of the next grant, or of another block.
            let now = cell.word();
            if now == word {
                break seen;
            }
            word = now;
        };
        match seen.lease.kind() {
            Kind::Ended => None,
            Kind::Timed | Kind::Session => Some((word.fence(), held_ms(seen.since_low32, now))),
            Kind::Record => {
                let room = self.room.lock();
                // In the order of their fences, which is the order of their grants.
                let first = room.record(slot)?.holders.first()?;
                Some((first.fence, held_ms(first.since_low32, now)))
            }
        }
    }

    /// What is published of the hold under this very fence, in the words or in the record.
    fn seen_under(&self, cell: &Cell, record: Option<&Record>, fence: Fence) -> Option<Seen> {
        if let Some(record) = record {
            return record.holder(fence).map(RecordHolder::seen);
        }
        let word = cell.word();
        let seen = self.seen(cell, word)?;
        // A plain word may be released while we look, and what was read be of the next grant.
        (word.fence() == fence && cell.word() == word).then_some(seen)
    }

    /// What can be said of a plain holder without a lock, and `with_metadata` or without.
    pub(super) fn describe_plain(
        &self,
        cell: &Cell,
        word: Word,
        with_metadata: bool,
        queue_length: u32,
        now: Tick,
    ) -> Holder {
        let is_told = with_metadata || !word.has_metadata();
        let seen = match is_told {
            true => self.seen(cell, word),
            false => cell.seen(word),
        };
        self.describe_seen(cell, word, seen, is_told, queue_length, now)
    }

    /// What can be said of a plain holder of which this was seen. Unless `is_told`, without its
    /// metadata and since when it holds.
    fn describe_seen(
        &self,
        cell: &Cell,
        word: Word,
        seen: Option<Seen>,
        is_told: bool,
        queue_length: u32,
        now: Tick,
    ) -> Holder {
        let metadata = seen
            .filter(|_| is_told)
            .and_then(|seen| self.short_metadata(cell, word, &seen));
        Holder {
            owner: seen.map(|seen| seen.owner),
            fence: word.fence(),
            mode: Mode::PLAIN,
            held_ms: match seen {
                Some(seen) if is_told && cell.word().is_same_grant(word) => {
                    held_ms(seen.since_low32, now)
                }
                // Not known yet, no longer, or not asked for.
                _ => 0,
            },
            until: seen.map_or(now, |seen| self.lease_end(seen.lease, seen.owner)),
            session_until: seen.map_or(now, |seen| self.common.sessions.deadline(seen.owner)),
            is_session_bound: seen.is_some_and(|seen| seen.lease.kind() == Kind::Session),
            count: 1,
            holders: 1,
            queue_length,
            metadata: metadata.map_or_else(Box::default, |metadata| metadata.bytes().into()),
        }
    }
}

impl<H: Host> Contended<'_, H> {
    /// What is known of the key, with the first holders whose fences lie above this one.
    fn state(&self, above: Fence) -> KeyState {
        let word = self.cell.word();
        let (holders, holder_count) = match self.room.record(self.slot) {
            Some(record) => {
                let first = record
                    .holders
                    .partition_point(|holder| holder.fence <= above);
                let shown = record.holders[first..].iter().take(HOLDERS_PER_LOOK);
                let shown = shown.map(|holder| self.describe_holder(holder, record));
                (shown.collect(), record.holders.len() as u32)
            }
            None if word.is_held() => {
                let shown = (word.fence() > above).then(|| self.describe_words());
                (shown.into_iter().collect(), 1)
            }
            None => (Vec::new(), 0),
        };
        KeyState {
            fence: word.fence(),
            holders,
            holder_count,
            queue_length: self.queue_length(),
        }
    }

    fn holder(&self, fence: Fence) -> Option<Holder> {
        let word = self.cell.word();
        match self.room.record(self.slot) {
            Some(record) => {
                let holder = record.holder(fence)?;
                Some(self.describe_holder(holder, record))
            }
            None => (word.is_held() && word.fence() == fence).then(|| self.describe_words()),
        }
    }

    /// How this session holds the key.
    pub(super) fn hold_of(&self, owner: SessionId) -> Option<Hold> {
        if let Some(record) = self.room.record(self.slot) {
            return record.holder_of(owner).map(|holder| Hold {
                mode: record.mode,
                fence: holder.fence,
            });
        }
        let word = self.cell.word();
        let seen = self.shard.seen(self.cell, word)?;
        (seen.owner == owner).then_some(Hold {
            mode: Mode::PLAIN,
            fence: word.fence(),
        })
    }

    /// What is published of the hold under this very fence.
    pub(super) fn hold_under(&self, fence: Fence) -> Option<Seen> {
        self.shard
            .seen_under(self.cell, self.room.record(self.slot), fence)
    }

    /// Whether `owner` holds the key under `fence`, after what is over has been dropped.
    pub(super) fn check_hold(&mut self, fence: Fence, owner: SessionId) -> Result<(), NotHeld> {
        let is_owner = |key: &Self| key.hold_under(fence).map(|seen| seen.owner == owner);
        let was_owner = is_owner(self) == Some(true);
        self.drop_overdue();
        match is_owner(self) {
            Some(true) => Ok(()),
            _ if was_owner => Err(NotHeld::Expired),
            Some(false) => Err(NotHeld::OtherOwner),
            None => {
                let word = self.cell.word();
                Err(match word.is_held() {
                    true => NotHeld::OtherFence,
                    false => self.shard.why_free(self.cell, word, fence),
                })
            }
        }
    }

    /// The first holder.
    pub(super) fn describe(&self) -> Holder {
        match self.room.record(self.slot) {
            Some(record) => {
                let first = record.holders.first().expect("a record has holders");
                self.describe_holder(first, record)
            }
            None => self.describe_words(),
        }
    }

    /// The holder in the cell's words.
    fn describe_words(&self) -> Holder {
        let word = self.cell.word();
        self.shard
            .describe_plain(self.cell, word, true, self.queue_length(), self.now)
    }

    fn describe_holder(&self, holder: &RecordHolder, record: &Record) -> Holder {
        Holder {
            owner: Some(holder.owner),
            fence: holder.fence,
            mode: record.mode,
            held_ms: held_ms(holder.since_low32, self.now),
            until: self.shard.lease_end(holder.lease, holder.owner),
            session_until: self.shard.common.sessions.deadline(holder.owner),
            is_session_bound: holder.lease.kind() == Kind::Session,
            count: holder.count,
            holders: record.holders.len() as u32,
            queue_length: self.queue_length(),
            metadata: holder.metadata.bytes().into(),
        }
    }
}
