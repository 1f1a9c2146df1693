//! What stands above a node in the simulation, in place of the server: a plain map that decides,
//! built from the ledger at the beginning of each reign and thrown away at its end. It keeps the
//! server's rules. What it tells waits until an entry is settled that was proposed after it was
//! decided; fences are granted below settled ceilings only; a repeated request gets its old answer.

use crate::bug::Bug;
use crate::request::{Ask, Reply, Request, Told};
use crate::shared::Shared;
use cluster::node::Node;
use cluster::propose::Reign;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use types::Mode;
use wal::{Batch, Lease, Record, Ticket};

/// Fences that one ceiling allows. Few, so that ceilings are raised often.
const CEILING_STEP: u64 = 6;

/// A new ceiling is asked for when so few fences are left.
const CEILING_LOW: u64 = 3;

/// How often turns are said to have ended.
const TURNS_EVERY: Duration = Duration::from_millis(400);

/// One grant in so many is decided by a core that then stands still: its turn ends late, and what
/// other cores decide meanwhile is appended before it.
const LATE_EVERY: u64 = 8;

/// How long a session outlives its last sign of life: longer than a run.
const SESSION_TTL_MS: u32 = 3_600_000;

/// Between the clients and one node's process.
#[derive(Default)]
pub(crate) struct Desk {
    pub inbox: Mutex<VecDeque<Request>>,
    pub outbox: Mutex<Vec<Reply>>,
    pub news: Notify,
}

/// One key.
#[derive(Clone, Copy, Debug)]
struct Hold {
    fence: u64,
    client: u64,
    until_ms: u64,
}

/// The map that decides.
#[derive(Clone, Default)]
struct Engine {
    holds: BTreeMap<u8, Hold>,
    sessions: BTreeSet<u64>,
    /// Fences by session and request.
    answers: BTreeMap<(u64, u64), u64>,
}

/// Serves clients for as long as the node's process runs.
pub(crate) async fn serve(node: Node, desk: Arc<Desk>, shared: Shared) {
    let mut kept = None;
    let mut leadership = node.leadership();
    loop {
        let own = leadership.borrow_and_update().own;
        let Some(leader) = own else {
            turn_away(&node, &desk);
            tokio::select! {
                biased;
                changed = leadership.changed() => if changed.is_err() { return },
                () = desk.news.notified() => {}
            }
            continue;
        };
        let Ok(index) = node.begin_reign(leader).await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let Some(mut office) = Office::open(&node, index, leader, &desk, &shared, &mut kept).await
        else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        office.run().await;
        kept = Some(office.engine);
    }
}

fn turn_away(node: &Node, desk: &Desk) {
    let leader = node.leadership().borrow().leader;
    for request in desk.inbox.lock().drain(..) {
        desk.outbox.lock().push(Reply {
            request,
            told: Told::NotLeader { leader },
            node: node.id(),
            reign: 0,
        });
    }
}

struct Office {
    node: Node,
    desk: Arc<Desk>,
    shared: Shared,
    reign: Arc<Reign>,
    engine: Engine,
    begin_ms: u64,
    begin: Instant,
    last_fence: u64,
    /// What was asked for, and what is settled.
    ceiling_asked: (u64, Ticket),
    ceiling: u64,
    held: VecDeque<(Ticket, Reply)>,
    /// A turn that has not ended yet.
    late: Option<(Batch, Vec<Reply>)>,
    /// The record that says that turns have ended.
    turns_ended: Ticket,
    /// Only for the mistake that replies leave when they are on this node's own disk.
    on_disk: VecDeque<(Instant, Option<Ticket>, Reply)>,
    settled: Arc<Notify>,
}

