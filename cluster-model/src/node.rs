//! A node: its ledger, and while it leads a reign with an engine of its own and the replies that
//! are held back.

use crate::client::{Answer, Reply, Request};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::raft::{Batch, Entry, Payload, Replica};
use crate::record::{Lease, Record};
use crate::{CORES, FENCES_PER_CEILING, Fault, Fence, Index, KEYS, Rules, TTL, Term, Time};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    pub raft: Replica,
    /// So many entries of the log are in the ledger.
    pub applied: usize,
    pub ledger: Ledger,
    pub clock: Clock,
    /// How many ticks its own clock has gained.
    pub gained: Time,
    /// How far its wall clock is ahead of the others: for [`Fault::ClockFromTheWall`].
    pub wall_ahead: Time,
    pub reign: Option<Reign>,
    /// Writes of earlier reigns that may still be on their way into Raft.
    pub strays: Vec<Batch>,
}

/// One leadership. It may outlive what Raft knows of it: then nothing it proposes is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reign {
    /// Of its marker.
    pub index: Index,
    pub term: Term,
    pub engine: Engine,
    pub seq: u8,
    /// Proposed, or to be proposed again, and not in the own ledger yet.
    pub unsettled: Vec<Batch>,
    /// Each with the seq of the batch that it waits for.
    pub held: Vec<(u8, Reply)>,
    /// One per core: what is decided and not in a batch yet.
    pub turns: [Option<Turn>; CORES],
}

/// The speculative state: decides at once, and is thrown away with its reign.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Engine {
    pub locks: [Option<Lease>; KEYS],
    pub fence_last: Fence,
    /// Fences up to this one may be granted.
    pub ceiling: Fence,
}

/// What a core has decided: its record, and what it will tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Turn {
    pub record: Option<Record>,
    pub reply: Option<Reply>,
}

/// An answer, for how long it promises something, and its record.
type Decision = (Answer, Time, Option<Record>);

impl Engine {
    /// Decides a request when the cluster's clock shows `clock` and the real time is `now`. A
    /// repeated answer has its record once more: the first may not be in a batch yet. `None`: no
    /// fences, or nothing to renew.
    pub fn decide(
        &mut self,
        request: Request,
        [clock, now]: [Time; 2],
        rules: Rules,
    ) -> Option<Decision> {
        let is_written = !rules.has(Fault::RepeatUnwritten);
        match request {
            Request::Acquire(key, id) => match self.locks[key].filter(|it| it.until > clock) {
                Some(lease) if lease.request == id && !rules.has(Fault::RequestIdDropped) => {
                    let record = is_written.then_some(Record::Granted(key, lease));
                    Some((Answer::Granted(lease.fence), lease.until - clock, record))
                }
                Some(lease) => Some((Answer::Refused(lease), 0, None)),
                None if self.fence_last == self.ceiling => None,
                None => {
                    self.fence_last += 1;
                    let lease = Lease {
                        request: id,
                        fence: self.fence_last,
                        until: clock + TTL,
                        promised: now,
                    };
                    self.locks[key] = Some(lease);
                    let record = Some(Record::Granted(key, lease));
                    Some((Answer::Granted(lease.fence), TTL, record))
                }
            },
            Request::Renew(key, fence) => {
                let lock = self.locks[key].as_mut();
                let lock = lock.filter(|lock| lock.fence == fence && lock.until > clock)?;
                (lock.until, lock.promised) = (clock + TTL, now);
                Some((Answer::Renewed, TTL, Some(Record::Renewed(key, *lock))))
            }
            Request::Release(key, fence) => {
                let lock = self.locks[key].take_if(|lock| lock.fence == fence);
                let is_written = is_written || lock.is_some();
                let record = is_written.then_some(Record::Released(key, fence));
                Some((Answer::Released, 0, record))
            }
        }
    }
}

impl Node {
    pub fn local(&self, now: Time) -> Time {
        now + self.gained
    }

    pub fn cluster_clock(&self, now: Time) -> Time {
        self.clock.at(self.local(now))
    }

    /// Whether Raft takes batches of its reign: the leadership is still the same.
    pub fn is_accepting(&self) -> bool {
        let reign = self.reign.as_ref();
        self.raft.leads && reign.is_some_and(|reign| reign.term == self.raft.term)
    }

    /// Batches that may be proposed again, each with whether that is as it should be: it is of this
    /// leadership, and Raft refused it before.
    pub fn proposable(&self) -> Vec<(Batch, bool)> {
        let is_known = |batch| {
            let mut log = self.raft.log.iter();
            log.any(|entry| entry.payload == Payload::Batch(batch))
        };
        let unsettled = self.reign.iter().flat_map(|reign| &reign.unsettled);
        let unsettled = unsettled.map(|&it| (it, self.is_accepting() && !is_known(it)));
        let strays = self.strays.iter().map(|&it| (it, false));
        unsettled.chain(strays).collect()
    }

    /// Takes a leader's log.
    pub fn accept(&mut self, term: Term, log: &[Entry], now: Time, rules: Rules) {
        let known = self.raft.accept(term, log, rules);
        self.hear(known, now, rules);
    }

    /// Whether a crash changes anything.
    pub fn has_to_lose(&self, now: Time) -> bool {
        let is_behind_disk = self.raft.synced < self.raft.log.len();
        let is_ahead = self.cluster_clock(now) > self.ledger.stamp;
        self.reign.is_some() || self.raft.leads || is_ahead || is_behind_disk
    }

