//! A lock server in miniature: plain maps, one thread. It makes up histories that could have
//! happened, and says at every point what is true. Replay is checked against it.

use crate::record::{Lease, Record};
use crate::replay::recovered::Recovered;
use disk::forgetful::Dice;
use std::collections::BTreeMap;
use types::Mode;

const KEYS: [&[u8]; 5] = [b"a", b"orders/42", b"orders/43", b"\x00\xff", b"z"];
const NOTES: [&[u8]; 3] = [b"", b"", b"host 7, pid 1234"];
const NAMES: [&[u8]; 2] = [b"", b"billing"];
const SHARDS: u16 = 3;
/// How far ceilings are raised at once: little, so that it happens often.
const STEP: u64 = 5;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Session {
    pub(crate) ttl_ms: u32,
    pub(crate) deadline_unix_ms: u64,
    name: &'static [u8],
}

/// What is true at one moment. Leases that have ended are not in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    pub(crate) ceilings: BTreeMap<u16, u64>,
    pub(crate) horizon_unix_ms: u64,
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) leases: BTreeMap<(Vec<u8>, u64), OwnedLease>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnedLease {
    pub(crate) session: u64,
    pub(crate) mode: Mode,
    is_session_bound: bool,
    pub(crate) count: u32,
    pub(crate) until_unix_ms: u64,
    granted_unix_ms: u64,
    note: Vec<u8>,
}

impl View {
    /// What a server finds, without what has ended by now.
    pub(crate) fn of(recovered: &Recovered, now_unix_ms: u64) -> View {
        let ceiling = recovered.ceilings.values().copied().max();
        assert_eq!(ceiling.unwrap_or(0), recovered.ceiling_max);
        let sessions = recovered.sessions.iter().map(|session| {
            let name = NAMES.into_iter().find(|name| **name == *session.name);
            let found = Session {
                ttl_ms: session.ttl_ms,
                deadline_unix_ms: session.deadline_unix_ms,
                name: name.expect("no other names are given"),
            };
            (session.session, found)
        });
        let leases = recovered.leases.iter();
        let leases = leases.filter(|lease| lease.until_unix_ms > now_unix_ms);
        View {
            ceilings: recovered.ceilings.clone(),
            horizon_unix_ms: recovered.horizon_unix_ms,
            sessions: sessions.collect(),
            leases: leases.map(owned).collect(),
        }
    }
}

fn owned(lease: Lease<'_>) -> ((Vec<u8>, u64), OwnedLease) {
    let owned = OwnedLease {
        session: lease.session,
        mode: lease.mode,
        is_session_bound: lease.is_session_bound,
        count: lease.count,
        until_unix_ms: lease.until_unix_ms,
        granted_unix_ms: lease.granted_unix_ms,
        note: lease.note.to_vec(),
    };
    ((lease.key.to_vec(), lease.fence), owned)
}

/// Told each record and what is true when it has happened.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(&World, Record<'static>);

