//! A client: one request at a time, repeated under its number until it is answered. It believes
//! that it holds a lock until its own clock says so, counted from when it asked, with the margin
//! that clients take for clocks that run at different speeds.

use crate::chance::{Dice, between, drifted_us, permille};
use crate::request::{Ask, Reply, Request, Told};

/// Clocks of clients and nodes run within a hundredth of each other.
const MARGIN_PART: u64 = 100;

pub(crate) struct Client {
    pub id: u64,
    /// How much faster its clock runs, in millionths.
    drift_ppm: i64,
    dice: Dice,
    nodes: u64,
    keys: u64,
    /// The node that it asks next.
    target: u64,
    /// Another node said so.
    has_hint: bool,
    pending: Option<Pending>,
    last_id: u64,
    has_session: bool,
    /// What it believes to hold.
    pub hold: Option<Belief>,
    idle_until_us: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    pub key: u8,
    pub fence: u64,
    /// By its own clock.
    pub until_own_us: u64,
    ttl_ms: u64,
}

struct Pending {
    request: Request,
    /// By its own clock.
    first_sent_own_us: u64,
    again_us: u64,
}

/// What a client does with the time it is given.
pub(crate) struct Sent {
    pub to: u64,
    pub request: Request,
}

impl Client {
    pub(crate) fn new(id: u64, drift_ppm: i64, nodes: u64, keys: u64, mut dice: Dice) -> Client {
        let target = between(&mut dice, 1, nodes);
        Client {
            id,
            drift_ppm,
            dice,
            nodes,
            keys,
            target,
            has_hint: false,
            pending: None,
            last_id: 0,
            has_session: false,
            hold: None,
            idle_until_us: 0,
        }
    }

    /// Its clock, at this true time.
    pub(crate) fn own_us(&self, now_us: u64) -> u64 {
        drifted_us(now_us, self.drift_ppm)
    }

    /// Whether it believes to hold this key.
    pub(crate) fn believes(&self, key: u8, now_us: u64) -> Option<Belief> {
        let own_us = self.own_us(now_us);
        self.hold
            .filter(|hold| hold.key == key && own_us < hold.until_own_us)
    }

    /// Asks something, or once more.
    pub(crate) fn step(&mut self, now_us: u64) -> Option<Sent> {
        let own_us = self.own_us(now_us);
        if self.hold.is_some_and(|hold| own_us >= hold.until_own_us) {
            self.hold = None;
        }
        if let Some(pending) = &mut self.pending {
            if now_us < pending.again_us {
                return None;
            }
            pending.again_us = now_us + between(&mut self.dice, 150_000, 600_000);
            let request = pending.request;
            if !std::mem::take(&mut self.has_hint) {
                self.target = between(&mut self.dice, 1, self.nodes);
            }
            let to = self.target;
            return Some(Sent { to, request });
        }
        if now_us < self.idle_until_us {
            return None;
        }
        let ask = self.choose();
        if matches!(ask, Ask::Release { .. }) {
            // It stops before it says so.
            self.hold = None;
        }
        self.last_id += 1;
        let request = Request {
            client: self.id,
            id: self.last_id,
            ask,
            sent_us: now_us,
        };
        self.pending = Some(Pending {
            request,
            first_sent_own_us: own_us,
            again_us: now_us + between(&mut self.dice, 150_000, 600_000),
        });
        let to = self.target;
        Some(Sent { to, request })
    }

    fn choose(&mut self) -> Ask {
        if !self.has_session {
            return Ask::Open;
        }
        match self.hold {
            Some(hold) if permille(&mut self.dice, 400) => Ask::Renew {
                key: hold.key,
                fence: hold.fence,
                ttl_ms: hold.ttl_ms,
            },
            Some(hold) if permille(&mut self.dice, 700) => Ask::Release {
                key: hold.key,
                fence: hold.fence,
            },
            // It forgets what it has, as if it had died, or only looks.
            _ => {
                let key = self.dice.below(self.keys) as u8;
                if permille(&mut self.dice, 150) {
                    return Ask::Look { key };
                }
                self.hold = None;
                let ttl_ms = match self.dice.flip() {
                    true => between(&mut self.dice, 100, 800),
                    false => between(&mut self.dice, 800, 3_500),
                };
                Ask::Acquire { key, ttl_ms }
            }
        }
    }

    /// Hears an answer. Returns a belief that begins with it.
    pub(crate) fn hear(&mut self, reply: &Reply, now_us: u64) -> Option<Belief> {
        let own_us = self.own_us(now_us);
        let pending = self.pending.as_mut()?;
        if pending.request.id != reply.request.id {
            return None;
        }
        if !reply.told.is_decided() {
            match reply.told {
                Told::NotLeader {
                    leader: Some(leader),
                } => {
                    self.target = leader;
                    self.has_hint = true;
                    // It may be told so for a while by a node that does not know better.
                    pending.again_us = now_us + between(&mut self.dice, 0, 20_000);
                    return None;
                }
                Told::NoSession => self.has_session = false,
                _ => {
                    self.target = reply.node % self.nodes + 1;
                    pending.again_us = now_us + between(&mut self.dice, 5_000, 60_000);
                    return None;
                }
            }
        }
        let first_own_us = pending.first_sent_own_us;
        let ask = pending.request.ask;
        self.pending = None;
        self.target = reply.node;
        self.idle_until_us = now_us + between(&mut self.dice, 1_000, 60_000);
        let until_own_us = |ttl_ms: u64| first_own_us + (ttl_ms - ttl_ms / MARGIN_PART) * 1_000;
        match (reply.told, ask) {
            (Told::Opened, _) => self.has_session = true,
            (Told::Granted { key, fence, .. }, Ask::Acquire { ttl_ms, .. }) => {
                let belief = Belief {
                    key,
                    fence,
                    until_own_us: until_own_us(ttl_ms),
                    ttl_ms,
                };
                if own_us < belief.until_own_us {
                    self.hold = Some(belief);
                    return Some(belief);
                }
            }
            (Told::Renewed { fence, .. }, Ask::Renew { ttl_ms, .. }) => {
                if let Some(hold) = &mut self.hold
                    && hold.fence == fence
                {
                    hold.until_own_us = hold.until_own_us.max(until_own_us(ttl_ms));
                }
            }
            (Told::NotHeld, _) => self.hold = None,
            _ => {}
        }
        None
    }
}
