//! What must be true of a history.
//!
//! # What a client may conclude
//!
//! A client knows two times of each call: when it began to ask, and when it had the answer.
//! Whatever the server did, it did in between. From this follow bounds that lie on one side only,
//! and everything here is built from them, so that a correct server is never accused, however
//! slowly answers travel and however the tasks of this process are scheduled.
//!
//! - **A grant happened by the time it was answered.** So did the grant of a fence that the server
//!   named to another client (a *sighting*). Fences rise, so a grant under a higher fence came
//!   later: if fence 8 was granted by time `t`, then fence 7 of the same key was too.
//! - **A lease lasts at least until the promise.** The server begins a lease when it grants or
//!   renews, which is not before the request was sent. So a lease of `T` that was asked for at `b`
//!   and confirmed ends at `b + T` or later. That is what the client's guards say as `valid_until`,
//!   a little less for rounding and for clocks that run unequally, and never past the end of their
//!   session. A promise stands even if it reached the client late.
//! - **A lease lasts no longer than its client wants it.** Once the client has begun to release it,
//!   it holds nothing.
//!
//! So each grant `g` holds its lock from the grant up to `end(g)`: its latest promise, or the
//! moment when its release was begun if that is earlier.
//!
//! # The rules
//!
//! 1. **No fence twice.** No two grants of a key have the same fence.
//! 2. **Fences rise.** A grant that was begun after another grant or sighting of the key had been
//!    answered has a higher fence. Calls that overlap may have any order.
//! 3. **No double grant.** If a grant or sighting with a higher fence was answered before `end(g)`,
//!    another client had the lock while `g` did: it was granted by then, and after `g`, since its
//!    fence is higher. Unless both are shared.
//! 4. **No early loss.** The server does not say that a lock is gone before `end(g)`. (Saying so to
//!    a release proves nothing: it may have been carried out, in a life whose answer got lost.)
//! 5. **What was released stays released.** Once a release was answered yes, no call that is begun
//!    later shows that fence as held, and none to renew or claim it succeeds.
//!
//! # What a kill changes
//!
//! With `lease`, nothing: every acknowledged lease continues. With `fence` and its grace period,
//! nothing either: until every lease that may be outstanding has ended, the next server grants
//! nothing, and holders claim what they have. With `none`, or without the grace period, promises
//! end with the life of the server that gave them. That may be any life that was not gone when `g`
//! was begun: a server answers for a while after SIGTERM. So there `end(g)` is also cut off where
//! the end of the first such life began. Rules 1, 2 and 5 hold in every mode.
//!
//! The next server counts what is left of a lease by the wall clock. How far that moved against
//! ours is measured and taken off every promise.
//!
//! # What it cannot see
//!
//! A double grant whose second half was answered only after the first had ended. Grants that no
//! client was told of, except where the server named them. So a history proves little by being
//! accepted once; that is why runs are long, and why [`Summary::demand`] rejects those in which
//! nothing was at stake.

use crate::history::{End, Grant, History, LifeEnd, Pause, Time};
use crate::redis;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// What the server promises to keep over a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Fences rise by the clock, and that is all.
    None,
    /// Fences; and leases, by its grace period.
    Fence,
    /// Fences, and that is all.
    FenceWithoutGrace,
    /// Everything that was acknowledged.
    Lease,
}

impl Kept {
    /// Whether promises outlive the server that gave them.
    pub fn keeps_promises(self) -> bool {
        matches!(self, Kept::Fence | Kept::Lease)
    }
}

