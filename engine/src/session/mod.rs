//! Sessions: the owners of locks and waits. One word each says whether a session lives and until
//! when.
//!
//! A session's state is packed like a lease, tagged with the generation of its slot. Ending is a
//! CAS on that word, and any core that sees a session past its deadline may do it: from that
//! instant everything the session holds is void, whether or not a core has got round to freeing it.
//! A keep-alive is a CAS on the same word, which is why it extends all of a session's locks at
//! once: their leases only say "as long as the session".

pub(crate) mod seat;

use crate::memory::slab::Slab;
use crate::memory::slot::Slot;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::time::lease::{Kind, Lease};
use crate::time::rest::RestsUntil;
use crate::time::tick::Tick;
use crate::time::wheel::{Due, Links, Wheel};
use std::fmt;

/// The owner of locks and waits: `generation:32 | slot:32`. Never zero, and not reused before its
/// slot has seen 2^24 sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

impl SessionId {
    /// The id with these bits, as it came over the wire. Whether such a session lives is for the
    /// engine to say.
    pub const fn from_bits(bits: u64) -> Self {
        SessionId(bits)
    }

    /// The bits, for the wire.
    pub const fn get(self) -> u64 {
        self.0
    }

    fn slot(self) -> u32 {
        self.0 as u32
    }

    fn generation(self) -> u64 {
        self.0 >> 32
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}.{}", self.slot(), self.generation())
    }
}

/// The last generation of a slot: after it the slot is left alone.
const GENERATION_MAX: u64 = (1 << 24) - 1;

#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[repr(C)]
struct SessionCell {
    state: AtomicU64,
    free_link: AtomicU32,
    wheel_next: AtomicU32,
    wheel_prev: AtomicU32,
    padding: [u8; 4],
}

impl Slot for SessionCell {
    fn free_link(&self) -> &AtomicU32 {
        &self.free_link
    }

    #[cfg(loom)]
    fn zeroed() -> Self {
        SessionCell {
            state: AtomicU64::new(0),
            free_link: AtomicU32::new(0),
            wheel_next: AtomicU32::new(0),
            wheel_prev: AtomicU32::new(0),
            padding: [0; 4],
        }
    }
}

impl SessionCell {
    fn state(&self) -> Lease {
        // Acquire, paired with the AcqRel of open, keep-alive and end.
        Lease::from_bits(self.state.load(Ordering::Acquire))
    }

