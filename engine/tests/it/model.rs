//! The engine against its specification: random histories, compared after every step with a model
//! that is written to be read. What the model does is what the engine promises; how the engine does
//! it is nowhere here.
//!
//! A few sessions fight for a few keys. Time passes before each step, and most steps leave it to
//! the engine to notice lazily; only `Advance` turns the wheel, and then everything that is due
//! must have happened by the wheel alone. Fences are predicted to the number as long as a key is
//! remembered. When it has been forgotten, the next one lies above the floor, and so above
//! everything the key ever had: that is checked for ever, across restarts.

use crate::common::*;
use engine::{
    Acquire, Cursor, Downgrade, GaveUp, Grant, Holder, Key, KeyState, Limit, Lost, Mode, NotHeld,
    Outcome, Release, Renewal, Seat, SessionId, Settings, Span, Tick, Ticket,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SESSIONS: usize = 3;
const SEATS: usize = 2;
/// Of different lengths: in the cell, and beyond it.
const KEYS: [&str; 4] = ["k", "l", "a key of more than sixteen bytes", "m"];
const WAITERS_PER_KEY_MAX: u32 = 3;
const WAITERS_MAX: u32 = 4;
const SHARED_HOLDERS_MAX: u32 = 2;
const IDLE_MS: u64 = 40;
/// How many fences a restart or a raise of the ceiling allows. Few, so that the ceiling is met.
const FENCES: u64 = 8;

// ---- histories

#[derive(Clone, Debug)]
struct Step {
    /// Time passes first, and the wheel stands still.
    pass_ms: u64,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Acquire(Ask),
    /// The next four name a grant by how many were given since, and by how much its fence is
    /// falsified.
    Renew {
        named: Named,
        ttl_ms: u64,
    },
    Release {
        named: Named,
        seat: usize,
    },
    Downgrade {
        named: Named,
    },
    Force {
        named: Named,
    },
    /// Takes a key from its holders; if a grant is named, only from that one.
    TakeOver {
        ask: Ask,
        from: Option<Named>,
    },
    /// Takes back a wait, by how many began since.
    Cancel {
        back: usize,
    },
    /// A waiter goes without a word.
    Vanish {
        back: usize,
    },
    KeepAlive {
        client: usize,
        ttl_ms: u64,
    },
    /// Ends a session, vacates its seats and opens another in its place.
    EndSession {
        client: usize,
    },
    Advance {
        ms: u64,
        budget: u32,
    },
    RaiseCeiling {
        by: u64,
    },
    /// A new engine whose floor is the old one's ceiling.
    Restart,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    client: usize,
    seat: usize,
    key: usize,
    mode: Mode,
    span: Span,
    reentrant: bool,
    metadata: bool,
    wait_ms: Option<u64>,
}

/// A grant, and the client that names it.
#[derive(Clone, Debug)]
struct Named {
    back: usize,
    /// `None`: its owner.
    by: Option<usize>,
    /// Added to the fence. Mostly zero.
    fence_off: i64,
}

fn named() -> impl Strategy<Value = Named> {
    let by = prop_oneof![6 => Just(None), 1 => (0..SESSIONS).prop_map(Some)];
    let fence_off = prop_oneof![8 => Just(0), 1 => -2..3i64, 1 => Just(1 << 24)];
    (0..5usize, by, fence_off).prop_map(|(back, by, fence_off)| Named {
        back,
        by,
        fence_off,
    })
}

fn ask() -> impl Strategy<Value = Ask> {
    let mode = prop_oneof![3 => Just(Mode::Exclusive), 2 => Just(Mode::Shared)];
    let span = prop_oneof![4 => (1..120u64).prop_map(Span::Ms), 1 => Just(Span::Session), 1 => Just(Span::Forever)];
    let wait_ms = prop_oneof![1 => Just(None), 2 => (1..150u64).prop_map(Some)];
    let key = prop_oneof![2 => Just(0), 1 => Just(1), 1 => 0..KEYS.len()];
    (
        0..SESSIONS,
        0..SEATS,
        key,
        mode,
        span,
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
        wait_ms,
    )
        .prop_map(
            |(client, seat, key, mode, span, reentrant, metadata, wait_ms)| Ask {
                client,
                seat,
                key,
                mode,
                span,
                reentrant,
                metadata,
                wait_ms,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        40 => ask().prop_map(Act::Acquire),
        8 => (named(), 1..60u64).prop_map(|(named, ttl_ms)| Act::Renew { named, ttl_ms }),
        20 => (named(), 0..SEATS).prop_map(|(named, seat)| Act::Release { named, seat }),
        4 => named().prop_map(|named| Act::Downgrade { named }),
        2 => named().prop_map(|named| Act::Force { named }),
        6 => (ask(), prop::option::of(named())).prop_map(|(ask, from)| Act::TakeOver { ask, from }),
        5 => (0..4usize).prop_map(|back| Act::Cancel { back }),
        5 => (0..3usize).prop_map(|back| Act::Vanish { back }),
        4 => (0..SESSIONS, 1..200u64).prop_map(|(client, ttl_ms)| Act::KeepAlive { client, ttl_ms }),
        2 => (0..SESSIONS).prop_map(|client| Act::EndSession { client }),
        12 => (0..80u64, 1..20u32).prop_map(|(ms, budget)| Act::Advance { ms, budget }),
        3 => (0..FENCES).prop_map(|by| Act::RaiseCeiling { by }),
        1 => Just(Act::Restart),
    ];
    let pass_ms = prop_oneof![3 => Just(0), 2 => 0..20u64];
    (pass_ms, act).prop_map(|(pass_ms, act)| Step { pass_ms, act })
}

// ---- the specification

/// All that the engine is supposed to know.
struct Model {
    now: u64,
    ceiling: u64,
    sessions: BTreeMap<SessionId, Session>,
    keys: Vec<KeyModel>,
    /// What the host is told, in this step.
    events: Vec<Event>,
}

struct Session {
    until: u64,
    is_ended: bool,
    /// The host knows that it is over, so the wheel need not say so.
    is_told: bool,
}

struct KeyModel {
    name: &'static str,
    shard: usize,
    /// The last fence, while the key is remembered.
    cell: Option<u64>,
    /// The highest fence ever granted. Outlives everything.
    highest: u64,
    mode: Mode,
    holders: Vec<Hold>,
    line: VecDeque<Waiting>,
}

#[derive(Clone)]
struct Hold {
    owner: SessionId,
    fence: u64,
    since: u64,
    /// `None`: as long as the session. `FOREVER`: without an end.
    until: Option<u64>,
    count: u32,
    metadata: bool,
}

struct Waiting {
    number: u64,
    owner: SessionId,
    mode: Mode,
    span: Span,
    metadata: bool,
    until: u64,
}

/// What came of an acquire; a ticket cannot be foretold.
#[derive(Debug, PartialEq)]
enum Expected {
    Is(Outcome),
    Queued { ahead: u32 },
}

const METADATA: &[u8] = b"metadata";

/// The end of a lease that has none.
const FOREVER: u64 = u64::MAX;

impl Model {
    fn is_over(&self, session: SessionId) -> bool {
        let session = &self.sessions[&session];
        session.is_ended || session.until < self.now
    }

    fn is_lease_over(&self, hold: &Hold) -> bool {
        hold.until.is_some_and(|until| until < self.now) || self.is_over(hold.owner)
    }

    fn lease_end(&self, hold: &Hold) -> Tick {
        match hold.until {
            Some(FOREVER) => Tick::NEVER,
            Some(until) => at(until),
            None => at(self.sessions[&hold.owner].until),
        }
    }

    fn waiters(&self) -> usize {
        self.keys.iter().map(|key| key.line.len()).sum()
    }

    /// One more holder in this mode fits in beside the present ones.
    fn admits(&self, key: usize, mode: Mode) -> bool {
        let key = &self.keys[key];
        key.holders.is_empty() || (key.mode == Mode::Shared && mode == Mode::Shared)
    }

    fn is_full(&self, key: usize, mode: Mode) -> bool {
        mode == Mode::Shared && self.keys[key].holders.len() >= SHARED_HOLDERS_MAX as usize
    }

    fn has_fence(&self, key: usize) -> bool {
        self.keys[key].cell.expect("a key in use has a cell") < self.ceiling
    }

    /// A fence above all that the key ever had, and within the ceiling.
    fn mint(&mut self, key: usize) -> u64 {
        let ceiling = self.ceiling;
        let key = &mut self.keys[key];
        let fence = key.cell.expect("a key in use has a cell") + 1;
        assert!(
            fence > key.highest,
            "{}: fence {fence} after {}",
            key.name,
            key.highest
        );
        assert!(
            fence <= ceiling,
            "{}: fence {fence} above {ceiling}",
            key.name
        );
        (key.cell, key.highest) = (Some(fence), fence);
        fence
    }

    fn grant(
        &mut self,
        key: usize,
        owner: SessionId,
        mode: Mode,
        span: Span,
        metadata: bool,
    ) -> (Hold, Grant) {
        let fence = self.mint(key);
        let hold = Hold {
            owner,
            fence,
            since: self.now,
            until: match span {
                Span::Ms(ttl_ms) => Some(self.now + ttl_ms),
                Span::Session => None,
                Span::Forever => Some(FOREVER),
            },
            count: 1,
            metadata,
        };
        let grant = self.as_grant(&hold);
        self.keys[key].mode = mode;
        (hold, grant)
    }

    fn as_grant(&self, hold: &Hold) -> Grant {
        Grant {
            fence: fence(hold.fence),
            until: self.lease_end(hold),
            count: hold.count,
        }
    }

    fn lose(&mut self, key: usize, hold: &Hold, is_forced: bool) {
        // It lasts through the tick it ends with.
        let over_at = hold.until.map(|until| until.saturating_add(1));
        let late_ms = over_at.and_then(|over_at| self.now.checked_sub(over_at));
        let why = match late_ms {
            Some(_) => Lost::Expired,
            None if is_forced => Lost::Forced,
            None => Lost::SessionEnded,
        };
        self.events.push(Event::Lost {
            key: self.keys[key].name.into(),
            fence: fence(hold.fence),
            owner: hold.owner,
            why,
            held_ms: self.now - hold.since,
            late_ms: late_ms.unwrap_or(0),
        });
    }

    /// Leases that are over end.
    fn drop_overdue(&mut self, key: usize) {
        for hold in std::mem::take(&mut self.keys[key].holders) {
            if self.is_lease_over(&hold) {
                self.lose(key, &hold, false);
            } else {
                self.keys[key].holders.push(hold);
            }
        }
    }

    /// Leases that are over end, and the line moves up as far as it can.
    fn settle(&mut self, key: usize) {
        self.drop_overdue(key);
        // Beside an exclusive holder there is nothing to do: a waiter that has given up is left to
        // the wheel.
        while self.admits(key, Mode::Shared) {
            let Some(first) = self.keys[key].line.front() else {
                return;
            };
            let (mode, owner) = (first.mode, first.owner);
            if first.until <= self.now {
                self.give_up(key, 0, GaveUp::TimedOut);
            } else if self.is_over(owner) {
                self.give_up(key, 0, GaveUp::SessionEnded);
            } else if !self.admits(key, mode) || self.is_full(key, mode) || !self.has_fence(key) {
                return;
            } else {
                let first = self.keys[key].line.pop_front().unwrap();
                let (hold, grant) = self.grant(key, owner, mode, first.span, first.metadata);
                let waiter = first.number;
                self.keys[key].holders.push(hold);
                self.events.push(Event::Granted { waiter, grant });
            }
        }
    }

    fn settle_all(&mut self) {
        (0..self.keys.len()).for_each(|key| self.settle(key));
    }

    fn give_up(&mut self, key: usize, position: usize, why: GaveUp) {
        let waiting = self.keys[key].line.remove(position).unwrap();
        self.events.push(Event::GaveUp {
            waiter: waiting.number,
            why,
        });
    }

    /// Every waiter for which `has_reason` holds gives up.
    fn give_up_where(&mut self, why: GaveUp, has_reason: impl Fn(&Waiting) -> bool) {
        for key in 0..self.keys.len() {
            while let Some(position) = self.keys[key].line.iter().position(&has_reason) {
                self.give_up(key, position, why);
            }
        }
    }

    /// The asker is `owner`, and waiter `number` if it comes to that.
    fn acquire(&mut self, ask: Ask, owner: SessionId, number: u64) -> Expected {
        let Ask {
            key, mode, span, ..
        } = ask;
        if self.is_over(owner) {
            return Expected::Is(Outcome::SessionEnded);
        }
        self.settle(key);
        let mine = self.keys[key]
            .holders
            .iter()
            .position(|hold| hold.owner == owner);
        if let Some(mine) = mine {
            let is_upgrade = self.keys[key].mode == Mode::Shared && mode == Mode::Exclusive;
            if ask.reentrant && !is_upgrade {
                let now = self.now;
                let hold = &mut self.keys[key].holders[mine];
                hold.count += 1;
                hold.until = match (hold.until, span) {
                    (Some(until), Span::Ms(ttl_ms)) => Some(until.max(now + ttl_ms)),
                    (Some(_), Span::Forever) => Some(FOREVER),
                    (until, _) => until,
                };
                let hold = hold.clone();
                return Expected::Is(Outcome::Granted(self.as_grant(&hold)));
            }
            if is_upgrade && (ask.reentrant || ask.wait_ms.is_none()) {
                return Expected::Is(Outcome::UpgradeRefused(self.describe(key, 0)));
            }
        }
        let is_open = self.keys[key].line.is_empty() && self.admits(key, mode);
        if is_open && self.is_full(key, mode) {
            return Expected::Is(Outcome::Busy(Limit::SharedHolders));
        }
        if is_open && self.has_fence(key) {
            let (hold, grant) = self.grant(key, owner, mode, span, ask.metadata);
            self.keys[key].holders.push(hold);
            return Expected::Is(Outcome::Granted(grant));
        }
        let Some(wait_ms) = ask.wait_ms else {
            return Expected::Is(if self.keys[key].holders.is_empty() {
                Outcome::AtCeiling
            } else {
                Outcome::Held(self.describe(key, 0))
            });
        };
        let ahead = self.keys[key].line.len() as u32;
        if ahead >= WAITERS_PER_KEY_MAX {
            return Expected::Is(Outcome::Busy(Limit::WaitersPerKey));
        }
        if self.waiters() >= WAITERS_MAX as usize {
            return Expected::Is(Outcome::Busy(Limit::Waiters));
        }
        let until = self.now + wait_ms;
        self.keys[key].line.push_back(Waiting {
            number,
            owner,
            mode,
            span,
            metadata: ask.metadata,
            until,
        });
        Expected::Queued { ahead }
    }

    /// What comes of taking a key over; from the hold under fence `from` only, if one is given.
    fn take_over(&mut self, ask: Ask, owner: SessionId, from: Option<u64>) -> Option<Outcome> {
        if self.is_over(owner) {
            return Some(Outcome::SessionEnded);
        }
        self.settle(ask.key);
        let holders = &self.keys[ask.key].holders;
        if from.is_some_and(|from| holders.iter().all(|hold| hold.fence != from)) {
            return None;
        }
        if !self.has_fence(ask.key) {
            return Some(Outcome::AtCeiling);
        }
        for hold in std::mem::take(&mut self.keys[ask.key].holders) {
            self.lose(ask.key, &hold, true);
        }
        let (hold, grant) = self.grant(ask.key, owner, ask.mode, ask.span, ask.metadata);
        self.keys[ask.key].holders.push(hold);
        Some(Outcome::Granted(grant))
    }

    /// The hold of this session under this fence; else which reasons for a refusal are true.
    fn find_hold(
        &mut self,
        key: usize,
        owner: SessionId,
        fence: u64,
    ) -> Result<usize, Vec<NotHeld>> {
        if self.is_over(owner) {
            return Err(vec![NotHeld::SessionEnded]);
        }
        let before = self.keys[key].holders.clone();
        self.drop_overdue(key);
        let after = &self.keys[key].holders;
        if let Some(position) = after.iter().position(|hold| hold.fence == fence) {
            return match after[position].owner == owner {
                true => Ok(position),
                false => Err(vec![NotHeld::OtherOwner]),
            };
        }
        let mine = |hold: &Hold| hold.fence == fence && hold.owner == owner;
        if before.iter().any(mine) {
            return Err(vec![NotHeld::Expired]);
        }
        // Whose lease is over and has not been noticed may still be named as the holder.
        let is_unnoticed = before.len() > after.len();
        let mut reasons = Vec::new();
        if after.is_empty() {
            // How the last one ended is told in `locks.rs`; the model does not remember.
            reasons.extend([
                NotHeld::Free,
                NotHeld::Never,
                NotHeld::Released,
                NotHeld::Expired,
                NotHeld::Forced,
            ]);
        }
        if !after.is_empty() || is_unnoticed {
            reasons.push(NotHeld::OtherFence);
        }
        if is_unnoticed {
            reasons.push(NotHeld::OtherOwner);
        }
        Err(reasons)
    }

    fn describe(&self, key: usize, position: usize) -> Holder {
        let model = &self.keys[key];
        let hold = &model.holders[position];
        Holder {
            owner: Some(hold.owner),
            fence: fence(hold.fence),
            mode: model.mode,
            held_ms: self.now - hold.since,
            until: self.lease_end(hold),
            session_until: at(self.sessions[&hold.owner].until),
            is_session_bound: hold.until.is_none(),
            count: hold.count,
            holders: model.holders.len() as u32,
            queue_length: model.line.len() as u32,
            metadata: if hold.metadata {
                METADATA.into()
            } else {
                Box::default()
            },
        }
    }

    fn query(&self, key: usize) -> Option<KeyState> {
        let model = &self.keys[key];
        Some(KeyState {
            fence: fence(model.cell?),
            holders: (0..model.holders.len())
                .map(|position| self.describe(key, position))
                .collect(),
            holder_count: model.holders.len() as u32,
            queue_length: model.line.len() as u32,
        })
    }

    fn advance(&mut self) {
        for (&id, session) in &mut self.sessions {
            if session.until < self.now && !session.is_told {
                session.is_told = true;
                self.events.push(Event::SessionEnded(id));
            }
        }
        self.settle_all();
        let now = self.now;
        self.give_up_where(GaveUp::TimedOut, |waiting| waiting.until <= now);
        self.settle_all();
    }

    fn vacate(&mut self, session: SessionId) {
        self.give_up_where(GaveUp::SessionEnded, |waiting| waiting.owner == session);
        self.settle_all();
    }
}

// ---- engine and model side by side

struct Run {
    engine: Locks,
    model: Model,
    floors: Vec<u64>,
    /// The present session of each client, and its seats.
    clients: Vec<(SessionId, [Seat; SEATS])>,
    /// Every grant that a client was told of: key, owner, fence.
    grants: Vec<(usize, SessionId, u64)>,
    /// Every wait since the start of the engine: key and ticket. A waiter's number is its place
    /// here.
    waits: Vec<(usize, Ticket)>,
    /// Waiters that have gone: what they are granted is given back.
    vanished: BTreeSet<u64>,
    /// When each of them ends at the latest.
    wait_ends: Vec<u64>,
}

const SESSION_MS: u64 = 400;

fn new_engine(floor: u64, ceiling: u64, now: u64) -> Locks {
    locks_with(Settings {
        shards: 2,
        waiters_per_key_max: WAITERS_PER_KEY_MAX,
        waiters_max: WAITERS_MAX,
        shared_holders_max: SHARED_HOLDERS_MAX,
        idle_ms: IDLE_MS,
        floor: fence(floor),
        ceiling: fence(ceiling),
        now: at(now),
        ..small()
    })
}

impl Run {
    fn new() -> Run {
        let engine = new_engine(0, FENCES, 0);
        let keys = KEYS.map(|name| KeyModel {
            name,
            shard: engine.shard_of(key(name)),
            cell: None,
            highest: 0,
            mode: Mode::Exclusive,
            holders: Vec::new(),
            line: VecDeque::new(),
        });
        let mut run = Run {
            floors: vec![0; engine.shard_count()],
            engine,
            model: Model {
                now: 0,
                ceiling: FENCES,
                sessions: BTreeMap::new(),
                keys: keys.into(),
                events: Vec::new(),
            },
            clients: Vec::new(),
            grants: Vec::new(),
            waits: Vec::new(),
            vanished: BTreeSet::new(),
            wait_ends: Vec::new(),
        };
        run.open_sessions();
        run
    }

    fn now(&self) -> Tick {
        at(self.model.now)
    }

    fn key(&self, key: usize) -> Key<'static> {
        crate::common::key(KEYS[key])
    }

    fn open_sessions(&mut self) {
        while self.clients.len() < SESSIONS {
            let client = self.open_session();
            self.clients.push(client);
        }
    }

    fn open_session(&mut self) -> (SessionId, [Seat; SEATS]) {
        let id = self.engine.open_session(SESSION_MS, self.now()).unwrap();
        let session = Session {
            until: self.model.now + SESSION_MS,
            is_ended: false,
            is_told: false,
        };
        let known = self.model.sessions.insert(id, session);
        assert!(known.is_none(), "{id:?} was given out before");
        (id, std::array::from_fn(|_| Seat::new(id)))
    }

    /// Vacates the seats of an ended session, in the engine and in the model, and opens another in
    /// its place.
    fn replace_session(&mut self, client: usize) {
        let now = self.now();
        let (id, seats) = &mut self.clients[client];
        let id = *id;
        for seat in seats {
            self.engine.vacate(seat, now);
        }
        assert!(self.engine.forget_session(id));
        self.model.vacate(id);
        self.clients[client] = self.open_session();
    }

    fn step(&mut self, step: &Step) {
        self.model.now += step.pass_ms;
        let mut by_the_wheel = false;
        match step.act {
            Act::Acquire(ask) => self.acquire(ask),
            Act::Renew { ref named, ttl_ms } => self.renew(named, ttl_ms),
            Act::Release { ref named, seat } => self.release(named, seat),
            Act::Downgrade { ref named } => self.downgrade(named),
            Act::Force { ref named } => self.force(named),
            Act::TakeOver { ask, ref from } => self.take_over(ask, from.as_ref()),
            Act::Cancel { back } => self.cancel(back),
            Act::Vanish { back } => self.vanish(back),
            Act::KeepAlive { client, ttl_ms } => {
                let id = self.clients[client].0;
                let answer = self.engine.keep_alive(id, ttl_ms, self.now());
                let expected = (!self.model.is_over(id)).then(|| {
                    let now = self.model.now;
                    let session = self.model.sessions.get_mut(&id).unwrap();
                    session.until = session.until.max(now + ttl_ms);
                    at(session.until)
                });
                assert_eq!(answer, expected);
            }
            Act::EndSession { client } => {
                let id = self.clients[client].0;
                let is_open = !self.model.is_over(id);
                // One that is past its deadline may or may not have been found out.
                assert!(self.engine.end_session(id) || !is_open);
                let session = self.model.sessions.get_mut(&id).unwrap();
                (session.is_ended, session.is_told) = (true, true);
                self.replace_session(client);
            }
            Act::Advance { ms, budget } => {
                by_the_wheel = true;
                self.model.now += ms;
                while self.engine.advance(self.now(), budget).more {}
                self.model.advance();
                for client in 0..SESSIONS {
                    let session = &self.model.sessions[&self.clients[client].0];
                    if session.is_told {
                        self.replace_session(client);
                    }
                }
            }
            Act::RaiseCeiling { by } => {
                self.model.ceiling += by;
                for shard in 0..self.engine.shard_count() {
                    self.engine
                        .raise_ceiling(shard, fence(self.model.ceiling), self.now());
                }
                self.model.settle_all();
            }
            Act::Restart => self.restart(),
        }
        self.compare(by_the_wheel);
    }

    fn acquire(&mut self, ask: Ask) {
        let Ask {
            key, mode, span, ..
        } = ask;
        let request = Acquire {
            key: self.key(key),
            mode,
            span,
            reentrant: ask.reentrant,
            metadata: if ask.metadata { METADATA } else { b"" },
            asks_who: true,
            waited_ms: 0,
        };
        let now = self.now();
        let number = self.waits.len() as u64;
        let (owner, ref mut seats) = self.clients[ask.client];
        let seat = &mut seats[ask.seat];
        let outcome = match ask.wait_ms {
            None => self.engine.acquire(seat, &request, now),
            Some(wait_ms) => {
                self.engine
                    .acquire_or_wait(seat, &request, wait_ms, || Some(number), now)
            }
        };
        self.find_new_cell(key, &outcome);
        let expected = self.model.acquire(ask, owner, number);
        match outcome {
            Outcome::Queued { ticket, ahead } => {
                assert_eq!(Expected::Queued { ahead }, expected);
                self.waits.push((key, ticket));
                let until = self.model.now + ask.wait_ms.unwrap();
                self.wait_ends.push(until);
            }
            outcome => {
                if let Outcome::Granted(grant) = outcome {
                    self.grants.push((key, owner, grant.fence.get()));
                }
                assert_eq!(Expected::Is(outcome), expected);
            }
        }
        self.model.settle(key);
    }

    fn take_over(&mut self, mut ask: Ask, from: Option<&Named>) {
        let from = from.and_then(|named| self.named(named));
        if let Some((key, _, _)) = from {
            ask.key = key;
        }
        let from = from.map(|(_, _, number)| number);
        let request = Acquire {
            key: self.key(ask.key),
            mode: ask.mode,
            span: ask.span,
            reentrant: false,
            metadata: if ask.metadata { METADATA } else { b"" },
            asks_who: true,
            waited_ms: 0,
        };
        let now = self.now();
        let (owner, ref mut seats) = self.clients[ask.client];
        let seat = &mut seats[ask.seat];
        let answer = self.engine.take_over(seat, &request, from.map(fence), now);
        self.find_new_cell(ask.key, answer.as_ref().unwrap_or(&Outcome::AtCeiling));
        let expected = self.model.take_over(ask, owner, from);
        if let Some(Outcome::Granted(grant)) = &answer {
            self.grants.push((ask.key, owner, grant.fence.get()));
        }
        assert_eq!(answer, expected);
        self.model.settle(ask.key);
    }

    /// A key that comes back starts at its shard's floor, or one above (where a cell is used
    /// again).
    fn find_new_cell(&mut self, key: usize, outcome: &Outcome) {
        if self.model.keys[key].cell.is_some() {
            return;
        }
        let Some(state) = self.engine.query(self.key(key), self.now()) else {
            return;
        };
        let born_with = match outcome {
            Outcome::Granted(grant) => grant.fence.get() - 1,
            _ => state.fence.get(),
        };
        let floor = self.floors[self.model.keys[key].shard];
        assert!(
            (floor..=floor + 1).contains(&born_with),
            "born with {born_with}, the floor is {floor}"
        );
        self.model.keys[key].cell = Some(born_with);
    }

    /// The key, session and fence that are named; `None` as long as there was no grant.
    fn named(&self, named: &Named) -> Option<(usize, usize, u64)> {
        let index = self.grants.len().checked_sub(1 + named.back)?;
        let (key, owner, number) = self.grants[index];
        let owner = self.clients.iter().position(|&(id, _)| id == owner);
        // An owner that is gone: the session in its place tries its luck.
        let by = named.by.or(owner).unwrap_or(named.back % SESSIONS);
        Some((key, by, number.saturating_add_signed(named.fence_off)))
    }

    fn renew(&mut self, named: &Named, ttl_ms: u64) {
        let Some((key, by, number)) = self.named(named) else {
            return;
        };
        let (id, ref seats) = self.clients[by];
        let answer = self
            .engine
            .renew(&seats[0], self.key(key), fence(number), ttl_ms, self.now());
        match self.model.find_hold(key, id, number) {
            Ok(position) => {
                let hold = &mut self.model.keys[key].holders[position];
                hold.until = hold.until.map(|_| self.model.now + ttl_ms);
                let hold = hold.clone();
                let until = self.model.lease_end(&hold);
                assert_eq!(answer, Renewal::Renewed { until });
            }
            Err(reasons) => assert!(
                matches!(answer, Renewal::NotHeld(why) if reasons.contains(&why)),
                "{answer:?}, not {reasons:?}"
            ),
        }
        self.model.settle(key);
    }

    fn release(&mut self, named: &Named, seat: usize) {
        let Some((key, by, number)) = self.named(named) else {
            return;
        };
        let (now, name) = (self.now(), self.key(key));
        let (id, ref mut seats) = self.clients[by];
        let answer = self
            .engine
            .release(&mut seats[seat], name, fence(number), now);
        match self.model.find_hold(key, id, number) {
            Ok(position) => {
                let holders = &mut self.model.keys[key].holders;
                holders[position].count -= 1;
                let count = holders[position].count;
                if count == 0 {
                    holders.remove(position);
                }
                assert_eq!(answer, Release::Released { count });
            }
            Err(reasons) => assert!(
                matches!(answer, Release::NotHeld(why) if reasons.contains(&why)),
                "{answer:?}, not {reasons:?}"
            ),
        }
        self.model.settle(key);
    }

    fn downgrade(&mut self, named: &Named) {
        let Some((key, by, number)) = self.named(named) else {
            return;
        };
        let (id, ref seats) = self.clients[by];
        let answer = self
            .engine
            .downgrade(&seats[0], self.key(key), fence(number), self.now());
        match self.model.find_hold(key, id, number) {
            Ok(_) => {
                self.model.keys[key].mode = Mode::Shared;
                assert_eq!(answer, Downgrade::Downgraded);
            }
            Err(reasons) => assert!(
                matches!(answer, Downgrade::NotHeld(why) if reasons.contains(&why)),
                "{answer:?}, not {reasons:?}"
            ),
        }
        self.model.settle(key);
    }

    fn force(&mut self, named: &Named) {
        let Some((key, _, number)) = self.named(named) else {
            return;
        };
        let answer = self
            .engine
            .force_release(self.key(key), fence(number), self.now());
        self.model.drop_overdue(key);
        let holders = &mut self.model.keys[key].holders;
        let position = holders.iter().position(|hold| hold.fence == number);
        assert_eq!(answer, position.is_some());
        if let Some(position) = position {
            let hold = holders.remove(position);
            self.model.lose(key, &hold, true);
        }
        self.model.settle(key);
    }

    fn cancel(&mut self, back: usize) {
        let Some(number) = self.waits.len().checked_sub(1 + back) else {
            return;
        };
        let (key, ticket) = self.waits[number];
        let number = number as u64;
        let answer = self.engine.cancel(ticket, self.now());
        let line = &mut self.model.keys[key].line;
        let position = line.iter().position(|waiting| waiting.number == number);
        assert_eq!(answer, position.map(|_| number));
        if let Some(position) = position {
            line.remove(position);
            self.model.settle(key);
        }
    }

    fn vanish(&mut self, back: usize) {
        let Some(number) = self.waits.len().checked_sub(1 + back) else {
            return;
        };
        self.vanished.insert(number as u64);
    }

    fn restart(&mut self) {
        let floor = self.model.ceiling;
        self.model.ceiling += FENCES;
        self.engine = new_engine(floor, self.model.ceiling, self.model.now);
        self.floors.fill(floor);
        for key in &mut self.model.keys {
            (key.cell, key.holders, key.line) = (None, Vec::new(), VecDeque::new());
        }
        self.model.sessions.clear();
        self.clients.clear();
        self.waits.clear();
        self.vanished.clear();
        self.wait_ends.clear();
        self.open_sessions();
    }

    /// All that can be seen of the engine is as in the model.
    fn compare(&mut self, by_the_wheel: bool) {
        let mut told = self.engine.host().take();
        let mut states = self.states();
        let more = self.engine.host().take();
        assert!(
            !by_the_wheel || more.is_empty(),
            "the wheel left these to others: {more:?}"
        );
        told.extend(more);
        self.model.settle_all();
        let mut seen = 0;
        while seen < told.len() {
            self.give_back_orphans(&told[seen..]);
            seen = told.len();
            states = self.states();
            told.extend(self.engine.host().take());
        }
        let expected = std::mem::take(&mut self.model.events);
        assert_eq!(self.in_order(told), self.in_order(expected.clone()));
        self.note_grants(&expected);

        for (key, state) in states.into_iter().enumerate() {
            let model = &mut self.model.keys[key];
            if let (None, Some(last)) = (&state, model.cell) {
                // Forgotten: not while it is in use, and not before the floor has risen.
                assert!(model.holders.is_empty() && model.line.is_empty() && by_the_wheel);
                let floor = &mut self.floors[model.shard];
                *floor = last.max(*floor);
                model.cell = None;
            }
            assert_eq!(state, self.model.query(key), "{}", KEYS[key]);
            let model = &self.model.keys[key];
            assert!(model.mode == Mode::Shared || model.holders.len() <= 1);
        }
        assert_eq!(self.engine.waiters() as usize, self.model.waiters());
        self.compare_list();
    }

    fn states(&self) -> Vec<Option<KeyState>> {
        (0..KEYS.len())
            .map(|key| self.engine.query(self.key(key), self.now()))
            .collect()
    }

    /// Gives back what was granted to waiters that had gone, as a host does.
    fn give_back_orphans(&mut self, told: &[Event]) {
        for event in told {
            let &Event::Granted { waiter, grant } = event else {
                continue;
            };
            if !self.vanished.contains(&waiter) {
                continue;
            }
            let key = self.waits[waiter as usize].0;
            let holders = &mut self.model.keys[key].holders;
            let position = holders
                .iter()
                .position(|hold| hold.fence == grant.fence.get());
            // It may have ended in the same step.
            let Some(position) = position else {
                continue;
            };
            let hold = &mut holders[position];
            let owner = hold.owner;
            // Its session may have taken it once more in the same step.
            hold.count -= 1;
            let count = hold.count;
            if count == 0 {
                holders.remove(position);
            }
            let mut seat = Seat::new(owner);
            let answer = self
                .engine
                .release(&mut seat, self.key(key), grant.fence, self.now());
            assert_eq!(answer, Release::Released { count });
            self.model.settle(key);
        }
    }

    fn compare_list(&self) {
        let mut found = BTreeMap::new();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            let page = self.engine.list(b"", from, 1, self.now());
            for (name, state) in page.keys {
                assert!(found.insert(name, state).is_none());
            }
            cursor = page.next;
        }
        let used = |key: &usize| {
            let model = &self.model.keys[*key];
            !model.holders.is_empty() || !model.line.is_empty()
        };
        let expected: BTreeMap<Box<[u8]>, KeyState> = (0..KEYS.len())
            .filter(used)
            .map(|key| {
                (
                    KEYS[key].as_bytes().into(),
                    self.model.query(key).expect("in use"),
                )
            })
            .collect();
        assert_eq!(found, expected);
    }

    /// Events of one step, in an order that does not depend on which key was looked at first. A
    /// waiter that waited too long *and* lost its session may be told either.
    fn in_order(&self, mut events: Vec<Event>) -> Vec<Event> {
        for event in &mut events {
            if let Event::GaveUp { waiter, why } = event
                && self.wait_ends[*waiter as usize] <= self.model.now
            {
                *why = GaveUp::TimedOut;
            }
        }
        events.sort_by_cached_key(|event| format!("{event:?}"));
        events
    }

    /// Grants by hand-off can be named by later steps too.
    fn note_grants(&mut self, events: &[Event]) {
        for event in events {
            let &Event::Granted { waiter, grant } = event else {
                continue;
            };
            let key = self.waits[waiter as usize].0;
            let hold = self.model.keys[key]
                .holders
                .iter()
                .find(|hold| hold.fence == grant.fence.get());
            // It may have ended in the same step.
            if let Some(hold) = hold {
                self.grants.push((key, hold.owner, hold.fence));
            }
        }
    }

    /// When all sessions have gone, nothing is left.
    fn finish(&mut self) {
        for client in 0..SESSIONS {
            let (id, seats) = &mut self.clients[client];
            self.engine.end_session(*id);
            for seat in seats {
                self.engine.vacate(seat, at(self.model.now));
            }
            assert!(self.engine.forget_session(*id));
        }
        assert_eq!(self.engine.waiters(), 0);
        assert_eq!(self.engine.sessions(), 0);
        for _ in 0..3 {
            self.model.now += 1000;
            advance(&self.engine, self.now());
        }
        assert_eq!(self.engine.keys(), 0);
        assert_eq!(self.engine.bytes(), 0);
    }
}

proptest! {
    // A failure prints the shortest history found, and keeps its seed in `proptest-regressions/`.
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn the_engine_does_what_the_model_says(history in prop::collection::vec(step(), 1..150)) {
        let mut run = Run::new();
        for step in &history {
            run.step(step);
        }
        run.finish();
    }
}