/// Something that a correct server cannot have said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two grants with one fence.
    FenceTwice {
        /// Of this key.
        key: Arc<str>,
        /// The fence.
        fence: u64,
        /// The two grants, for people.
        grants: [String; 2],
        /// When they were answered, the earlier one first.
        times: [Time; 2],
    },
    /// A grant with a fence that is not above that of an earlier one.
    FenceFell {
        /// Of this key.
        key: Arc<str>,
        /// What was known before.
        earlier_fence: u64,
        /// When it was known.
        earlier_answered: Time,
        /// The grant, for people.
        grant: String,
        /// When it was asked for.
        begun: Time,
    },
    /// Another client got a lock that was promised.
    DoubleGrant {
        /// The lock.
        key: Arc<str>,
        /// The grant that promised it, for people.
        promised: String,
        /// Until when.
        end: Time,
        /// The higher fence.
        fence: u64,
        /// When it was known to be granted.
        answered: Time,
    },
    /// A lock was taken away that was promised.
    EarlyLoss {
        /// The lock.
        key: Arc<str>,
        /// The grant that promised it, for people.
        promised: String,
        /// Until when.
        end: Time,
        /// When it was known to be lost.
        at: Time,
        /// Why, for people.
        why: String,
    },
    /// A lock that was given back was valid again.
    Resurrected {
        /// The lock.
        key: Arc<str>,
        /// Its fence.
        fence: u64,
        /// When the release had been answered.
        released: Time,
        /// When the call was begun that shows it.
        begun: Time,
        /// Which call.
        shown_by: &'static str,
    },
}

impl Violation {
    /// The key that it is about, and between which times it happened.
    pub(crate) fn place(&self) -> (&Arc<str>, Time, Time) {
        match self {
            Violation::FenceTwice { key, times, .. } => (key, times[0], times[1]),
            Violation::FenceFell {
                key,
                earlier_answered,
                begun,
                ..
            } => (key, *earlier_answered, *begun),
            Violation::DoubleGrant {
                key, end, answered, ..
            } => (key, *answered, *end),
            Violation::EarlyLoss { key, end, at, .. } => (key, *at, *end),
            Violation::Resurrected {
                key,
                released,
                begun,
                ..
            } => (key, *released, *begun),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::FenceTwice {
                key, fence, grants, ..
            } => {
                let [one, other] = grants;
                write!(f, "{key}: fence {fence} was granted twice: {one}; {other}")
            }
            Violation::FenceFell {
                key,
                earlier_fence,
                earlier_answered,
                grant,
                ..
            } => write!(
                f,
                "{key}: fences fell: {earlier_fence} was known at {}, and then came {grant}",
                At(*earlier_answered)
            ),
            Violation::DoubleGrant {
                key,
                promised,
                end,
                fence,
                answered,
            } => write!(
                f,
                "{key}: granted twice: promised until {} to {promised}, and fence {fence} was granted by {}",
                At(*end),
                At(*answered)
            ),
            Violation::EarlyLoss {
                key,
                promised,
                end,
                at,
                why,
            } => write!(
                f,
                "{key}: lost too early: promised until {} to {promised}, and lost by {}: {why}",
                At(*end),
                At(*at)
            ),
            Violation::Resurrected {
                key,
                fence,
                released,
                begun,
                shown_by,
            } => write!(
                f,
                "{key}: fence {fence} was released by {} and is valid again, as {shown_by} at {} shows",
                At(*released),
                At(*begun)
            ),
        }
    }
}

/// A time for people.
pub(crate) struct At(pub(crate) Time);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

fn describe(grant: &Grant) -> String {
    format!(
        "{} under fence {}, asked at {}, answered at {}",
        grant.holder,
        grant.fence,
        At(grant.begun),
        At(grant.answered)
    )
}

/// How much was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lives of the server that ended by SIGKILL.
    pub kills: usize,
    /// Of these, before it was ready.
    pub kills_at_start: usize,
    /// Lives that ended in good order.
    pub stops: usize,
    /// Lives in which a client asked for a lock and got it.
    pub lives_with_grants: usize,
    /// Grants.
    pub grants: usize,
    /// Keys that they were of.
    pub keys: usize,
    /// Of these, on the Redis port.
    pub redis_grants: usize,
    /// Locks of that port that were deleted while the server was busy with the request that took
    /// them.
    pub deletions: usize,
    /// Grants that held their lock for some time.
    pub holds: usize,
    /// Grants that were promised for longer than the server lived that gave them, and not given
    /// back before.
    pub leases_over_a_kill: usize,
    /// Of these, leases that a later server was seen to know.
    pub leases_survived: usize,
    /// Releases that were answered yes.
    pub releases: usize,
    /// Attempts to use what was released in an earlier life, that were refused.
    pub probes_refused: usize,
    /// Times that the server named a holder.
    pub sightings: usize,
    /// Times that a process of clients was stopped.
    pub pauses: usize,
    /// Grants whose promise ended while their client was stopped.
    pub ended_in_a_pause: usize,
}

