//! When the cores of a cluster's leader are asked to end their turns, so that all ledgers can
//! forget what is over.

use engine::Tick;
use wal::Ticket;

/// How often they are asked.
const EVERY_MS: u64 = 2_000;

/// After so many times everything that is over is forgotten: the ledger clears out a quarter of its
/// parts in each, and keeps for three what it heard last.
const TIMES: u32 = 8;

/// When they were asked last, and for what.
pub(super) struct Turns {
    asked: Tick,
    /// The record that says so, which was the last one then.
    last_record: Ticket,
    /// How often they will be asked although nothing is appended.
    times_left: u32,
}

impl Turns {
    pub(super) fn new(now: Tick) -> Turns {
        Turns {
            asked: now,
            last_record: Ticket::ZERO,
            times_left: 0,
        }
    }

    /// Whether they are to be asked now. `settled` is committed, and `appended` was appended last.
    ///
    /// When the record is applied, sessions and leases are forgotten that had ended by the stamp of
    /// the one before. No turn may be older than that stamp, or its core may have prolonged one of
    /// them in time and say so too late. A record has its stamp only when it is proposed, so it
    /// must be settled first, however long that takes.
    pub(super) fn are_due(&mut self, now: Tick, settled: Ticket, appended: Ticket) -> bool {
        if self.asked.ms_until(now) < EVERY_MS || settled < self.last_record {
            return false;
        }
        self.asked = now;
        if appended != self.last_record {
            self.times_left = TIMES;
        }
        let is_due = self.times_left > 0;
        self.times_left = self.times_left.saturating_sub(1);
        is_due
    }

    /// All cores have ended a turn, as this record says.
    pub(super) fn ended(&mut self, record: Ticket) {
        self.last_record = record;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_end_again_only_behind_the_commit_of_the_record_before() {
        let tick = |times: u64| Tick::from_ms(times * EVERY_MS);
        let ticket = |number: u64| Ticket::from_bits(number);
        let mut turns = Turns::new(tick(0));
        assert!(turns.are_due(tick(1), ticket(0), ticket(9)));
        turns.ended(ticket(10));
        // Records that others append meanwhile make no difference.
        assert!(!turns.are_due(tick(2), ticket(9), ticket(20)));
        assert!(!turns.are_due(tick(50), ticket(9), ticket(20)));
        assert!(turns.are_due(tick(51), ticket(10), ticket(20)));
    }

    #[test]
    fn they_go_on_for_some_times_when_nothing_is_appended_any_more() {
        let mut turns = Turns::new(Tick::from_ms(0));
        let mut last = Ticket::from_bits(1);
        let mut times = 0;
        for round in 1..100 {
            let now = Tick::from_ms(round * EVERY_MS);
            if turns.are_due(now, last, last) {
                times += 1;
                last = Ticket::from_bits(1 + times);
                turns.ended(last);
            }
        }
        assert_eq!(times, u64::from(TIMES));
    }
}
