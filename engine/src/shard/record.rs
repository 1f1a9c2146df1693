//! The holders of a contended key: in the cell's words if there is one plain holder, else in the
//! key's record. Adding to them is a grant (`hand_off.rs`) or a claim (`claim.rs`).

use super::Shard;
use super::contended::Contended;
use super::room::{Record, RecordHolder};
use crate::api::{Grant, Host, Invalid, Outcome};
use crate::cell::metadata::Metadata;
use crate::cell::word::Word;
use crate::cell::{Ending, Terms};
use crate::session::SessionId;
use crate::time::lease::{Kind, Lease};
use crate::time::tick::Tick;
use types::Fence;
use types::Mode;

/// Of a record with at most so many holders all are looked at whenever the key is, so that a
/// session that has just ended is noticed at once. Of a larger one the leases are looked at when
/// one of them is due, and the sessions when they are vacated: ten thousand readers must not be
/// asked for each one that joins.
const ASKED_ALWAYS_MAX: usize = 64;

impl<H: Host> Contended<'_, H> {
    /// A holder that is known to be in the record.
    pub(super) fn holder_mut(&mut self, fence: Fence) -> &mut RecordHolder {
        let record = self.room.record_mut(self.slot);
        let holder = record.and_then(|record| record.holder_mut(fence));
        holder.expect("a hold that was checked is in the record")
    }

    /// Takes one count of a hold away, and the hold with the last. Returns what is left.
    pub(super) fn take_back(&mut self, fence: Fence) -> u32 {
        let record = self.room.record_mut(self.slot);
        if let Some(holder) = record.and_then(|record| record.holder_mut(fence))
            && holder.count > 1
        {
            holder.count -= 1;
            return holder.count;
        }
        self.remove_hold(fence, Ending::Released);
        0
    }

    /// Takes a hold away, however often it is held. With the last one the key is free, its word
    /// still ours.
    pub(super) fn remove_hold(&mut self, fence: Fence, ending: Ending) {
        self.may_serve = true;
        match self.room.record_mut(self.slot) {
            Some(record) => {
                record.remove(fence);
                if record.holders.is_empty() {
                    self.end_record(fence, ending);
                }
            }
            None => self.free_plain_hold(ending),
        }
    }

    /// Frees a key whose holder is in the cell's words. They stay ours.
    fn free_plain_hold(&mut self, ending: Ending) {
        self.may_serve = true;
        let (shard, cell) = (self.shard, self.cell);
        let word = cell.word();
        let seen = cell.seen(word);
        cell.set_word(Word::free(word.fence()).with_queued());
        if let Some(seen) = seen {
            shard.drop_metadata(&seen, word.fence());
            if ending == Ending::Taken {
                cell.end_as(word.fence(), ending, self.now);
                shard.forget_ended(cell, self.slot, self.now);
            } else {
                shard.forget_in_time(cell, self.slot, seen.lease, self.now);
            }
        }
    }

    /// Frees a key whose record has no holders left; `last` is the fence of the last one.
    pub(super) fn end_record(&mut self, last: Fence, ending: Ending) {
        self.may_serve = true;
        let fence = self.cell.word().fence();
        self.room.line_mut(self.slot).record = None;
        self.cell.set_word(Word::free(fence).with_queued());
        // A cell tells of the grant that its word names. That of another holder may have ended in
        // another way.
        let ending = match last == fence {
            true => ending,
            false => Ending::Unknown,
        };
        self.cell.end_as(fence, ending, self.now);
        self.shard.forget_ended(self.cell, self.slot, self.now);
    }

    /// Takes everything away from those holders of the record that `is_over` names, and tells
    /// them.
    pub(super) fn drop_holders(
        &mut self,
        ending: Ending,
        is_over: impl Fn(&Shard<H>, &RecordHolder) -> bool,
    ) {
        let shard = self.shard;
        let Some(record) = self.room.record_mut(self.slot) else {
            return;
        };
        let over = record
            .holders
            .extract_if(.., |holder| is_over(shard, holder));
        let over: Vec<RecordHolder> = over.collect();
        let is_empty = record.holders.is_empty();
        let Some(last) = over.last() else {
            return;
        };
        self.may_serve = true;
        if is_empty {
            self.end_record(last.fence, ending);
        }
        let key = shard.table.key_of(self.slot);
        for holder in over {
            shard.tell_lost(key.key(), holder.fence, &holder.seen(), self.now);
        }
    }

    /// Takes everything away from a session that has ended.
    pub(super) fn drop_holds_of(&mut self, owner: SessionId) {
        self.drop_holders(Ending::Expired, |_, holder| holder.owner == owner);
    }

    /// Takes everything away from holders whose leases or sessions are over.
    pub(super) fn drop_overdue(&mut self) {
        let now = self.now;
        if !self.cell.word().is_held() {
            return;
        }
        let Some(record) = self.room.record(self.slot) else {
            return self.drop_overdue_plain();
        };
        let is_due = self.cell.lease().deadline().is_over(now);
        if is_due || record.holders.len() <= ASKED_ALWAYS_MAX {
            self.drop_holders(Ending::Expired, |shard, holder| {
                shard.is_over(&holder.seen(), now)
            });
        }
        if is_due && self.room.record(self.slot).is_some() {
            self.note_earliest();
        }
    }

    fn drop_overdue_plain(&mut self) {
        let (shard, cell) = (self.shard, self.cell);
        let word = cell.word();
        // Again if the lease has changed meanwhile: one renewed by a session that has ended is
        // still over.
        while let Some(seen) = shard.seen(cell, word)
            && shard.is_over(&seen, self.now)
        {
            if seen.lease.kind() == Kind::Ended || cell.try_end_lease(seen.lease) {
                self.free_plain_hold(Ending::Expired);
                let key = shard.table.key_of(self.slot);
                shard.tell_lost(key.key(), word.fence(), &seen, self.now);
                return;
            }
            if fault!(RoomGivesUp) {
                return;
            }
        }
    }

    /// Turns a plain hold into a record of one, keeping a renewal that gets in at the last moment.
    /// `false`: its lease was ended at the last moment.
    pub(super) fn move_to_record(&mut self) -> bool {
        if self.room.record(self.slot).is_some() {
            return true;
        }
        let (shard, cell) = (self.shard, self.cell);
        let word = cell.word();
        let seen = shard.seen(cell, word);
        let seen = seen.expect("a hold that was checked is published");
        let metadata = shard.short_metadata(cell, word, &seen);
        let metadata = metadata.map_or_else(Metadata::default, |metadata| {
            Metadata::keep(metadata.bytes(), &shard.common.metadata)
        });
        let mut lease = cell.move_lease_to_record(word.fence(), seen.lease.deadline());
        if fault!(RecordKeepsWhatWasSeen) {
            lease = seen.lease;
        }
        let holder = RecordHolder {
            fence: word.fence(),
            owner: seen.owner,
            lease,
            since_low32: seen.since_low32,
            count: 1,
            metadata,
        };
        self.room.line_mut(self.slot).record = Some(Record {
            mode: Mode::PLAIN,
            holders: vec![holder],
        });
        cell.set_word(word.with_rich());
        shard.drop_metadata(&seen, word.fence());
        self.note_earliest();
        let is_alive = lease.kind() != Kind::Ended;
        self.may_serve |= !is_alive;
        is_alive
    }

    /// From here on the holder of the record may have others beside it.
    pub(super) fn share_record(&mut self) {
        self.may_serve = true;
        let record = self.room.record_mut(self.slot);
        let record = record.expect("just moved there");
        record.mode = record.mode.downgraded();
    }

    /// Counts a hold that its session takes once more.
    pub(super) fn reenter(&mut self, fence: Fence, terms: &Terms) -> Outcome {
        let shard = self.shard;
        let holder = self.holder_mut(fence);
        let Some(count) = holder.count.checked_add(1) else {
            return Outcome::Invalid(Invalid::Reentries);
        };
        holder.count = count;
        holder.lease = longer_of(holder.lease, terms);
        let until = shard.lease_end(holder.lease, terms.owner);
        Outcome::Granted(Grant {
            fence,
            until,
            count,
        })
    }

    /// Finds out when the first lease of the record ends, and tells the wheel.
    fn note_earliest(&mut self) {
        let record = self.room.record(self.slot);
        let record = record.expect("only called with a record");
        let earliest = record.earliest(|owner| self.shard.common.sessions.deadline(owner));
        self.tell_wheel(earliest);
    }

    /// Tells the wheel of one lease of the record that is new or has moved. The earliest that is
    /// known may belong to one that has ended or moved away since; then the wheel looks in vain,
    /// once, and `note_earliest` puts it right.
    pub(super) fn note_lease_end(&mut self, end: Tick) {
        let lease = self.cell.lease();
        let earliest = match lease.kind() {
            Kind::Record => lease.deadline().min(end),
            _ => end,
        };
        self.tell_wheel(earliest);
    }

    /// Writes into the cell's lease word when the wheel is to look at the record.
    fn tell_wheel(&mut self, earliest: Tick) {
        let cell = self.cell;
        cell.move_lease_to_record(cell.word().fence(), earliest);
        let due = earliest.over_at();
        if cell.is_armed_after(due) {
            self.shard.ask_attention(cell, self.slot, due);
        }
    }

    /// Counts how late the leases are that are about to be dropped.
    pub(super) fn record_lag(&self) {
        let record = |lease: Lease| {
            if lease.kind() == Kind::Timed && lease.deadline().is_over(self.now) {
                let late_ms = lease.deadline().over_at().ms_until(self.now);
                self.shard.lag.record(late_ms);
            }
        };
        match self.room.record(self.slot) {
            Some(holders) => holders
                .holders
                .iter()
                .for_each(|holder| record(holder.lease)),
            None => {
                let seen = self.cell.seen(self.cell.word());
                seen.into_iter().for_each(|seen| record(seen.lease));
            }
        }
    }
}

/// What a lease becomes when its holder asks again: it ends no earlier than before.
pub(super) fn longer_of(lease: Lease, terms: &Terms) -> Lease {
    match (lease.kind(), terms.kind) {
        (Kind::Timed, Kind::Timed) => lease.with_deadline(lease.deadline().max(terms.deadline)),
        _ => lease,
    }
}