    /// Comes back with what its disk has.
    pub fn restart(&mut self, now: Time, rules: Rules) {
        self.raft.restart();
        self.applied = self.applied.min(self.raft.log.len());
        self.ledger = Ledger::fold(&self.raft.log[..self.applied], rules);
        self.reign = None;
        self.strays.clear();
        self.clock = Clock::default();
        self.hear(0, now, rules);
    }

    fn hear(&mut self, from: usize, now: Time, rules: Rules) {
        let local = self.local(now);
        for entry in &self.raft.log[from..] {
            if let Payload::Batch(batch) = &entry.payload {
                self.clock.hear(batch.reign, batch.stamp, local, rules);
            }
        }
    }

    /// Applies what is chosen and in its log. The replies that are settled by that.
    pub fn apply(&mut self, chosen: &[Entry], now: Time, rules: Rules) -> Vec<Reply> {
        let mut told = Vec::new();
        while self.applied < self.raft.common(chosen) {
            let entry = self.raft.log[self.applied];
            self.applied += 1;
            self.ledger.apply(self.applied as Index, &entry, rules);
            match entry.payload {
                Payload::Marker => {
                    let is_own = self.raft.leads && entry.term == self.raft.term;
                    self.change_reign(is_own, now, rules);
                }
                Payload::Batch(_) => told.extend(self.settle()),
            }
        }
        told
    }

    /// A leader sends its ledger in place of the log that made it.
    pub fn install(&mut self, from: &Node, now: Time, rules: Rules) -> Vec<Reply> {
        let log = &from.raft.log[..from.applied];
        if self.raft.common(log) < log.len() {
            self.accept(from.raft.term, log, now, rules);
        }
        self.applied = from.applied;
        self.ledger = from.ledger.clone();
        self.ledger.has_lost_sessions |= rules.has(Fault::SnapshotWithoutSessions);
        self.reign.take_if(|reign| reign.index != self.ledger.reign);
        self.settle()
    }

    /// A marker was applied. The reign before it ends; if the marker is the own one, a reign
    /// begins, with an engine from the ledger and a ceiling as its first batch.
    fn change_reign(&mut self, is_own: bool, now: Time, rules: Rules) {
        let kept = self.reign.clone().filter(|_| rules.has(Fault::EngineKept));
        if let Some(before) = std::mem::replace(&mut self.reign, kept.clone()) {
            self.strays.extend(before.unsettled);
        }
        if !is_own {
            return;
        }
        let floor = match rules.has(Fault::FloorTooOld) {
            true => Ledger::fold(&self.raft.log[..self.applied.saturating_sub(2)], rules).ceiling,
            false => self.ledger.ceiling,
        };
        let ceiling = floor + FENCES_PER_CEILING;
        let restored = std::array::from_fn(|key| self.ledger.holder(key));
        let engine = Engine {
            locks: kept.map_or(restored, |reign| reign.engine.locks),
            fence_last: floor,
            ceiling: if rules.has(Fault::CeilingUsedEarly) {
                ceiling
            } else {
                floor
            },
        };
        self.clock.begin(self.wall_ahead, rules);
        self.reign = Some(Reign {
            index: self.applied as Index,
            term: self.raft.term,
            engine,
            seq: 0,
            unsettled: Vec::new(),
            held: Vec::new(),
            turns: [None; CORES],
        });
        let record = Some(Record::Ceiling(ceiling));
        self.end_turn(
            Turn {
                record,
                reply: None,
            },
            true,
            now,
            rules,
        );
    }

    /// A turn ends: its record becomes a batch, and its reply waits for that batch. Raft may refuse
    /// it. What is told at once is told by mistake.
    pub fn end_turn(
        &mut self,
        turn: Turn,
        accepts: bool,
        now: Time,
        rules: Rules,
    ) -> Option<Reply> {
        let (stamp, local) = (self.cluster_clock(now), self.local(now));
        let is_accepted = accepts && self.is_accepting();
        let reign = self.reign.as_mut().expect("turns are of a reign");
        let batch = Batch {
            reign: reign.index,
            seq: reign.seq,
            stamp,
            record: turn.record,
        };
        reign.seq += 1;
        reign.unsettled.push(batch);
        let is_alone = reign.unsettled.len() == 1;
        let is_told = rules.has(Fault::ReplyBeforeCommit)
            || rules.has(Fault::ReplyAtLocalSync) && is_accepted
            || rules.has(Fault::BarrierSkipped) && turn.record.is_none() && is_alone;
        let held = turn.reply.filter(|_| !is_told);
        reign.held.extend(held.map(|reply| (batch.seq, reply)));
        if is_accepted {
            self.raft.append(Payload::Batch(batch));
            self.clock.hear(batch.reign, stamp, local, rules);
        }
        turn.reply.filter(|_| is_told)
    }

    /// The own ledger has applied some more of the reign: what waited for it may be told.
    fn settle(&mut self) -> Vec<Reply> {
        let (next, ceiling) = (self.ledger.seq, self.ledger.ceiling);
        let reign = self.reign.as_mut();
        let Some(reign) = reign.filter(|reign| reign.index == self.ledger.reign) else {
            return Vec::new();
        };
        reign.engine.ceiling = reign.engine.ceiling.max(ceiling);
        reign.unsettled.retain(|batch| batch.seq >= next);
        let settled = reign.held.extract_if(.., |(seq, _)| *seq < next);
        settled.map(|(_, reply)| reply).collect()
    }
}