/// The miniature server.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now_unix_ms: u64,
    ceilings: BTreeMap<u16, u64>,
    horizon_unix_ms: u64,
    sessions: BTreeMap<u64, Session>,
    holders: BTreeMap<usize, BTreeMap<u64, Lease<'static>>>,
    last_fences: BTreeMap<usize, u64>,
    session_next: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            now_unix_ms: 1_700_000_000_000,
            ceilings: BTreeMap::new(),
            horizon_unix_ms: 0,
            sessions: BTreeMap::new(),
            holders: BTreeMap::new(),
            last_fences: BTreeMap::new(),
            // 1 and 2 are the server's own.
            session_next: 3,
        }
    }

    pub(crate) fn view(&self) -> View {
        self.view_at(self.now_unix_ms)
    }

    /// What is left of it then, if nothing happens but that time passes.
    pub(crate) fn view_at(&self, now_unix_ms: u64) -> View {
        let leases = self.leases();
        let leases = leases.filter(|lease| lease.until_unix_ms > now_unix_ms);
        View {
            ceilings: self.ceilings.clone(),
            horizon_unix_ms: self.horizon_unix_ms,
            sessions: self.sessions.clone(),
            leases: leases.map(owned).collect(),
        }
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = Lease<'static>> {
        let all = self.holders.values().flat_map(BTreeMap::values);
        all.map(|lease| Lease {
            until_unix_ms: self.end_of(lease),
            ..*lease
        })
    }

    fn end_of(&self, lease: &Lease<'_>) -> u64 {
        match lease.is_session_bound {
            true => self.sessions[&lease.session].deadline_unix_ms,
            false => lease.until_unix_ms,
        }
    }

    /// A restart: keys may be in other shards, so all fences go on above the highest ceiling. After
    /// a clean stop there is nothing left that a horizon has to cover.
    pub(crate) fn restart(&mut self, now_unix_ms: u64, was_clean: bool) {
        self.now_unix_ms = now_unix_ms;
        if was_clean {
            self.horizon_unix_ms = 0;
        }
        let ceiling_max = self.ceilings.values().copied().max().unwrap_or(0);
        self.last_fences = (0..KEYS.len()).map(|key| (key, ceiling_max)).collect();
    }

    /// Something happens. `emit` is told each record, and what is true when it has happened.
    pub(crate) fn step(&mut self, dice: &mut Dice, emit: Emit<'_>) {
        self.pass_time(dice, emit);
        let session = self.pick_session(dice);
        let key = dice.below(KEYS.len() as u64) as usize;
        let record = match (dice.below(16), session) {
            (0, _) | (_, None) => Some(self.open_session(dice)),
            (1, _) => Some(Record::Clock {
                unix_ms: self.now_unix_ms,
                wall_unix_ms: None,
            }),
            (2, Some(session)) if dice.flip() => Some(self.end_session(session)),
            (3, Some(session)) => Some(self.keep_session(session)),
            (4..=9, Some(session)) => self.acquire(session, key, dice, emit),
            (10, _) => self.renew(key, dice),
            (11, _) => self.downgrade(key),
            _ => self.release(key, dice),
        };
        if let Some(record) = record {
            emit(self, record);
        }
    }

    /// The records of one step.
    pub(crate) fn records(&mut self, dice: &mut Dice) -> Vec<Record<'static>> {
        let mut records = Vec::new();
        self.step(dice, &mut |_, record| records.push(record));
        records
    }

    /// Sessions that are not kept alive end, and say so; leases end by themselves.
    fn pass_time(&mut self, dice: &mut Dice, emit: Emit<'_>) {
        self.now_unix_ms += dice.below(200);
        let now_unix_ms = self.now_unix_ms;
        let ended = self
            .sessions
            .iter()
            .filter(|(_, session)| session.deadline_unix_ms <= now_unix_ms);
        let ended: Vec<u64> = ended.map(|(&session, _)| session).collect();
        for session in ended {
            let record = self.end_session(session);
            emit(self, record);
        }
        for key in 0..KEYS.len() {
            let mut holders = self.holders.remove(&key).unwrap_or_default();
            holders.retain(|_, lease| self.end_of(lease) > now_unix_ms);
            self.holders.insert(key, holders);
        }
    }

    fn pick_session(&self, dice: &mut Dice) -> Option<u64> {
        let index = dice.below(self.sessions.len().max(1) as u64);
        self.sessions.keys().nth(index as usize).copied()
    }

    fn open_session(&mut self, dice: &mut Dice) -> Record<'static> {
        let id = self.session_next;
        self.session_next += 1;
        let ttl_ms = 500 + dice.below(3000) as u32;
        let session = Session {
            ttl_ms,
            deadline_unix_ms: self.now_unix_ms + u64::from(ttl_ms),
            name: NAMES[dice.below(2) as usize],
        };
        let record = opened(id, &session);
        self.sessions.insert(id, session);
        record
    }

    fn keep_session(&mut self, id: u64) -> Record<'static> {
        let session = self.sessions.get_mut(&id).expect("picked from there");
        session.deadline_unix_ms = self.now_unix_ms + u64::from(session.ttl_ms);
        Record::SessionKept {
            session: id,
            deadline_unix_ms: session.deadline_unix_ms,
        }
    }

    fn end_session(&mut self, session: u64) -> Record<'static> {
        for holders in self.holders.values_mut() {
            holders.retain(|_, lease| lease.session != session);
        }
        self.sessions.remove(&session);
        Record::SessionEnded { session }
    }

    fn acquire(
        &mut self,
        session: u64,
        key: usize,
        dice: &mut Dice,
        emit: Emit<'_>,
    ) -> Option<Record<'static>> {
        let mode = Mode::from_is_shared(dice.below(3) == 0);
        let until_unix_ms = self.now_unix_ms + 50 + dice.below(2000);
        let holders = self.holders.entry(key).or_default();
        if let Some(mine) = holders.values_mut().find(|lease| lease.session == session) {
            if mine.mode == Mode::Shared {
                return None;
            }
            mine.count += 1;
            mine.until_unix_ms = mine.until_unix_ms.max(until_unix_ms);
            return Some(Record::Granted(*mine));
        }
        let is_free = holders.values().all(|lease| lease.mode.admits(mode));
        if !is_free {
            return None;
        }
        let shard = key as u16 % SHARDS;
        let fence = self.last_fences.get(&key).copied().unwrap_or(0) + 1;
        if fence > self.ceilings.get(&shard).copied().unwrap_or(0) {
            let record = self.raise(shard);
            emit(self, record);
        }
        if until_unix_ms > self.horizon_unix_ms {
            self.horizon_unix_ms = until_unix_ms + 5000;
            let unix_ms = self.horizon_unix_ms;
            emit(
                self,
                Record::Horizon {
                    unix_ms,
                    lease_ms_max: None,
                },
            );
        }
        let lease = Lease {
            key: KEYS[key],
            fence,
            session,
            mode,
            is_session_bound: dice.below(4) == 0,
            count: 1,
            until_unix_ms,
            granted_unix_ms: self.now_unix_ms,
            note: NOTES[dice.below(3) as usize],
        };
        self.last_fences.insert(key, fence);
        self.holders.entry(key).or_default().insert(fence, lease);
        Some(Record::Granted(lease))
    }

    fn raise(&mut self, shard: u16) -> Record<'static> {
        let ceiling = self.ceilings.entry(shard).or_default();
        let lowest = self.last_fences.values().copied().max().unwrap_or(0);
        *ceiling = (*ceiling).max(lowest) + STEP;
        let fence = *ceiling;
        Record::Ceiling { shard, fence }
    }

    fn pick_holder(&mut self, key: usize, dice: &mut Dice) -> Option<&mut Lease<'static>> {
        let holders = self.holders.get_mut(&key)?;
        let index = dice.below(holders.len().max(1) as u64) as usize;
        holders.values_mut().nth(index)
    }

    fn renew(&mut self, key: usize, dice: &mut Dice) -> Option<Record<'static>> {
        let until_unix_ms = self.now_unix_ms + 50 + dice.below(2000);
        let lease = self.pick_holder(key, dice)?;
        if lease.is_session_bound {
            return None;
        }
        // The record may stand behind that of a later renewal: replay cannot take its word for
        // less.
        lease.until_unix_ms = until_unix_ms.max(lease.until_unix_ms);
        Some(Record::Renewed {
            key: lease.key,
            fence: lease.fence,
            until_unix_ms,
        })
    }

    fn downgrade(&mut self, key: usize) -> Option<Record<'static>> {
        let lease = self.holders.get_mut(&key)?.values_mut().next()?;
        if lease.mode == Mode::Shared {
            return None;
        }
        lease.mode = Mode::Shared;
        Some(Record::Downgraded {
            key: lease.key,
            fence: lease.fence,
        })
    }

    fn release(&mut self, key: usize, dice: &mut Dice) -> Option<Record<'static>> {
        let lease = self.pick_holder(key, dice)?;
        lease.count -= 1;
        let Lease {
            key: name,
            fence,
            count: count_left,
            ..
        } = *lease;
        if count_left == 0 {
            self.holders.get_mut(&key)?.remove(&fence);
        }
        Some(Record::Released {
            key: name,
            fence,
            count_left,
        })
    }

    /// A part of a snapshot, as it is now. All parts from 0 to [`World::PARTS`] together are a
    /// snapshot.
    pub(crate) fn part(&self, part: usize) -> Vec<Record<'static>> {
        if part < KEYS.len() {
            let holders = self.holders.get(&part);
            let leases = holders.into_iter().flat_map(BTreeMap::values);
            return leases.map(|lease| Record::Granted(*lease)).collect();
        }
        if part == KEYS.len() {
            let ceilings = self.ceilings.iter();
            let mut records: Vec<_> = ceilings
                .map(|(&shard, &fence)| Record::Ceiling { shard, fence })
                .collect();
            records.push(Record::Horizon {
                unix_ms: self.horizon_unix_ms,
                lease_ms_max: None,
            });
            return records;
        }
        let remainder = (part - KEYS.len() - 1) as u64;
        let sessions = self.sessions.iter();
        sessions
            .filter(|(id, _)| *id % 2 == remainder)
            .map(|(&id, session)| opened(id, session))
            .collect()
    }

    pub(crate) const PARTS: usize = KEYS.len() + 3;
}

fn opened(session: u64, what: &Session) -> Record<'static> {
    Record::SessionOpened {
        session,
        ttl_ms: what.ttl_ms,
        deadline_unix_ms: what.deadline_unix_ms,
        name: what.name,
    }
}
