//! Who holds a contended key, for whoever asks and for those who are about to change it. Under the room mutex.

use crate::cell::{Cell, Seen};
use crate::fence::Fence;
use crate::key::Key;
use crate::request::{HOLDERS_PER_LOOK, Holder, Host, KeyState, Mode, NotHeld};
use crate::room::{RecordHolder, Room};
use crate::session::SessionId;
use crate::shard::{Shard, held_ms};
use crate::tick::Tick;
use crate::word::{Kind, Word};

/// How a session holds a key.
pub(crate) struct Hold {
    pub(crate) mode: Mode,
    pub(crate) fence: Fence,
}

impl<H: Host> Shard<H> {
    pub(crate) fn query(
        &self,
        key: Key<'_>,
        hash: u64,
        above: Fence,
        now: Tick,
    ) -> Option<KeyState> {
        let guard = self.pin();
        let mut room = self.room.lock();
        let slot = self.enter(key, hash, &guard)?;
        let state = self.state(&mut room, slot, above, now);
        self.settle(&mut room, slot, now);
        Some(state)
    }

    /// What is known of a key whose word is ours, with the first holders whose fences lie above
    /// this one.
    fn state(&self, room: &mut Room<H::Waiter>, slot: u32, above: Fence, now: Tick) -> KeyState {
        self.settle_queue(room, slot, now);
        let cell = self.table.cell(slot);
        let word = cell.word();
        let queue_length = room.queue_length(slot);
        let (holders, holder_count) = match room.record(slot) {
            Some(record) => {
                let count = record.holders.len() as u32;
                let first = record
                    .holders
                    .partition_point(|holder| holder.fence <= above);
                let shown = record.holders[first..].iter().take(HOLDERS_PER_LOOK);
                let describe =
                    |holder| self.describe_holder(holder, record.mode, count, queue_length, now);
                (shown.map(describe).collect(), count)
            }
            None if word.is_held() => {
                let is_shown = word.fence() > above;
                let shown =
                    is_shown.then(|| self.describe_plain(cell, word, true, queue_length, now));
                (shown.into_iter().collect(), 1)
            }
            None => (Vec::new(), 0),
        };
        KeyState {
            fence: word.fence(),
            holders,
            holder_count,
            queue_length,
        }
    }

    pub(crate) fn hold_of(
        &self,
        room: &Room<H::Waiter>,
        slot: u32,
        owner: SessionId,
    ) -> Option<Hold> {
        if let Some(record) = room.record(slot) {
            return record.holder_of(owner).map(|holder| Hold {
                mode: record.mode,
                fence: holder.fence,
            });
        }
        let word = self.table.cell(slot).word();
        let seen = self.seen(self.table.cell(slot), word)?;
        (seen.owner == owner).then_some(Hold {
            mode: Mode::Exclusive,
            fence: word.fence(),
        })
    }

    /// Who holds the key under this very fence, until when and since when.
    pub(crate) fn hold_under(
        &self,
        room: &Room<H::Waiter>,
        slot: u32,
        fence: Fence,
    ) -> Option<Seen> {
        if let Some(record) = room.record(slot) {
            let position = record
                .holders
                .binary_search_by_key(&fence, |holder| holder.fence)
                .ok()?;
            return Some(record.holders[position].seen());
        }
        let cell = self.table.cell(slot);
        let word = cell.word();
        let seen = self.seen(cell, word)?;
        // A plain word may be released while we look, and what was read be of the next grant.
        (word.fence() == fence && cell.word() == word).then_some(seen)
    }

    /// Whether `owner` holds the key under `fence`, after whatever is over has been dropped.
    pub(crate) fn check_hold(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Result<(), NotHeld> {
        let is_owner = |room: &_| {
            self.hold_under(room, slot, fence)
                .map(|seen| seen.owner == owner)
        };
        let was_owner = is_owner(room) == Some(true);
        self.drop_overdue(room, slot, now);
        match is_owner(room) {
            Some(true) => Ok(()),
            _ if was_owner => Err(NotHeld::Expired),
            Some(false) => Err(NotHeld::OtherOwner),
            None => {
                let cell = self.table.cell(slot);
                let word = cell.word();
                Err(match word.is_held() {
                    true => NotHeld::OtherFence,
                    false => self.why_free(cell, word, fence),
                })
            }
        }
    }

    pub(crate) fn describe(&self, room: &Room<H::Waiter>, slot: u32, now: Tick) -> Holder {
        let cell = self.table.cell(slot);
        let queue_length = room.queue_length(slot);
        match room.record(slot) {
            Some(record) => {
                let first = record.holders.first().expect("a record has holders");
                self.describe_holder(
                    first,
                    record.mode,
                    record.holders.len() as u32,
                    queue_length,
                    now,
                )
            }
            None => self.describe_plain(cell, cell.word(), true, queue_length, now),
        }
    }

    /// What can be said of a plain holder without a lock, and `with_note` or without.
    pub(crate) fn describe_plain(
        &self,
        cell: &Cell,
        word: Word,
        with_note: bool,
        queue_length: u32,
        now: Tick,
    ) -> Holder {
        let is_told = with_note || !word.is_noted();
        let seen = match is_told {
            true => self.seen(cell, word),
            false => cell.seen(word),
        };
        let note = seen
            .filter(|_| is_told)
            .and_then(|seen| self.short_note(cell, word, &seen));
        Holder {
            owner: seen.map(|seen| seen.owner),
            fence: word.fence(),
            mode: Mode::Exclusive,
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
            note: note.map_or_else(Box::default, |note| note.bytes().into()),
        }
    }

    pub(crate) fn describe_holder(
        &self,
        holder: &RecordHolder,
        mode: Mode,
        holders: u32,
        queue_length: u32,
        now: Tick,
    ) -> Holder {
        Holder {
            owner: Some(holder.owner),
            fence: holder.fence,
            mode,
            held_ms: held_ms(holder.since_low32, now),
            until: self.lease_end(holder.lease, holder.owner),
            session_until: self.common.sessions.deadline(holder.owner),
            is_session_bound: holder.lease.kind() == Kind::Session,
            count: holder.count,
            holders,
            queue_length,
            note: holder.note.bytes().into(),
        }
    }
}