    fn replace(&self, seen: Lease, new: Lease) -> bool {
        self.state
            .compare_exchange(seen.bits(), new.bits(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// The links of the session wheel. A keep-alive moves nothing: the wheel asks for the deadline when
/// it gets there.
impl Links for Slab<SessionCell> {
    fn next(&self, entry: u32) -> u32 {
        self.get(entry).wheel_next.load(Ordering::Relaxed)
    }
    fn prev(&self, entry: u32) -> u32 {
        self.get(entry).wheel_prev.load(Ordering::Relaxed)
    }
    fn set_next(&self, entry: u32, next: u32) {
        self.get(entry).wheel_next.store(next, Ordering::Relaxed);
    }
    fn set_prev(&self, entry: u32, prev: u32) {
        self.get(entry).wheel_prev.store(prev, Ordering::Relaxed);
    }
    fn due(&self, entry: u32) -> Tick {
        self.get(entry).state().deadline().over_at()
    }
}

/// A session that was looked up. It may have ended long ago.
#[derive(Clone, Copy)]
pub(crate) struct SessionRef<'a> {
    cell: &'a SessionCell,
    id: SessionId,
}

impl SessionRef<'_> {
    /// Whether the session is over: ended, forgotten, or past its deadline, in which case it ends
    /// here.
    #[inline]
    pub(crate) fn is_ended(self, now: Tick) -> bool {
        let state = self.cell.state();
        !state.is_timed_as(self.id.generation())
            || (state.deadline().is_over(now) && self.end_overdue(now))
    }

    #[cold]
    fn end_overdue(self, now: Tick) -> bool {
        loop {
            let state = self.cell.state();
            if !state.is_timed_as(self.id.generation()) {
                return true;
            }
            if !state.deadline().is_over(now) {
                return false;
            }
            if fault!(SessionEndOverwrites) {
                self.cell.state.swap(state.ended().bits(), Ordering::AcqRel);
                return true;
            }
            if self.cell.replace(state, state.ended()) {
                return true;
            }
        }
    }
}

pub(crate) struct Sessions {
    cells: Slab<SessionCell>,
    wheel: Mutex<Wheel>,
    /// Until when the home of the sessions sleeps, if it does. Read and written with the wheel's
    /// mutex held.
    rests_until: RestsUntil,
}

impl Sessions {
    pub(crate) fn new(sessions_max: u32, now: Tick) -> Self {
        Sessions {
            cells: Slab::alone(sessions_max),
            wheel: Mutex::new(Wheel::new(now)),
            rests_until: RestsUntil::new(),
        }
    }

    pub(crate) fn live(&self) -> u32 {
        self.cells.live()
    }

    /// A new session that ends at `deadline` unless it is kept alive. `None` at the limit.
    pub(crate) fn open(&self, deadline: Tick) -> Option<SessionId> {
        let slot = self.cells.take()?;
        let cell = self.cells.get(slot);
        let generation = cell.state().tag() + 1;
        assert!(
            generation <= GENERATION_MAX,
            "a slot at its last generation is not given back"
        );
        cell.state.swap(
            Lease::new(Kind::Timed, deadline, generation).bits(),
            Ordering::AcqRel,
        );
        if deadline != Tick::NEVER {
            self.wheel
                .lock()
                .insert(&self.cells, slot, deadline.over_at());
        }
        Some(SessionId(generation << 32 | u64::from(slot)))
    }

    /// The session with this id, to be asked more than once. `None`: there never was one.
    #[inline]
    pub(crate) fn find(&self, id: SessionId) -> Option<SessionRef<'_>> {
        self.cell(id).map(|cell| SessionRef { cell, id })
    }

    /// Whether the session is over: ended, forgotten, never opened, or past its deadline, in which
    /// case it ends here.
    #[inline]
    pub(crate) fn is_ended(&self, id: SessionId, now: Tick) -> bool {
        self.find(id).is_none_or(|session| session.is_ended(now))
    }

    /// When the session ends if nothing keeps it alive; in the past for one that is over.
    pub(crate) fn deadline(&self, id: SessionId) -> Tick {
        match self.cell(id).map(SessionCell::state) {
            Some(state) if state.is_timed_as(id.generation()) => state.deadline(),
            _ => Tick::default(),
        }
    }

    /// Moves the session's deadline, never to an earlier one. `None`: it is over.
    pub(crate) fn keep_alive(&self, id: SessionId, deadline: Tick, now: Tick) -> Option<Tick> {
        let cell = self.cell(id)?;
        loop {
            if self.is_ended(id, now) {
                return None;
            }
            let state = cell.state();
            let deadline = deadline.max(state.deadline());
            if state.is_timed_as(id.generation())
                && cell.replace(state, state.with_deadline(deadline))
            {
                return Some(deadline);
            }
        }
    }

    /// Ends the session. `true` for the one call that did it.
    pub(crate) fn end(&self, id: SessionId) -> bool {
        let Some(cell) = self.cell(id) else {
            return false;
        };
        loop {
            let state = cell.state();
            if !state.is_timed_as(id.generation()) {
                return false;
            }
            if cell.replace(state, state.ended()) {
                return true;
            }
        }
    }

    /// Gives an ended session's slot back. Its id stays ended for ever. `false`: it has not ended,
    /// or is forgotten already.
    pub(crate) fn forget(&self, id: SessionId) -> bool {
        let Some(cell) = self.cell(id) else {
            return false;
        };
        let mut wheel = self.wheel.lock();
        let state = cell.state();
        if !state.is_tagged(id.generation()) || state.kind() != Kind::Ended {
            return false;
        }
        if Wheel::is_linked(&self.cells, id.slot()) {
            wheel.remove(&self.cells, id.slot());
        }
        // The mark makes a second call harmless; the wheel mutex keeps two calls apart.
        cell.state.swap(
            Lease::new(FORGOTTEN, state.deadline(), id.generation()).bits(),
            Ordering::AcqRel,
        );
        drop(wheel);
        if id.generation() < GENERATION_MAX {
            self.cells.put(id.slot());
        }
        true
    }

    /// Ends sessions whose time has come and adds them to `ended`, at most `budget` steps. `true`:
    /// more may be due.
    pub(crate) fn advance(&self, now: Tick, budget: &mut u32, ended: &mut Vec<SessionId>) -> bool {
        let Some(mut wheel) = self.wheel.try_lock() else {
            return false;
        };
        // As in a shard: a clock behind the hand would get the same entries again and again.
        let now = now.max(wheel.now());
        loop {
            let slot = match wheel.pop_due(&self.cells, now, budget) {
                Due::Entry(slot) => slot,
                Due::Done => return false,
                Due::OutOfBudget => return true,
            };
            let state = self.cells.get(slot).state();
            let id = SessionId(state.tag() << 32 | u64::from(slot));
            if self.is_ended(id, now) {
                ended.push(id);
            } else {
                let at = self.deadline(id).over_at();
                wheel.insert(&self.cells, slot, at.max(now.plus_ms(1)));
            }
        }
    }

    pub(crate) fn next_due(&self) -> Option<Tick> {
        self.wheel.lock().next_due()
    }

    /// The home of the sessions is about to sleep until `until`. `false`: a session has come that
    /// may end before.
    pub(crate) fn rest(&self, until: Tick) -> bool {
        let wheel = self.wheel.lock();
        self.rests_until.announce(until);
        wheel.next_due().is_none_or(|due| due >= until)
    }

    /// Whether the home of the sessions sleeps beyond `deadline`, which has just been put in.
    /// `true` for one caller, which wakes it.
    pub(crate) fn is_slept_over(&self, deadline: Tick) -> bool {
        let _wheel = self.wheel.lock();
        self.rests_until.is_slept_over(deadline)
    }

    #[inline]
    fn cell(&self, id: SessionId) -> Option<&SessionCell> {
        let slot = id.slot();
        // Ids come from clients: a slot that was never handed out is an unknown session, not a
        // mistake of ours. Nor is a generation that only its low bits, which are all that a tag
        // has, make look like the present one.
        (slot != 0 && slot <= self.cells.last() && id.generation() <= GENERATION_MAX)
            .then(|| self.cells.get(slot))
    }
}

/// The state of an ended session whose slot has been given back. (A session has no record; the
/// pattern was free.)
const FORGOTTEN: Kind = Kind::Record;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::from_ms(ms)
    }

    #[test]
    fn a_session_lasts_through_its_deadline_and_a_keep_alive_moves_it() {
        let sessions = Sessions::new(8, at(0));
        let id = sessions.open(at(100)).unwrap();
        assert!(!sessions.is_ended(id, at(99)));
        assert_eq!(sessions.keep_alive(id, at(200), at(99)), Some(at(200)));
        assert!(!sessions.is_ended(id, at(200)));
        assert!(sessions.is_ended(id, at(201)));
        assert_eq!(
            sessions.keep_alive(id, at(300), at(150)),
            None,
            "over is over, whatever the caller's clock says"
        );
    }

    #[test]
    fn the_wheel_ends_each_overdue_session_once() {
        let sessions = Sessions::new(8, at(0));
        let short = sessions.open(at(10)).unwrap();
        let long = sessions.open(at(10)).unwrap();
        sessions.keep_alive(long, at(50), at(5));
        let mut ended = Vec::new();
        assert!(!sessions.advance(at(20), &mut 100, &mut ended));
        assert_eq!(ended, [short]);
        sessions.advance(at(60), &mut 100, &mut ended);
        assert_eq!(ended, [short, long]);
    }

    #[test]
    fn a_forgotten_id_stays_ended_when_its_slot_is_used_again() {
        let sessions = Sessions::new(1, at(0));
        let first = sessions.open(at(100)).unwrap();
        assert_eq!(sessions.open(at(100)), None, "at the limit");
        assert!(!sessions.forget(first), "it has not ended");
        assert!(sessions.end(first));
        assert!(!sessions.end(first));
        assert!(sessions.forget(first));
        assert!(!sessions.forget(first));
        let second = sessions.open(at(100)).unwrap();
        assert_ne!(first, second);
        assert!(sessions.is_ended(first, at(1)));
        assert!(!sessions.is_ended(second, at(1)));
    }

    #[test]
    fn ids_that_were_never_given_out_are_ended() {
        let sessions = Sessions::new(8, at(0));
        let given_out = sessions.open(at(100)).unwrap().get();
        let alias = given_out + (1 << 56);
        for bits in [0, 1, u64::MAX, 1 << 32, 77 << 32 | 5, alias] {
            assert!(
                sessions.is_ended(SessionId::from_bits(bits), at(0)),
                "{bits:#x}"
            );
        }
    }
}