impl Office {
    async fn open(
        node: &Node,
        index: u64,
        leader: cluster::types::LeaderId,
        desk: &Arc<Desk>,
        shared: &Shared,
        kept: &mut Option<Engine>,
    ) -> Option<Office> {
        let mut state = node.ledger().hold().await;
        state.ledger.settle();
        let begin = Instant::now();
        let mut begin_ms = state.clock.now_ms(begin.into_std());
        begin_ms = begin_ms.max(state.ledger.clock_ms());
        if shared.bug(Bug::ClockFromTheWall) {
            begin_ms = shared.wall_ms(node.id()).max(state.ledger.clock_ms());
        }
        let mut engine = Engine::default();
        for session in state.ledger.sessions() {
            engine.sessions.insert(session.session);
            for answer in &session.answers {
                let name = (session.session, answer.request);
                engine.answers.insert(name, answer.fence);
            }
        }
        for lease in state.ledger.parts().iter().flat_map(wal::Leases::iter) {
            let hold = Hold {
                fence: lease.fence,
                client: lease.session,
                until_ms: lease.until_unix_ms,
            };
            engine.holds.insert(lease.key[0], hold);
        }
        if let (true, Some(kept)) = (shared.bug(Bug::EngineKept), kept.take()) {
            engine = kept;
        }
        let mut floor = state.ledger.ceiling_max();
        if shared.bug(Bug::FloorTooOld) {
            floor = floor.saturating_sub(CEILING_STEP);
        }
        let settled = Arc::new(Notify::new());
        let heard = settled.clone();
        let reign = node.reign(
            &mut state,
            index,
            leader,
            Box::new(move |_| heard.notify_one()),
            Box::new(move || begin_ms + begin.elapsed().as_millis() as u64),
            &tokio::runtime::Handle::current(),
        );
        drop(state);
        shared.reign_begins(node.id(), index, begin_ms);
        let mut office = Office {
            node: node.clone(),
            desk: desk.clone(),
            shared: shared.clone(),
            reign: reign?,
            engine,
            begin_ms,
            begin,
            last_fence: floor,
            ceiling_asked: (floor, Ticket::ZERO),
            ceiling: floor,
            held: VecDeque::new(),
            late: None,
            turns_ended: Ticket::ZERO,
            on_disk: VecDeque::new(),
            settled,
        };
        office.turn(&[]);
        Some(office)
    }

    fn now_ms(&self) -> u64 {
        self.begin_ms + self.begin.elapsed().as_millis() as u64
    }

    async fn run(&mut self) {
        let mut turns = tokio::time::interval(TURNS_EVERY);
        while self.reign.why_over().is_none() {
            let mut ended_turns = false;
            let on_disk_look = match self.on_disk.is_empty() {
                true => TURNS_EVERY,
                false => Duration::from_millis(1),
            };
            tokio::select! {
                biased;
                _ = self.reign.ended() => break,
                () = self.settled.notified() => {}
                () = self.desk.news.notified() => {}
                _ = turns.tick() => ended_turns = true,
                () = tokio::time::sleep(on_disk_look) => {}
            }
            self.tell_settled();
            let asked: Vec<Request> = self.desk.inbox.lock().drain(..).collect();
            if !asked.is_empty() {
                self.turn(&asked);
            }
            // The server's rule: not before the one before is committed. A turn may begin before
            // that and end just before this one.
            if ended_turns && self.turns_ended <= self.reign.settled() {
                self.end_late_turn();
                let mut batch = Batch::new();
                batch.push(&Record::TurnsEnded);
                self.turns_ended = self.reign.append_batch(batch);
            }
            self.tell_settled();
        }
    }

    fn tell_settled(&mut self) {
        let settled = self.reign.settled();
        if settled >= self.ceiling_asked.1 {
            self.ceiling = self.ceiling_asked.0;
        }
        while let Some((ticket, _)) = self.held.front()
            && *ticket <= settled
        {
            let (_, reply) = self.held.pop_front().expect("it is the front");
            self.tell(reply);
        }
        // The mistake: a moment after its proposal a batch is in this node's log; then its sync
        // is waited for, and nothing else.
        let wal = self.node.wal();
        let now = Instant::now();
        while let Some((since, ticket, _)) = self.on_disk.front_mut() {
            if ticket.is_none() && now - *since >= Duration::from_millis(2) {
                *ticket = Some(wal.barrier());
            }
            match ticket {
                Some(ticket) if *ticket <= wal.synced() => {
                    let (.., reply) = self.on_disk.pop_front().expect("it is the front");
                    self.desk.outbox.lock().push(reply);
                }
                _ => break,
            }
        }
    }

    fn tell(&self, reply: Reply) {
        self.desk.outbox.lock().push(reply);
    }

    /// The core that stood still goes on.
    fn end_late_turn(&mut self) {
        if let Some((batch, replies)) = self.late.take() {
            let ticket = self.reign.append_batch(batch);
            let replies = replies.into_iter().map(|reply| (ticket, reply));
            self.held.extend(replies);
        }
    }