impl Summary {
    /// Adds what was checked in another run.
    pub fn add(&mut self, other: &Summary) {
        self.kills += other.kills;
        self.kills_at_start += other.kills_at_start;
        self.stops += other.stops;
        self.lives_with_grants += other.lives_with_grants;
        self.grants += other.grants;
        self.keys += other.keys;
        self.redis_grants += other.redis_grants;
        self.deletions += other.deletions;
        self.holds += other.holds;
        self.leases_over_a_kill += other.leases_over_a_kill;
        self.leases_survived += other.leases_survived;
        self.releases += other.releases;
        self.probes_refused += other.probes_refused;
        self.sightings += other.sightings;
        self.pauses += other.pauses;
        self.ended_in_a_pause += other.ended_in_a_pause;
    }

    /// Refuses a run in which nothing was at stake. That its promises were kept would prove
    /// nothing.
    pub fn demand(&self, mode: Kept) -> Result<(), String> {
        let mut demands = vec![
            ("grants", self.grants),
            ("grants on the Redis port", self.redis_grants),
            ("kills", self.kills),
            ("holds", self.holds),
            ("lives with grants", self.lives_with_grants),
            ("releases", self.releases),
        ];
        if mode.keeps_promises() {
            demands.push(("leases over a kill", self.leases_over_a_kill));
            demands.push(("leases that survived", self.leases_survived));
            demands.push(("probes of releases", self.probes_refused));
        }
        match demands.iter().find(|(_, count)| *count == 0) {
            Some((what, _)) => Err(format!("nothing was shown: the run had no {what}")),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in [
            ("kills", self.kills),
            ("  while it started", self.kills_at_start),
            ("stops in good order", self.stops),
            ("lives with grants", self.lives_with_grants),
            ("keys", self.keys),
            ("grants", self.grants),
            ("  on the Redis port", self.redis_grants),
            ("    deleted at once", self.deletions),
            ("  that held for a time", self.holds),
            ("  promised over a kill", self.leases_over_a_kill),
            ("  known to a later life", self.leases_survived),
            ("releases", self.releases),
            ("  tried again, refused", self.probes_refused),
            ("sightings", self.sightings),
            ("pauses of clients", self.pauses),
            ("  leases that ended then", self.ended_in_a_pause),
        ] {
            writeln!(f, "{what:24} {count:>9}")?;
        }
        Ok(())
    }
}

/// Checks a history: everything that is wrong with it, and how much was checked.
pub fn check(history: &History, mode: Kept) -> (Summary, Vec<Violation>) {
    let checker = Checker { history, mode };
    let mut by_key: BTreeMap<&Arc<str>, Vec<&Grant>> = BTreeMap::new();
    for grant in &history.grants {
        by_key.entry(&grant.key).or_default().push(grant);
    }
    let mut known: HashMap<&Arc<str>, Vec<Known>> = HashMap::new();
    for sighting in &history.sightings {
        known.entry(&sighting.key).or_default().push(Known {
            fence: sighting.fence,
            is_shared: sighting.is_shared,
            answered: sighting.answered,
        });
    }
    let mut violations = Vec::new();
    for (key, grants) in &mut by_key {
        let mut known = known.remove(*key).unwrap_or_default();
        known.extend(grants.iter().map(|grant| Known {
            fence: grant.fence,
            is_shared: grant.is_shared,
            answered: grant.answered,
        }));
        fences_rise(key, grants, known.clone(), &mut violations);
        checker.holds_are_kept(key, grants, known, &mut violations);
    }
    checker.released_stays_released(&mut violations);
    (checker.summary(by_key.len()), violations)
}

/// A fence that was granted by a certain time.
#[derive(Clone, Copy)]
struct Known {
    fence: u64,
    is_shared: bool,
    answered: Time,
}

impl Known {
    fn earlier(self, other: Option<Known>) -> Known {
        match other {
            Some(other) if other.answered <= self.answered => other,
            _ => self,
        }
    }
}

/// Rules 1 and 2.
fn fences_rise(
    key: &Arc<str>,
    grants: &mut [&Grant],
    mut known: Vec<Known>,
    violations: &mut Vec<Violation>,
) {
    grants.sort_by_key(|grant| grant.fence);
    for pair in grants.windows(2) {
        if pair[0].fence == pair[1].fence {
            violations.push(Violation::FenceTwice {
                key: key.clone(),
                fence: pair[0].fence,
                grants: [describe(pair[0]), describe(pair[1])],
                times: [
                    pair[0].answered.min(pair[1].answered),
                    pair[0].answered.max(pair[1].answered),
                ],
            });
        }
    }
    known.sort_by_key(|known| known.answered);
    let mut by_begin = grants.to_vec();
    by_begin.sort_by_key(|grant| grant.begun);
    let mut known = known.into_iter().peekable();
    // The highest fence that was known before the grant in question was begun.
    let mut highest: Option<Known> = None;
    for grant in by_begin {
        while let Some(earlier) = known.next_if(|known| known.answered < grant.begun) {
            if highest.is_none_or(|highest| highest.fence < earlier.fence) {
                highest = Some(earlier);
            }
        }
        if let Some(earlier) = highest
            && earlier.fence >= grant.fence
        {
            violations.push(Violation::FenceFell {
                key: key.clone(),
                earlier_fence: earlier.fence,
                earlier_answered: earlier.answered,
                grant: describe(grant),
                begun: grant.begun,
            });
        }
    }
}

struct Checker<'a> {
    history: &'a History,
    mode: Kept,
}

