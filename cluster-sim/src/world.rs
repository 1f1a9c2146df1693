//! Everything that is simulated, and what befalls it. One thread, one step for each millisecond of
//! true time: messages that are due arrive, then each node runs on its own runtime up to what its
//! own clock shows then.

use crate::bug::Bug;
use crate::chance::{Dice, between, drifted_us, permille};
use crate::checks::Checks;
use crate::client::Client;
use crate::net::Net;
use crate::office::{self, Desk};
use crate::request::{Reply, Request};
use crate::shared::{Shared, SharedState};
use cluster::node::Node;
use cluster::peer::ClusterKey;
use cluster::start::{FoundNode, NodeSettings, Timing};
use cluster::types::{Member, NodeId};
use disk::forgetful::{ForgetfulDisk, Keep};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use wal::Wal;

/// One step of true time.
const STEP_US: u64 = 1_000;

/// How long things go wrong.
const STORM_US: u64 = 8_000_000;

/// By then the leader must have changed once.
const STRIKE_US: u64 = 5_000_000;

/// Within this time after that, all must be well again.
const HEAL_US: u64 = 15_000_000;

/// How often it is decided whether something goes wrong.
const FATE_EVERY_US: u64 = 50_000;

/// Clocks run this much faster or slower at most, so within a hundredth of each other.
const DRIFT_PPM_MAX: i64 = 4_000;

/// How bad it gets, by the seed: each run has some of these.
struct Weather {
    /// Of a thousand, at each decision.
    crash: u64,
    pause: u64,
    cut: u64,
    reset: u64,
    slow_link: u64,
    slow_disk: u64,
    transfer: u64,
    lost_message: u64,
    doubled_message: u64,
}

impl Weather {
    fn new(dice: &mut Dice) -> Weather {
        let mut some = |times: u64| match dice.flip() {
            true => times,
            false => 0,
        };
        let mut weather = Weather {
            crash: some(35),
            pause: some(20),
            cut: some(40),
            reset: some(40),
            slow_link: some(30),
            slow_disk: some(30),
            transfer: some(25),
            lost_message: some(60),
            doubled_message: some(60),
        };
        if weather.crash + weather.pause + weather.cut + weather.transfer == 0 {
            // Otherwise nothing changes the leader.
            weather.crash = 35;
        }
        weather
    }
}

/// A node, its disk, and its process while it runs.
struct Slot {
    id: NodeId,
    drift_ppm: i64,
    disk: ForgetfulDisk,
    running: Option<Running>,
    restart_us: u64,
    paused_until_us: u64,
    sync_us: (u64, u64),
    slow_until_us: u64,
}

impl Slot {
    /// Whether its node believes that it leads.
    fn leads(&self) -> bool {
        let node = self
            .running
            .as_ref()
            .and_then(|running| running.node.lock().clone());
        node.is_some_and(|node| node.leadership().borrow().own.is_some())
    }
}

struct Running {
    runtime: Runtime,
    wal: Arc<Wal>,
    node: Arc<Mutex<Option<Node>>>,
    desk: Arc<Desk>,
    /// Why it cannot go on.
    failed: Arc<Mutex<Option<String>>>,
    is_dying: Arc<AtomicBool>,
    start: Instant,
    start_us: u64,
    was_paused: bool,
    sync_due_us: Option<u64>,
}

enum Message {
    Request(NodeId, Request),
    Reply(Reply),
}

