//! When the cores of a cluster's leader are asked to end their turns, so that all ledgers can
//! forget what is over.
//!
//! A leader goes on with it while nothing else happens. The record that follows is also its probe
//! of the majority: an idle leader proposes nothing else for seconds, and a reign ends when an
//! entry of it is not confirmed in time.

use engine::Tick;
use wal::Ticket;

/// How often they are asked. A lost majority ends the reign of an idle leader by so much later than
/// that of one that has something to write down.
const EVERY_MS: u64 = 2_000;

/// When they were asked last, and for what.
pub(super) struct Turns {
    asked: Tick,
    /// The record that says so.
    last_record: Ticket,
}

impl Turns {
    pub(super) fn new(now: Tick) -> Turns {
        Turns {
            asked: now,
            last_record: Ticket::ZERO,
        }
    }

    /// Whether they are to be asked now. `settled` is committed.
    ///
    /// When the record is applied, sessions and leases are forgotten that had ended by the stamp of
    /// the one before. No turn may be older than that stamp, or its core may have prolonged one of
    /// them in time and say so too late. A record has its stamp only when it is proposed, so it
    /// must be settled first, however long that takes.
    pub(super) fn are_due(&mut self, now: Tick, settled: Ticket) -> bool {
        if self.asked.ms_until(now) < EVERY_MS || settled < self.last_record {
            return false;
        }
        self.asked = now;
        true
    }

    /// All cores have ended a turn, as this record says.
    pub(super) fn ended(&mut self, record: Ticket) {
        self.last_record = record;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(times: u64) -> Tick {
        Tick::from_ms(times * EVERY_MS)
    }

    fn ticket(number: u64) -> Ticket {
        Ticket::from_bits(number)
    }

    #[test]
    fn turns_end_again_only_behind_the_commit_of_the_record_before() {
        let mut turns = Turns::new(tick(0));
        assert!(turns.are_due(tick(1), ticket(0)));
        turns.ended(ticket(10));
        assert!(!turns.are_due(tick(2), ticket(9)));
        assert!(!turns.are_due(tick(50), ticket(9)));
        assert!(turns.are_due(tick(51), ticket(10)));
    }

    /// They were to end after some times, and did not only because the keeper writes the time down.
    /// Without them an idle leader would not notice that its majority is gone.
    #[test]
    fn turns_go_on_to_end_when_nothing_else_is_appended() {
        let mut turns = Turns::new(tick(0));
        for round in 1..100 {
            assert!(turns.are_due(tick(round), ticket(round - 1)), "{round}");
            turns.ended(ticket(round));
        }
    }
}