    /// Whether this turn is one that ends late: one that granted, and did nothing else.
    fn is_late(&self, replies: &[Reply]) -> bool {
        match replies {
            [reply] => match reply.told {
                Told::Granted { fence, .. } if self.late.is_none() => {
                    let is_late = self.shared.0.seed.wrapping_add(fence) % LATE_EVERY == 0;
                    is_late && self.shared.is_late(fence)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Decides what was asked, and appends what that says to the log.
    fn turn(&mut self, asked: &[Request]) {
        let mut batch = Batch::new();
        let mut replies = Vec::new();
        for request in asked {
            let told = self.decide(request, &mut batch);
            let reply = Reply {
                request: *request,
                told,
                node: self.node.id(),
                reign: self.reign.index(),
            };
            match told.is_decided() {
                true => replies.push(reply),
                false => self.tell(reply),
            }
        }
        let raise_to = (self.last_fence + CEILING_LOW >= self.ceiling_asked.0)
            .then_some(self.ceiling_asked.0 + CEILING_STEP);
        if let Some(fence) = raise_to {
            batch.push(&Record::Ceiling { shard: 0, fence });
        } else if self.is_late(&replies) {
            self.late = Some((batch, replies));
            return;
        }
        // Also without records: see `propose.rs`.
        let ticket = self.reign.append_batch(batch);
        if let Some(fence) = raise_to {
            self.ceiling_asked = (fence, ticket);
        }
        if self.shared.bug(Bug::ReplyBeforeCommit) {
            replies.drain(..).for_each(|reply| self.tell(reply));
        }
        if self.shared.bug(Bug::ReplyAtLocalSync) {
            let waiting = replies.drain(..).map(|reply| (Instant::now(), None, reply));
            self.on_disk.extend(waiting);
        }
        self.held
            .extend(replies.into_iter().map(|reply| (ticket, reply)));
    }

    fn decide(&mut self, request: &Request, batch: &mut Batch) -> Told {
        let client = request.client;
        let now_ms = self.now_ms();
        if request.ask == Ask::Open {
            batch.push(&Record::SessionOpened {
                session: client,
                ttl_ms: SESSION_TTL_MS,
                deadline_unix_ms: now_ms + u64::from(SESSION_TTL_MS),
                name: b"",
            });
            self.engine.sessions.insert(client);
            return Told::Opened;
        }
        if !self.engine.sessions.contains(&client) {
            return Told::NoSession;
        }
        let live = |key: u8| {
            let hold = self.engine.holds.get(&key).copied();
            hold.filter(|hold| hold.until_ms > now_ms)
        };
        match request.ask {
            Ask::Open => Told::Opened,
            Ask::Look { key } => Told::Seen {
                key,
                fence: live(key).map(|hold| hold.fence),
            },
            Ask::Acquire { key, ttl_ms } => {
                if let Some(fence) = self.engine.answers.get(&(client, request.id)).copied() {
                    // A repeated answer writes its record once more.
                    return match live(key) {
                        Some(hold) if hold.fence == fence => {
                            self.write_grant(key, hold, request.id, now_ms, batch);
                            granted(key, &hold)
                        }
                        _ => Told::NotHeld,
                    };
                }
                if let Some(hold) = live(key) {
                    let fence = hold.fence;
                    return Told::Refused { key, fence };
                }
                let ceiling = match self.shared.bug(Bug::CeilingUsedEarly) {
                    true => self.ceiling_asked.0,
                    false => self.ceiling,
                };
                if self.last_fence >= ceiling {
                    return Told::Busy;
                }
                self.last_fence += 1;
                let hold = Hold {
                    fence: self.last_fence,
                    client,
                    until_ms: now_ms + ttl_ms,
                };
                self.shared.issued(hold.fence, key, request);
                self.engine.holds.insert(key, hold);
                self.engine.answers.insert((client, request.id), hold.fence);
                self.write_grant(key, hold, request.id, now_ms, batch);
                granted(key, &hold)
            }
            Ask::Renew { key, fence, ttl_ms } => match live(key) {
                Some(mut hold) if hold.fence == fence => {
                    hold.until_ms = hold.until_ms.max(now_ms + ttl_ms);
                    self.engine.holds.insert(key, hold);
                    let until_ms = hold.until_ms;
                    batch.push(&Record::Renewed {
                        key: &[key],
                        fence,
                        until_unix_ms: until_ms,
                    });
                    Told::Renewed {
                        key,
                        fence,
                        until_ms,
                    }
                }
                _ => Told::NotHeld,
            },
            Ask::Release { key, fence } => {
                if live(key).is_some_and(|hold| hold.fence == fence) {
                    self.engine.holds.remove(&key);
                    batch.push(&Record::Released {
                        key: &[key],
                        fence,
                        count_left: 0,
                    });
                }
                // Also if it is over already: a repeated release.
                Told::Released { key, fence }
            }
        }
    }

    fn write_grant(&self, key: u8, hold: Hold, request: u64, now_ms: u64, batch: &mut Batch) {
        batch.push(&Record::Granted(Lease {
            key: &[key],
            fence: hold.fence,
            session: hold.client,
            mode: Mode::Exclusive,
            is_session_bound: false,
            count: 1,
            until_unix_ms: hold.until_ms,
            granted_unix_ms: now_ms,
            note: b"",
        }));
        if !self.shared.bug(Bug::RequestIdDropped) {
            batch.push(&Record::Answered {
                session: hold.client,
                request,
                fence: hold.fence,
                count: 1,
            });
        }
    }
}

fn granted(key: u8, hold: &Hold) -> Told {
    Told::Granted {
        key,
        fence: hold.fence,
        until_ms: hold.until_ms,
    }
}