pub(crate) struct World {
    dice: Dice,
    now_us: u64,
    net: Net,
    shared: Shared,
    weather: Weather,
    slots: Vec<Slot>,
    clients: Vec<Client>,
    messages: BTreeMap<(u64, u64), Message>,
    last_message: u64,
    /// Links to mend, and when.
    cuts: Vec<(u64, NodeId, NodeId)>,
    normal_link_us: (u64, u64),
    snapshot_bytes: u64,
    /// All nodes must come to this entry.
    goal: Option<u64>,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Option<Bug>, is_traced: bool) -> World {
        let mut dice = Dice(seed);
        dice.roll();
        let node_count = if permille(&mut dice, 250) { 5 } else { 3 };
        let nodes: Vec<NodeId> = (1..=node_count).collect();
        let drift =
            |dice: &mut Dice| between(dice, 0, 2 * DRIFT_PPM_MAX as u64) as i64 - DRIFT_PPM_MAX;
        let normal_link_us = (500, between(&mut dice, 1_000, 20_000));
        let net = Net::new(&nodes, normal_link_us, Dice(dice.roll()));
        let walls = nodes.iter().map(|node| {
            let ahead_ms = between(&mut dice, 0, 8_000) as i64 - 4_000;
            (*node, ahead_ms)
        });
        let wall_ahead_ms = walls.collect();
        let slots: Vec<Slot> = nodes
            .iter()
            .map(|id| Slot {
                id: *id,
                drift_ppm: drift(&mut dice),
                disk: ForgetfulDisk::new(),
                running: None,
                restart_us: 0,
                paused_until_us: 0,
                sync_us: (0, between(&mut dice, 1_000, 8_000)),
                slow_until_us: 0,
            })
            .collect();
        let client_count = between(&mut dice, 2, 4);
        let keys = between(&mut dice, 1, 3);
        let clients = (1..=client_count).map(|id| {
            let drift_ppm = drift(&mut dice);
            Client::new(id, drift_ppm, node_count, keys, Dice(dice.roll()))
        });
        let clients = clients.collect();
        let drifts = slots.iter().map(|slot| (slot.id, slot.drift_ppm)).collect();
        let checks = Mutex::new(Checks::new(drifts, is_traced));
        let snapshot_bytes = match dice.below(3) {
            0 => u64::MAX,
            _ => between(&mut dice, 1_500, 15_000),
        };
        World {
            weather: Weather::new(&mut dice),
            now_us: 0,
            net,
            shared: Shared(Arc::new(SharedState {
                bug,
                seed,
                wall_ahead_ms,
                checks,
            })),
            slots,
            clients,
            messages: BTreeMap::new(),
            last_message: 0,
            cuts: Vec::new(),
            normal_link_us,
            snapshot_bytes,
            goal: None,
            dice,
        }
    }

    /// Runs until all is well after the storm, or something is broken. What it came to.
    pub(crate) fn run(mut self) -> Checks {
        let mut healing_since = None;
        loop {
            self.now_us += STEP_US;
            {
                let mut checks = self.shared.0.checks.lock();
                checks.now_us = self.now_us;
                if checks.is_broken() {
                    break;
                }
            }
            if self.now_us < STORM_US {
                if self.now_us.is_multiple_of(FATE_EVERY_US) {
                    self.decide_fate();
                }
                if self.now_us == STRIKE_US {
                    self.strike_if_calm();
                }
            } else if healing_since.is_none() {
                healing_since = Some(self.now_us);
                self.calm_down();
            }
            self.mend();
            self.net.deliver(self.now_us);
            let first = (self.now_us / STEP_US) as usize % self.slots.len();
            for at in 0..self.slots.len() {
                let at = (first + at) % self.slots.len();
                self.step_node(at);
            }
            self.step_clients();
            if let Some(since_us) = healing_since {
                if self.is_well(since_us) {
                    break;
                }
                if self.now_us > since_us + HEAL_US {
                    let mut checks = self.shared.0.checks.lock();
                    checks.violate("does not heal: no leader, no grant, or a node that is behind");
                }
            }
        }
        for at in 0..self.slots.len() {
            self.stop(at, false);
        }
        let mut checks = self.shared.0.checks.lock();
        std::mem::take(&mut *checks)
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.shared.0.checks.lock().note(what);
    }

    /// A run in which the leader never changed shows little: then it is crashed.
    fn strike_if_calm(&mut self) {
        let is_calm = self.shared.0.checks.lock().numbers.reigns < 2;
        let leader = self.slots.iter().position(Slot::leads);
        if let (true, Some(leader)) = (is_calm, leader) {
            self.crash(leader);
        }
    }

    fn pick(&mut self) -> usize {
        self.dice.below(self.slots.len() as u64) as usize
    }

    fn decide_fate(&mut self) {
        let weather = &self.weather;
        let kinds = [
            weather.crash,
            weather.pause,
            weather.cut,
            weather.reset,
            weather.slow_link,
            weather.slow_disk,
            weather.transfer,
        ];
        for (kind, times) in kinds.into_iter().enumerate() {
            if permille(&mut self.dice, times) {
                self.befall(kind);
            }
        }
    }

    fn befall(&mut self, kind: usize) {
        let (mut at, other) = (self.pick(), self.pick());
        if self.dice.flip() {
            at = self.slots.iter().position(Slot::leads).unwrap_or(at);
        }
        let (a, b) = (self.slots[at].id, self.slots[other].id);
        let now_us = self.now_us;
        match kind {
            0 => {
                // Sometimes all of them: a power cut in the whole room.
                let all = permille(&mut self.dice, 60);
                for at in (0..self.slots.len()).filter(|which| all || *which == at) {
                    self.crash(at);
                }
            }
            1 => {
                let for_us = between(&mut self.dice, 50_000, 3_000_000);
                self.slots[at].paused_until_us = now_us + for_us;
                self.note(|| format!("node {a} stands still for {} ms", for_us / 1_000));
            }
            2 => {
                let until_us = now_us + between(&mut self.dice, 100_000, 3_000_000);
                let ids: Vec<NodeId> = self.slots.iter().map(|slot| slot.id).collect();
                let pairs: Vec<(NodeId, NodeId)> = match self.dice.below(4) {
                    0 => vec![(a, b)],
                    1 => ids.iter().map(|id| (a, *id)).collect(),
                    2 => ids.iter().map(|id| (*id, a)).collect(),
                    _ => {
                        let both = ids.iter().flat_map(|id| [(a, *id), (*id, a)]);
                        both.collect()
                    }
                };
                self.note(|| format!("cut {pairs:?} until {} ms", until_us / 1_000));
                for (from, to) in pairs {
                    self.net.change(from, to, |link| link.is_cut = true);
                    self.cuts.push((until_us, from, to));
                }
            }
            3 => {
                self.note(|| format!("connections between {a} and {b} break"));
                self.net.break_all(a, b, 100_000);
            }
            4 => {
                let us = between(&mut self.dice, 10_000, 300_000);
                self.net.change(a, b, |link| link.us = (500, us));
                let until_us = now_us + between(&mut self.dice, 100_000, 2_000_000);
                self.cuts.push((until_us, a, b));
            }
            5 => {
                let slot = &mut self.slots[at];
                slot.sync_us.1 = between(&mut self.dice, 20_000, 900_000);
                slot.slow_until_us = now_us + between(&mut self.dice, 100_000, 2_000_000);
            }
            _ => {
                let to = b;
                for slot in &self.slots {
                    let Some(running) = &slot.running else {
                        continue;
                    };
                    if let Some(node) = running.node.lock().clone()
                        && node.leadership().borrow().own.is_some()
                    {
                        running
                            .runtime
                            .spawn(async move { node.transfer(to).await });
                    }
                }
                self.note(|| format!("the leader is told to hand over to {to}"));
            }
        }
    }

    fn mend(&mut self) {
        let now_us = self.now_us;
        let us = self.normal_link_us;
        let is_calm = now_us >= STORM_US;
        let net = &self.net;
        self.cuts.retain(|(until_us, from, to)| {
            let is_over = *until_us <= now_us || is_calm;
            if is_over {
                net.change(*from, *to, |link| {
                    link.is_cut = false;
                    link.us = us;
                });
            }
            !is_over
        });
        for slot in &mut self.slots {
            if slot.slow_until_us <= now_us {
                slot.sync_us.1 = slot.sync_us.1.min(8_000);
            }
        }
    }

    fn calm_down(&mut self) {
        self.note(|| "the storm is over".to_owned());
        for slot in &mut self.slots {
            slot.paused_until_us = slot.paused_until_us.min(self.now_us);
            slot.restart_us = slot.restart_us.min(self.now_us);
            slot.slow_until_us = 0;
        }
        self.weather.lost_message = 0;
        self.weather.doubled_message = 0;
    }

    fn step_node(&mut self, at: usize) {
        let now_us = self.now_us;
        let slot = &mut self.slots[at];
        if slot.running.is_none() {
            if slot.restart_us <= now_us {
                self.start(at);
            }
            return;
        }
        let running = slot.running.as_mut().expect("looked at above");
        if now_us < slot.paused_until_us {
            running.was_paused = true;
            return;
        }
        if running.sync_due_us.is_some_and(|due_us| due_us <= now_us) {
            let _context = running.runtime.enter();
            running.sync_due_us = None;
            running.wal.turn();
        }
        let elapsed_us = drifted_us(now_us - running.start_us, slot.drift_ppm);
        let goal = running.start + Duration::from_micros(elapsed_us);
        let was_paused = std::mem::take(&mut running.was_paused);
        running.runtime.block_on(async {
            if was_paused {
                let gap = goal.saturating_duration_since(Instant::now());
                tokio::time::advance(gap).await;
            }
            tokio::time::sleep_until(goal).await;
        });
        if running.sync_due_us.is_none() && running.wal.barrier() > running.wal.synced() {
            let takes_us = between(&mut self.dice, slot.sync_us.0, slot.sync_us.1);
            running.sync_due_us = Some(now_us + takes_us);
        }
        let node = running.node.lock().clone();
        let mut checks = self.shared.0.checks.lock();
        if let Some(why) = running.failed.lock().take() {
            let id = slot.id;
            checks.violate(format!("node {id} cannot go on: {why}"));
        }
        if let Some(node) = &node {
            checks.look_at(node);
        }
        let replies = std::mem::take(&mut *running.desk.outbox.lock());
        for reply in replies {
            checks.told(&reply, &self.clients);
            self.last_message += 1;
            let key = (
                now_us + between(&mut self.dice, 500, 10_000),
                self.last_message,
            );
            if !permille(&mut self.dice, self.weather.lost_message) {
                self.messages.insert(key, Message::Reply(reply));
            }
        }
    }

    fn start(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        let id = slot.id;
        let member = |id: NodeId| Member {
            peer: id.to_string(),
            client: format!("client-{id}"),
            redis: String::new(),
        };
        let nodes: Vec<NodeId> = (1..=self.clients_nodes()).collect();
        let slot = &mut self.slots[at];
        let is_dying = Arc::new(AtomicBool::new(false));
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        let (dying, why) = (is_dying.clone(), failed.clone());
        let mut options = wal::Options::new(wal::Scope::Leases, 1);
        options.segment_bytes = 64 << 10;
        options.spares_max = 2;
        options.snapshot_log_bytes = self.snapshot_bytes;
        let settings = NodeSettings {
            node: id,
            member: member(id),
            bootstrap: nodes.iter().map(|id| (*id, member(*id))).collect(),
            key: ClusterKey::new([5; 32]),
            disk: Arc::new(slot.disk.clone()),
            options,
            timing: Timing::default(),
            reads: cluster::entry::Format::NEWEST,
            on_failure: Arc::new(move |error| {
                if !dying.load(Ordering::Relaxed) {
                    *why.lock() = Some(format!("its disk: {error}"));
                }
            }),
        };
        let found = match FoundNode::read(settings) {
            Ok(found) => found,
            Err(error) => {
                let mut checks = self.shared.0.checks.lock();
                return checks.violate(format!("node {id} cannot read its log: {error}"));
            }
        };
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without a driver for sockets");
        let node: Arc<Mutex<Option<Node>>> = Arc::default();
        let desk: Arc<Desk> = Arc::default();
        let transport = self.net.start(id);
        let (shelf, shared) = (node.clone(), self.shared.clone());
        let (counter, dying, why) = (desk.clone(), is_dying.clone(), failed.clone());
        runtime.spawn(async move {
            let node = match Node::start(found, transport, ()).await {
                Ok(node) => node,
                Err(error) => return *why.lock() = Some(error.to_string()),
            };
            *shelf.lock() = Some(node.clone());
            tokio::spawn(office::serve(node.clone(), counter, shared));
            let reason = node.failed().await;
            if !dying.load(Ordering::Relaxed) {
                *why.lock() = Some(reason.to_string());
            }
        });
        let start = runtime.block_on(async {
            let start = Instant::now();
            tokio::task::yield_now().await;
            start
        });
        let Some(wal) = cluster::simulation::take_started_log() else {
            let mut checks = self.shared.0.checks.lock();
            return checks.violate(format!("node {id} did not start its log"));
        };
        slot.running = Some(Running {
            runtime,
            wal,
            node,
            desk,
            failed,
            is_dying,
            start,
            start_us: self.now_us,
            was_paused: false,
            sync_due_us: None,
        });
        self.shared.0.checks.lock().node_started(id);
        self.note(|| format!("node {id} starts"));
    }

    fn clients_nodes(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The process ends, now and then in the middle of a write, and now and then with its machine.
    fn crash(&mut self, at: usize) {
        let is_power_cut = permille(&mut self.dice, 600);
        let is_in_write = self.dice.flip();
        let slot = &mut self.slots[at];
        let Some(running) = &slot.running else {
            return;
        };
        running.is_dying.store(true, Ordering::Relaxed);
        if is_in_write {
            let operation = slot.disk.operations() + self.dice.below(4);
            slot.disk.stop_at(operation);
            let _context = running.runtime.enter();
            running.wal.turn();
        }
        self.stop(at, is_power_cut);
        let slot = &mut self.slots[at];
        slot.disk = match is_power_cut {
            true => {
                let keep = Keep::ALL[self.dice.below(Keep::ALL.len() as u64) as usize];
                slot.disk.cut_power(keep, &mut self.dice)
            }
            false => slot.disk.kill(),
        };
        let away_us = between(&mut self.dice, 20_000, 2_500_000);
        slot.restart_us = self.now_us + away_us;
        slot.paused_until_us = 0;
        let id = slot.id;
        let mut checks = self.shared.0.checks.lock();
        checks.numbers.crashes += 1;
        checks.note(|| {
            let how = if is_power_cut {
                "loses its power"
            } else {
                "is killed"
            };
            format!("node {id} {how} for {} ms", away_us / 1_000)
        });
    }

    fn stop(&mut self, at: usize, is_silent: bool) {
        let slot = &mut self.slots[at];
        if let Some(running) = slot.running.take() {
            running.is_dying.store(true, Ordering::Relaxed);
            self.net.stop(slot.id, is_silent);
            drop(running.runtime);
        }
    }

    fn step_clients(&mut self) {
        let now_us = self.now_us;
        while let Some(entry) = self.messages.first_entry()
            && entry.key().0 <= now_us
        {
            match entry.remove() {
                Message::Request(to, request) => {
                    let slot = &self.slots[to as usize - 1];
                    if let Some(running) = &slot.running {
                        running.desk.inbox.lock().push_back(request);
                        running.desk.news.notify_one();
                    }
                }
                Message::Reply(reply) => {
                    let at = reply.request.client as usize - 1;
                    let belief = self.clients[at].hear(&reply, now_us);
                    let mut checks = self.shared.0.checks.lock();
                    checks.heard(&reply);
                    if let Some(belief) = belief {
                        checks.believed(&belief, &self.clients[at], &self.clients);
                    }
                }
            }
        }
        for at in 0..self.clients.len() {
            let Some(sent) = self.clients[at].step(now_us) else {
                continue;
            };
            let copies = 1 + u64::from(permille(&mut self.dice, self.weather.doubled_message));
            for _ in 0..copies {
                if permille(&mut self.dice, self.weather.lost_message) {
                    continue;
                }
                self.last_message += 1;
                let due_us = now_us + between(&mut self.dice, 500, 10_000 * copies * copies);
                let message = Message::Request(sent.to, sent.request);
                self.messages.insert((due_us, self.last_message), message);
            }
        }
    }

    /// All nodes run, one leads, a grant was told since, and all have applied what any had then.
    fn is_well(&mut self, since_us: u64) -> bool {
        let nodes: Option<Vec<Node>> = self
            .slots
            .iter()
            .map(|slot| slot.running.as_ref()?.node.lock().clone())
            .collect();
        let Some(nodes) = nodes else {
            return false;
        };
        let checks = self.shared.0.checks.lock();
        let leaders = nodes
            .iter()
            .filter(|node| node.leadership().borrow().own.is_some());
        if leaders.count() != 1 || checks.last_grant_us <= since_us {
            return false;
        }
        let applied = nodes.iter().map(Node::applied_index);
        let goal = *self.goal.get_or_insert(applied.clone().max().unwrap_or(0));
        applied.min().unwrap_or(0) >= goal
    }
}
