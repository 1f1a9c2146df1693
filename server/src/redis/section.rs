//! One command at its keys. While a section lives, no other command of the Redis port touches them,
//! so a command may look first and act afterwards, as Redis's own commands do.
//!
//! Only the engine decides whether a lock is free, held or lost: a section keeps out neither native
//! clients nor the timer wheel. So a command that acts on what it saw names the fence under which
//! it saw it.
//!
//! A section holds stripes of mutexes, one for each shard of the engine, locked in ascending order
//! (`section/keyspace.rs`). That makes commands and scripts with several keys all or nothing.
//! Nothing inside a section locks a stripe.

mod keyspace;
mod look;
mod outcome;
mod terms;

pub(crate) use keyspace::{Keyspace, Space};
pub(crate) use look::{Entry, Held};

use super::name::Name;
use super::refusal::Refusal;
use super::signals::Signals;
use crate::conn::connection::{Connection, ReservedWait};
use crate::core::Core;
use crate::core::books::GivenBack;
use crate::core::mail::Mail;
use crate::rights::{Entitlement, Reservation};
use crate::session::redis_form::Value;
use crate::session::waiter::Waiter;
use engine::{Acquire, Fence, Grant, Mode, Outcome, Release, Renewal, Seat, Span, Tick};
use parking_lot::MutexGuard;
use smallvec::SmallVec;

/// How often a takeover is tried again while another core is still recording the grant.
const FRESH_TRIES: u32 = 1_000;

/// Exclusive use of some keys for one command.
pub(crate) struct Section<'a> {
    pub(crate) now: Tick,
    core: &'a Core,
    /// Of the client that sent the command.
    connection: &'a Connection,
    pub(crate) space: &'a Space,
    seat: &'a mut Seat,
    stripes: SmallVec<[(usize, MutexGuard<'a, Signals>); 2]>,
    /// Of the command's sender, if it has any.
    pub(crate) bounds: Option<&'a Entitlement>,
}

/// When a key ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    /// In so many milliseconds, at least one.
    Ms(u64),
    /// Not by itself.
    Never,
}

/// Appends what the command did to the log before the stripes are unlocked. So the records of one
/// key stand in the log in the order of their effect.
impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.core.shared.core_count > 1 {
            self.core.replies.append_now();
        }
    }
}

