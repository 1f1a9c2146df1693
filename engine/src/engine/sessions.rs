//! Opening, keeping alive and ending sessions.

use super::Engine;
use crate::api::{GaveUp, Host, Limit};
use crate::session::SessionId;
use crate::session::seat::Seat;
use crate::time::tick::Tick;

impl<H: Host> Engine<H> {
    /// A session that ends `ttl_ms` from now unless it is kept alive. `Err` at the limit.
    pub fn open_session(&self, ttl_ms: u64, now: Tick) -> Result<SessionId, Limit> {
        let deadline = now.plus_ms(ttl_ms);
        let session = self.common.sessions.open(deadline);
        if session.is_some() && self.common.sessions.is_slept_over(deadline) {
            self.common.host.wake(0);
        }
        session.ok_or(Limit::Sessions)
    }

    /// Extends a session and with it all its session-bound locks, in one step. `None`: it is over.
    pub fn keep_alive(&self, session: SessionId, ttl_ms: u64, now: Tick) -> Option<Tick> {
        self.common
            .sessions
            .keep_alive(session, now.plus_ms(ttl_ms), now)
    }

    /// Whether a session lives.
    pub fn is_open(&self, session: SessionId, now: Tick) -> bool {
        !self.common.sessions.is_ended(session, now)
    }

    /// When a session ends if nothing keeps it alive; in the past for one that is over.
    pub fn session_deadline(&self, session: SessionId) -> Tick {
        self.common.sessions.deadline(session)
    }

    /// Ends a session: from here on it holds nothing and waits for nothing. What is left to do is
    /// to [`Engine::vacate`] its seats, which hands its locks to their waiters, and to
    /// [`Engine::forget_session`]. `true` for the call that ended it.
    pub fn end_session(&self, session: SessionId) -> bool {
        self.common.sessions.end(session)
    }

    /// Frees all that an ended session took through this seat and takes it out of the queues it
    /// stands in. Costs time in proportion to that. Does nothing while the session lives.
    pub fn vacate(&self, seat: &mut Seat, now: Tick) {
        if !self.common.sessions.is_ended(seat.session(), now) {
            return;
        }
        for ticket in std::mem::take(&mut seat.waits) {
            let shard = &self.shards[ticket.cell.shard()];
            match shard.cancel(ticket, now) {
                Some(waiter) => self.common.host.gave_up(waiter, GaveUp::SessionEnded),
                None if fault!(VacateForgetsGranted) => {}
                // It may have been granted.
                None => shard.vacate(ticket.cell.slot(), seat.session(), now),
            }
        }
        while let Some(taken) = seat.pop() {
            let cell = taken.cell();
            self.shards[cell.shard()].vacate(cell.slot(), seat.session(), now);
        }
    }

    /// Gives an ended session's place to others. Its id stays ended for ever.
    pub fn forget_session(&self, session: SessionId) -> bool {
        self.common.sessions.forget(session)
    }
}