impl Checker<'_> {
    /// Until when a grant holds its lock; `None` if it holds nothing.
    fn held_until(&self, grant: &Grant) -> Option<Time> {
        let promised = grant.promises.iter().max()?;
        let mut end = promised.saturating_sub(self.history.clock_drift_us);
        if let End::Released { begun, .. } | End::Abandoned { begun } = grant.end {
            end = end.min(begun);
        }
        if !self.mode.keeps_promises() {
            let givers = self.history.lives.iter();
            let givers = givers.filter(|life| life.gone >= grant.begun);
            let cut = givers.map(|life| life.ended).min();
            end = end.min(cut.unwrap_or(Time::MAX));
        }
        // Which life gave it is not known then, or it was over before it came.
        (grant.answered < end).then_some(end)
    }

    /// Rules 3 and 4.
    fn holds_are_kept(
        &self,
        key: &Arc<str>,
        grants: &[&Grant],
        mut known: Vec<Known>,
        violations: &mut Vec<Violation>,
    ) {
        known.sort_by_key(|known| known.fence);
        // From the highest fence downwards: the earliest time by which a higher one was known to be
        // granted, and by which an exclusive one was. A fence was granted by then if one above it
        // was.
        let mut known = known.into_iter().rev().peekable();
        let (mut any, mut exclusive) = (None, None);
        let mut descending = grants.to_vec();
        descending.sort_by_key(|grant| std::cmp::Reverse(grant.fence));
        for grant in descending {
            while let Some(higher) = known.next_if(|known| known.fence > grant.fence) {
                let by = higher.earlier(any);
                any = Some(by);
                if !higher.is_shared {
                    exclusive = Some(by.earlier(exclusive));
                }
            }
            let Some(end) = self.held_until(grant) else {
                continue;
            };
            // What was answered before this one was begun is a fence that fell, and rule 2 has said
            // so.
            let rival = if grant.is_shared { exclusive } else { any };
            if let Some(higher) = rival
                && (grant.begun..end).contains(&higher.answered)
            {
                violations.push(Violation::DoubleGrant {
                    key: key.clone(),
                    promised: describe(grant),
                    end,
                    fence: higher.fence,
                    answered: higher.answered,
                });
            }
            if let End::Lost {
                at,
                by_server: true,
                ref why,
            } = grant.end
                && at < end
            {
                violations.push(Violation::EarlyLoss {
                    key: key.clone(),
                    promised: describe(grant),
                    end,
                    at,
                    why: why.clone(),
                });
            }
        }
    }

    /// Rule 5.
    fn released_stays_released(&self, violations: &mut Vec<Violation>) {
        let released = self.released();
        let sightings = self.history.sightings.iter();
        let sightings = sightings.map(|it| (&it.key, it.fence, it.begun, "a holder named"));
        let accepted = self.history.probes.iter().filter(|it| it.is_accepted);
        let accepted = accepted.map(|it| (&it.key, it.fence, it.begun, it.ask));
        for (key, fence, begun, shown_by) in sightings.chain(accepted) {
            if let Some(&released) = released.get(&(key, fence))
                && released < begun
            {
                violations.push(Violation::Resurrected {
                    key: key.clone(),
                    fence,
                    released,
                    begun,
                    shown_by,
                });
            }
        }
    }

    /// When each release was answered.
    fn released(&self) -> HashMap<(&Arc<str>, u64), Time> {
        let grants = self.history.grants.iter();
        let released = grants.filter_map(|grant| match grant.end {
            End::Released { answered, .. } => Some(((&grant.key, grant.fence), answered)),
            _ => None,
        });
        released.collect()
    }

    fn summary(&self, keys: usize) -> Summary {
        let History {
            lives,
            grants,
            sightings,
            probes,
            pauses,
            ..
        } = self.history;
        let released = self.released();
        let mut seen: HashMap<(&Arc<str>, u64), Time> = HashMap::new();
        for sighting in sightings {
            let latest = seen.entry((&sighting.key, sighting.fence)).or_default();
            *latest = (*latest).max(sighting.begun);
        }
        let kills = || lives.iter().filter(|life| life.end == LifeEnd::Killed);
        let begun_and_answered = |life: &&crate::history::Life| {
            let Some(ready) = life.ready else {
                return false;
            };
            let within = |grant: &Grant| ready <= grant.begun && grant.answered <= life.ended;
            grants.iter().any(within)
        };
        let count = |is_one: &dyn Fn(&Grant) -> bool| {
            let ones = grants.iter().filter(|grant| is_one(grant));
            ones.count()
        };
        let mut summary = Summary {
            kills: kills().count(),
            kills_at_start: kills().filter(|life| life.ready.is_none()).count(),
            stops: lives.len() - kills().count(),
            lives_with_grants: lives.iter().filter(begun_and_answered).count(),
            grants: grants.len(),
            redis_grants: count(&|grant| grant.key.starts_with(redis::KEYS)),
            deletions: count(&|grant| {
                let is_deleted = matches!(grant.end, End::Released { .. });
                grant.key.starts_with(redis::DELETED_KEYS) && is_deleted
            }),
            keys,
            releases: released.len(),
            sightings: sightings.len(),
            pauses: pauses.len(),
            ..Summary::default()
        };
        for grant in grants {
            let Some(end) = self.held_until(grant) else {
                continue;
            };
            summary.holds += 1;
            let ends_in = |pause: &Pause| {
                let is_stopped = grant.holder.starts_with(&*pause.clients);
                is_stopped && grant.answered < pause.from && (pause.from..pause.to).contains(&end)
            };
            summary.ended_in_a_pause += usize::from(pauses.iter().any(ends_in));
            let Some(life) = kills().find(|life| (grant.answered..end).contains(&life.ended))
            else {
                continue;
            };
            summary.leases_over_a_kill += 1;
            // A promise counts from the sending of its request, so one that reaches further than a
            // whole lease behind the kill was given later.
            let is_renewed = grant.promises.iter().max() > Some(&(life.gone + grant.ttl_us));
            let seen = seen.get(&(&grant.key, grant.fence));
            if is_renewed || seen.is_some_and(|begun| *begun > life.gone) {
                summary.leases_survived += 1;
            }
        }
        summary.probes_refused = probes
            .iter()
            .filter(|probe| {
                let released = released.get(&(&probe.key, probe.fence));
                let between = |life: &&crate::history::Life| {
                    released.is_some_and(|released| *released <= life.ended)
                        && life.gone < probe.begun
                };
                !probe.is_accepted && lives.iter().filter(between).count() > 0
            })
            .count();
        summary
    }
}

#[cfg(test)]
mod tests;