impl<'a> Section<'a> {
    pub(crate) fn core(&self) -> &'a Core {
        self.core
    }

    /// The name of a key in a database, for questions to the engine alone.
    pub(crate) fn name<'n>(&self, db: u8, key: &'n [u8]) -> Result<Name<'n>, Refusal> {
        Name::new(db, key, |key| self.core.shared.engine.shard_of(key))
    }

    /// The stripe of this key, with its signal lists. Refused for a key that the section was not
    /// opened for: its stripe is not locked.
    pub(crate) fn signals(&mut self, name: &Name<'_>) -> Result<&mut Signals, Refusal> {
        let number = name.stripe();
        let place = match &self.stripes[..] {
            [(first, _)] if *first == number => 0,
            stripes => stripes
                .binary_search_by_key(&number, |(number, _)| *number)
                .map_err(|_| Refusal::NotNamed)?,
        };
        Ok(&mut self.stripes[place].1)
    }

    // ---- changing

    /// Takes a key if it is free. `None`: it is not.
    pub(crate) fn add(
        &mut self,
        name: &Name<'_>,
        value: &Value<'_>,
        expiry: Expiry,
    ) -> Result<Option<Grant>, Refusal> {
        self.add_as(Mode::Exclusive, name, value, expiry)
    }

    /// As `add`, in either mode. A shared lock is granted beside other shared holders.
    pub(crate) fn add_as(
        &mut self,
        mode: Mode,
        name: &Name<'_>,
        value: &Value<'_>,
        expiry: Expiry,
    ) -> Result<Option<Grant>, Refusal> {
        let now = self.now;
        if self.signals(name)?.exists(name.bytes(), now) {
            return Ok(None);
        }
        let span = self.begin(value, expiry)?;
        let mut buffer = Vec::new();
        let request = Acquire {
            mode,
            ..exclusive(name, span, value.encode(&mut buffer))
        };
        let reserved = self.reserve(name)?;
        let outcome = self.core.shared.engine.acquire(self.seat, &request, now);
        let grant = self.granted(&request, outcome)?;
        self.keep_reserved(name, grant.as_ref(), reserved);
        self.keep_end(name, grant.as_ref().map(|grant| grant.fence), expiry)?;
        Ok(grant)
    }

    /// Queues for a lock that is held. A later grant comes by mail.
    pub(crate) fn wait(
        &mut self,
        request: &Acquire<'_>,
        wait_ms: u64,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<(Outcome, Option<ReservedWait>), Refusal> {
        let reserved = match self.bounds {
            None => None,
            Some(bounds) => {
                let key = request.key.bytes();
                let waiting = bounds.reserve_wait(key).map_err(Refusal::Quota)?;
                let held = bounds.reserve(key).map_err(Refusal::Quota)?;
                Some(ReservedWait { held, waiting })
            }
        };
        let engine = &self.core.shared.engine;
        match engine.acquire_or_wait(self.seat, request, wait_ms, || Some(waiter()), self.now) {
            outcome @ Outcome::Granted(_) => {
                let grant = self.granted(request, outcome.clone())?;
                if let (Some(grant), Some(reserved)) = (grant, reserved) {
                    let shared = &self.core.shared;
                    shared.keep_reserved(request.key.bytes(), &grant, reserved.held);
                }
                Ok((outcome, None))
            }
            outcome @ (Outcome::Queued { .. } | Outcome::Held(_) | Outcome::UpgradeRefused(_)) => {
                self.core.note_contended(request.key.bytes(), self.now);
                Ok((outcome, reserved))
            }
            outcome => Err(self.refused(&outcome)),
        }
    }

    /// Takes a key whatever is there. With `from`, only a lock that is held under that fence;
    /// `None`: it is not.
    pub(crate) fn put(
        &mut self,
        name: &Name<'_>,
        value: &Value<'_>,
        expiry: Expiry,
        from: Option<Fence>,
    ) -> Result<Option<Grant>, Refusal> {
        let now = self.now;
        let span = self.begin(value, expiry)?;
        let mut buffer = Vec::new();
        let request = exclusive(name, span, value.encode(&mut buffer));
        let mut reserved = self.reserve_or_replace(name)?;
        self.signals(name)?.remove(name.bytes(), now);
        for _ in 0..FRESH_TRIES {
            let engine = &self.core.shared.engine;
            match engine.take_over(self.seat, &request, from, now) {
                None => return Ok(None),
                Some(Outcome::Held(_)) => std::thread::yield_now(),
                Some(outcome) => {
                    let grant = self.granted(&request, outcome)?;
                    self.core.books.superseded_others(name.bytes());
                    self.keep_reserved(name, grant.as_ref(), reserved.take());
                    self.keep_end(name, grant.as_ref().map(|grant| grant.fence), expiry)?;
                    return Ok(grant);
                }
            }
        }
        Err(Refusal::AtCeiling)
    }

    /// As `put`, by a client that has not shown that the lock is its own. Counted, and refused if
    /// `redis_strict` is on.
    pub(crate) fn overwrite(
        &mut self,
        name: &Name<'_>,
        value: &Value<'_>,
        expiry: Expiry,
    ) -> Result<(), Refusal> {
        if self.is_locked(name)? {
            self.force()?;
        }
        self.put(name, value, expiry, None).map(|_| ())
    }

    /// Holds a lock once more, under the same fence, and sets its end. `false`: it has ended.
    pub(crate) fn reenter(
        &mut self,
        name: &Name<'_>,
        held: &Held,
        expiry: Expiry,
    ) -> Result<bool, Refusal> {
        let value = Value::Hash(&held.value);
        let span = self.begin(&value, expiry)?;
        let request = Acquire {
            reentrant: true,
            ..exclusive(name, span, &[])
        };
        let outcome = self
            .core
            .shared
            .engine
            .acquire(self.seat, &request, self.now);
        match self.granted(&request, outcome)? {
            Some(grant) if grant.count > 1 => self.renew(name, held, expiry),
            // It ended a moment ago, and this grant is a new one, which was not asked for.
            Some(grant) => {
                self.give_back(name, grant.fence);
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// Sets the end of a lock of this port, under the same fence. `false`: it has ended.
    pub(crate) fn renew(
        &mut self,
        name: &Name<'_>,
        held: &Held,
        expiry: Expiry,
    ) -> Result<bool, Refusal> {
        Ok(self.renew_under(name, held.fence, expiry)?.is_some())
    }

    /// As `renew`, for a lock that was seen under this fence. Returns its new end; `None`: it has
    /// ended.
    pub(crate) fn renew_under(
        &mut self,
        name: &Name<'_>,
        fence: Fence,
        expiry: Expiry,
    ) -> Result<Option<Tick>, Refusal> {
        let span = self.span(expiry)?;
        let engine = &self.core.shared.engine;
        let metrics = self.core.metrics();
        metrics.renewals.bump();
        match engine.renew_for(self.seat, name.key(), fence, span, self.now) {
            Renewal::Renewed { until } => {
                let session = &self.space.session;
                (self.core.books).renewed(session, name.bytes(), fence, until, self.now);
                self.keep_end(name, Some(fence), expiry)?;
                Ok(Some(until))
            }
            Renewal::NotHeld(_) => {
                metrics.renewals_failed.bump();
                Ok(None)
            }
            Renewal::Invalid(invalid) => Err(Refusal::text(format!("ERR {invalid:?}"))),
        }
    }

    /// Sets the end of what is there. `false`: nothing is, or a lock of a native client, which only
    /// that client renews.
    pub(crate) fn expire(&mut self, name: &Name<'_>, expiry: Expiry) -> Result<bool, Refusal> {
        let now = self.now;
        match self.look(name)? {
            Entry::Absent | Entry::Foreign(_) => Ok(false),
            Entry::Text(held) | Entry::Hash(held) => self.renew(name, &held, expiry),
            Entry::List | Entry::Set => {
                let until = match expiry {
                    Expiry::Never => Tick::NEVER,
                    Expiry::Ms(ms) => now.plus_ms(ms),
                };
                let long_ttl_end = self.long_ttl_end(expiry);
                let signals = self.signals(name)?;
                Ok(signals.expire(name.bytes(), until, long_ttl_end, now))
            }
        }
    }

    /// Releases one count of a lock for its owner. Returns the counts that are left; `None`: it had
    /// ended.
    pub(crate) fn release(&mut self, name: &Name<'_>, held: &Held) -> Option<u32> {
        self.give_back(name, held.fence)
    }

    /// Releases all counts of a lock for its owner. `false`: it had ended.
    pub(crate) fn end(&mut self, name: &Name<'_>, held: &Held) -> bool {
        loop {
            match self.release(name, held) {
                Some(0) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// Releases one count of a lock that was seen under this fence. Returns the counts that are
    /// left; `None`: it had ended.
    pub(crate) fn give_back(&mut self, name: &Name<'_>, fence: Fence) -> Option<u32> {
        let (core, session) = (self.core, &self.space.session);
        let engine = &core.shared.engine;
        match engine.release_timed(self.seat, name.key(), fence, self.now) {
            (Release::Released { count }, held_ms) => {
                let given_back = GivenBack {
                    key: name.bytes(),
                    fence,
                    count,
                    held_ms,
                };
                (core.books).released(session, self.connection, &given_back, self.now);
                Some(count)
            }
            (Release::NotHeld(_), _) => {
                core.metrics().release_by_non_owner.bump();
                None
            }
        }
    }

    /// Ends what is there, without asking for its owner. `false`: nothing is.
    pub(crate) fn remove(&mut self, name: &Name<'_>) -> Result<bool, Refusal> {
        let now = self.now;
        if self.signals(name)?.remove(name.bytes(), now) {
            return Ok(true);
        }
        let state = self.state(name);
        let fences: Vec<Fence> = (state.iter().flat_map(|state| &state.holders))
            .map(|holder| holder.fence)
            .collect();
        if fences.is_empty() {
            return Ok(false);
        }
        self.force()?;
        Ok(self.take_away(name, &fences))
    }

    /// Takes a lock away from its holders under these fences. `false`: none of them holds it any
    /// more.
    pub(crate) fn take_away(&mut self, name: &Name<'_>, fences: &[Fence]) -> bool {
        let core = self.core;
        let mut taken = false;
        for &fence in fences {
            if core
                .shared
                .engine
                .force_release(name.key(), fence, self.now)
            {
                taken = true;
                (core.books).forced(self.connection, name.bytes(), fence, "", self.now);
            }
        }
        taken
    }

    /// Sends a message to every listener of a channel. Returns how many there are.
    pub(crate) fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let host = self.core.shared.engine.host();
        self.space.channels.publish(host, channel, payload)
    }

    /// Pushes elements to a signal list and wakes its first waiter.
    pub(crate) fn push(&mut self, name: &Name<'_>, elements: &[&[u8]]) -> Result<usize, Refusal> {
        if !matches!(self.look(name)?, Entry::Absent | Entry::List) {
            return Err(Refusal::WrongType);
        }
        let now = self.now;
        let length = self.signals(name)?.push(name.bytes(), elements, now)?;
        self.wake_first(name)?;
        Ok(length)
    }

    /// Adds members to a set. Returns how many are new.
    pub(crate) fn add_members(
        &mut self,
        name: &Name<'_>,
        members: &[&[u8]],
    ) -> Result<usize, Refusal> {
        if !matches!(self.look(name)?, Entry::Absent | Entry::Set) {
            return Err(Refusal::WrongType);
        }
        let now = self.now;
        self.signals(name)?.add_members(name.bytes(), members, now)
    }

    /// Wakes the first waiter of a list, which then looks for an element.
    pub(crate) fn wake_first(&mut self, name: &Name<'_>) -> Result<(), Refusal> {
        if let Some(connection) = self.signals(name)?.first_waiting(name.bytes()) {
            let host = self.core.shared.engine.host();
            host.post(connection).send(Mail::ListReady { connection });
        }
        Ok(())
    }

    /// Counts a lock that is about to be asked for. `None`: the sender has no bounds.
    fn reserve(&self, name: &Name<'_>) -> Result<Option<Reservation>, Refusal> {
        match self.bounds {
            None => Ok(None),
            Some(bounds) => bounds
                .reserve(name.bytes())
                .map(Some)
                .map_err(Refusal::Quota),
        }
    }

    /// The same for a lock that may take the place of another. If that counts for the same quotas,
    /// it is no more than there was. An operator that takes a lock over is not refused either.
    fn reserve_or_replace(&mut self, name: &Name<'_>) -> Result<Option<Reservation>, Refusal> {
        let Some(bounds) = self.bounds else {
            return Ok(None);
        };
        let holdings = &self.core.shared.engine.host().losses.holdings;
        let key = name.bytes();
        let is_no_more = match self.look(name)? {
            Entry::Absent | Entry::List | Entry::Set => false,
            Entry::Foreign(_) => bounds.may_force(key),
            Entry::Text(held) | Entry::Hash(held) => {
                bounds.may_force(key) || holdings.counts_for(key, held.fence.get(), bounds)
            }
        };
        match is_no_more {
            true => Ok(Some(bounds.count_held(key))),
            false => self.reserve(name),
        }
    }

    /// Keeps what a lock counts for, if it was granted.
    fn keep_reserved(&self, name: &Name<'_>, grant: Option<&Grant>, reserved: Option<Reservation>) {
        if let (Some(grant), Some(reserved)) = (grant, reserved) {
            let shared = &self.core.shared;
            shared.keep_reserved(name.bytes(), grant, reserved);
        }
    }

    /// Whether the key is a lock that is held.
    fn is_locked(&mut self, name: &Name<'_>) -> Result<bool, Refusal> {
        let entry = self.look(name)?;
        Ok(!matches!(entry, Entry::Absent | Entry::List | Entry::Set))
    }
}

fn exclusive<'r>(name: &'r Name<'_>, span: Span, metadata: &'r [u8]) -> Acquire<'r> {
    Acquire {
        key: name.key(),
        mode: Mode::Exclusive,
        span,
        reentrant: false,
        metadata,
        asks_who: false,
        waited_ms: 0,
    }
}
