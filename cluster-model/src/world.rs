//! All nodes and clients together, and every step that can happen.

use crate::bounds::{Bounds, May};
use crate::client::{Answer, Client, Doing, Reply, Request};
use crate::node::{Node, Turn};
use crate::raft::{self, Entry, Payload};
use crate::record::Record;
use crate::{CLIENTS, CORES, Fault, Fence, Index, KEYS, MARGIN, NODES, Rules, Term, Time};

/// What a step did that no state shows afterwards. The first in a run counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breach {
    ToldUncommitted,
    ToldStale,
    FenceAgain,
    FenceFell,
    ExpiredEarly,
    RefusedByItself,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Time,
    pub nodes: [Node; NODES],
    pub clients: [Client; CLIENTS],
    /// The committed log. Nodes learn of it later.
    pub chosen: Vec<Entry>,
    pub term: Term,
    /// Replies that have left their node and are late, or lost.
    pub on_the_way: Vec<Reply>,
    /// What may still happen.
    pub left: Bounds,
    /// The rest is for properties only. Per key, a bit for every fence that a reign granted.
    pub issued: [u32; KEYS],
    /// Per key, the highest fence that a client knows of.
    pub known: [Fence; KEYS],
    pub breach: Option<Breach>,
}

/// Numbers of clients, keys, nodes and cores, as the comments say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    NodeGains(usize),
    ClientLoses(usize),
    /// A node wins, with the vote of another. `Stray`: an old write of the winner comes into the
    /// log before its marker.
    Elect(usize, usize),
    ElectStray(usize, usize),
    /// A leader's log reaches a node.
    Copy(usize, usize, Ack),
    /// A leader's ledger reaches a node.
    Install(usize, usize),
    /// A late acknowledgement reaches a leader.
    Acknowledge(usize),
    Restart(usize),
    /// A client begins to ask for a key, at a node.
    Ask(usize, usize, usize, End),
    /// A client begins to release what it holds, at a node.
    Release(usize, usize, End),
    /// A client renews what it holds or repeats its request, at a node.
    Send(usize, usize, End),
    /// A copy of a client's request that was answered long ago comes to a node.
    Double(usize, usize),
    /// Of a node, on a core.
    EndTurn(usize, usize),
    /// A node proposes a batch again: because Raft refused it, or by mistake, or from a reign that
    /// is over.
    Propose(usize, usize),
    /// A node proposes its marker again.
    Mark(usize),
    Deliver(usize),
}

/// How an acknowledgement comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    Late,
    /// In time, but what the leader then tells is late.
    Unheard,
    Heard,
}

/// What becomes of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Proposed,
    Refused,
    /// It goes on; other cores may propose first.
    Open,
}

impl World {
    /// Node 0 leads, and its ceiling is committed everywhere.
    pub fn new(bounds: Bounds, rules: Rules) -> World {
        let mut world = World {
            left: bounds,
            ..World::default()
        };
        if rules.has(Fault::ClockFromTheWall) {
            world.nodes[1].wall_ahead = 2;
        }
        world.elect(0, 1, false);
        for to in [1, 1, 2] {
            world.copy(0, to, Ack::Heard, rules);
        }
        world
    }

    pub fn actions(&self, actions: &mut Vec<Action>) {
        if self.left.has(May::Ticks) {
            actions.push(Action::Tick);
        }
        if self.left.has(May::Drifts) {
            actions.extend((0..NODES).map(Action::NodeGains));
            actions.extend((0..CLIENTS).map(Action::ClientLoses));
        }
        for node in 0..NODES {
            self.actions_of_node(node, actions);
            for other in (0..NODES).filter(|&other| other != node) {
                self.actions_of_pair(node, other, actions);
            }
            for client in 0..CLIENTS {
                if self.left.has(May::Requests) && self.free_core(node, client).is_some() {
                    self.actions_of_client(client, node, actions);
                }
            }
        }
        actions.extend((0..self.on_the_way.len()).map(Action::Deliver));
    }

    fn actions_of_node(&self, node: usize, actions: &mut Vec<Action>) {
        let is = &self.nodes[node];
        if self.left.has(May::Restarts) && is.has_to_lose(self.now) {
            actions.push(Action::Restart(node));
        }
        if let Some(reign) = &is.reign {
            let open = (0..CORES).filter(|&core| reign.turns[core].is_some());
            actions.extend(open.map(|core| Action::EndTurn(node, core)));
        }
        if is.raft.leads {
            if is.applied < is.raft.common(&self.chosen) {
                actions.push(Action::Acknowledge(node));
            }
            if self.left.has(May::Doubles) {
                actions.push(Action::Mark(node));
            }
            for (batch, (_, is_free)) in is.proposable().into_iter().enumerate() {
                if is_free || self.left.has(May::Doubles) {
                    actions.push(Action::Propose(node, batch));
                }
            }
        }
    }

    fn actions_of_pair(&self, one: usize, other: usize, actions: &mut Vec<Action>) {
        let (from, to) = (&self.nodes[one], &self.nodes[other]);
        if self.left.has(May::Elections) && !from.raft.leads && from.raft.is_up_to_date(&to.raft) {
            actions.push(Action::Elect(one, other));
            if self.left.has(May::Doubles) && !from.proposable().is_empty() {
                actions.push(Action::ElectStray(one, other));
            }
        }
        if from.raft.leads && to.raft.term <= from.raft.term {
            if from.raft.log != to.raft.log {
                actions.push(Action::Copy(one, other, Ack::Heard));
                if self.left.has(May::BeLate) {
                    actions.push(Action::Copy(one, other, Ack::Unheard));
                    actions.push(Action::Copy(one, other, Ack::Late));
                }
            }
            if self.left.has(May::Snapshots) && to.applied < from.applied {
                actions.push(Action::Install(one, other));
            }
        }
    }

    fn actions_of_client(&self, client: usize, node: usize, actions: &mut Vec<Action>) {
        let is_first = self.issued == [0; KEYS];
        let is_accepting = self.nodes[node].is_accepting();
        let refused = is_accepting && self.left.has(May::Refusals);
        let ends = [
            (true, End::Proposed),
            (refused, End::Refused),
            (self.left.has(May::BeLate), End::Open),
        ];
        for (_, end) in ends.into_iter().filter(|(is_possible, _)| *is_possible) {
            match self.clients[client].doing {
                // Clients and keys are alike: the first to ask is client 0, for key 0.
                Doing::Nothing if is_first && client > 0 => {}
                Doing::Nothing => {
                    let keys = if is_first { 1 } else { self.left.keys() };
                    actions.extend((0..keys).map(|key| Action::Ask(client, key, node, end)));
                }
                Doing::Asking(..) | Doing::Releasing(..) => {
                    actions.push(Action::Send(client, node, end));
                }
                Doing::Holding(_) => {
                    actions.push(Action::Send(client, node, end));
                    actions.push(Action::Release(client, node, end));
                }
            }
        }
        if self.left.has(May::Doubles) && self.clients[client].late.is_some() {
            actions.push(Action::Double(client, node));
        }
    }

    /// The core that takes a client's next request in. Each client has its own; a request that is
    /// repeated while that core's turn goes on comes to the other, on a new connection.
    fn free_core(&self, node: usize, client: usize) -> Option<usize> {
        let reign = self.nodes[node].reign.as_ref()?;
        let mut cores = [client, CORES - 1 - client].into_iter();
        cores.find(|&core| reign.turns[core].is_none())
    }

    pub fn step(&mut self, action: Action, rules: Rules) {
        match action {
            Action::Tick => {
                self.left.take(May::Ticks);
                self.now += 1;
            }
            Action::NodeGains(node) => {
                self.left.take(May::Drifts);
                self.nodes[node].gained += 1;
            }
            Action::ClientLoses(client) => {
                self.left.take(May::Drifts);
                self.clients[client].lost += 1;
            }
            Action::Elect(node, voter) => {
                self.left.take(May::Elections);
                self.elect(node, voter, false);
            }
            Action::ElectStray(node, voter) => {
                self.left.take(May::Elections);
                self.left.take(May::Doubles);
                self.elect(node, voter, true);
            }
            Action::Copy(from, to, ack) => {
                if ack != Ack::Heard {
                    self.left.take(May::BeLate);
                }
                self.copy(from, to, ack, rules);
            }
            Action::Install(from, to) => {
                self.left.take(May::Snapshots);
                let leader = self.nodes[from].clone();
                let told = self.nodes[to].install(&leader, self.now, rules);
                self.tell(told, true, rules);
            }
            Action::Acknowledge(node) => self.apply(node, true, rules),
            Action::Restart(node) => {
                self.left.take(May::Restarts);
                self.nodes[node].restart(self.now, rules);
            }
            Action::Ask(client, key, node, end) => {
                let id = self.left.of(May::Requests);
                self.clients[client].doing = Doing::Asking(key, id, self.known[key]);
                self.decide(client, Request::Acquire(key, id), node, end, rules);
            }
            Action::Release(client, node, end) => {
                let hold = self.clients[client].hold().expect("only a holder releases");
                self.clients[client].doing = Doing::Releasing(hold.key, hold.fence);
                self.decide(
                    client,
                    Request::Release(hold.key, hold.fence),
                    node,
                    end,
                    rules,
                );
            }
            Action::Send(client, node, end) => {
                let request = self.clients[client]
                    .request()
                    .expect("it waits for an answer");
                self.decide(client, request, node, end, rules);
            }
            Action::Double(client, node) => {
                self.left.take(May::Doubles);
                let request = self.clients[client].late.take().expect("there is a copy");
                self.decide(client, request, node, End::Proposed, rules);
            }
            Action::EndTurn(node, core) => {
                let reign = self.nodes[node]
                    .reign
                    .as_mut()
                    .expect("turns are of a reign");
                let turn = reign.turns[core].take().expect("it is open");
                let told = self.nodes[node].end_turn(turn, true, self.now, rules);
                self.tell(told, true, rules);
            }
            Action::Propose(node, batch) => {
                let (batch, is_free) = self.nodes[node].proposable()[batch];
                if !is_free {
                    self.left.take(May::Doubles);
                }
                self.nodes[node].raft.append(Payload::Batch(batch));
            }
            Action::Mark(node) => {
                self.left.take(May::Doubles);
                self.nodes[node].raft.append(Payload::Marker);
            }
            Action::Deliver(reply) => {
                let reply = self.on_the_way.remove(reply);
                self.deliver(&reply);
            }
        }
        self.tidy();
    }

    /// The marker goes into the log with the election.
    fn elect(&mut self, node: usize, voter: usize, stray: bool) {
        self.term += 1;
        let pair = self.nodes.get_disjoint_mut([node, voter]);
        let [winner, voter] = pair.expect("a node does not ask itself");
        raft::elect(&mut winner.raft, &mut voter.raft, self.term);
        if stray {
            let (batch, _) = winner.proposable()[0];
            winner.raft.append(Payload::Batch(batch));
        }
        winner.raft.append(Payload::Marker);
    }

    fn copy(&mut self, from: usize, to: usize, ack: Ack, rules: Rules) {
        let leader = &self.nodes[from].raft;
        let (term, log) = (leader.term, leader.log.clone());
        let chosen = raft::chosen_by_copy(leader);
        if !self.chosen.starts_with(&log[..chosen]) {
            self.chosen = log[..chosen].to_vec();
        }
        self.nodes[to].accept(term, &log, self.now, rules);
        self.apply(to, true, rules);
        if ack != Ack::Late {
            self.apply(from, ack == Ack::Heard, rules);
        }
    }

    fn apply(&mut self, node: usize, is_heard: bool, rules: Rules) {
        let told = self.nodes[node].apply(&self.chosen, self.now, rules);
        self.tell(told, is_heard, rules);
    }

    /// A reign takes a request in and decides it.
    fn decide(&mut self, client: usize, request: Request, node: usize, end: End, rules: Rules) {
        let core = self.free_core(node, client).expect("a core is free");
        self.left.take(May::Requests);
        let latest = self.latest_reign();
        let times = [self.nodes[node].cluster_clock(self.now), self.now];
        let reign = self.nodes[node]
            .reign
            .as_mut()
            .expect("a reign takes requests in");
        let before = reign.engine.locks;
        let Some((answer, left, record)) = reign.engine.decide(request, times, rules) else {
            return;
        };
        let shows = |turn: &Turn| match (turn.record, answer) {
            (Some(Record::Granted(_, lease)), Answer::Refused(holder)) => lease == holder,
            _ => false,
        };
        let reply = Some(Reply {
            client,
            request,
            answer,
            until: self.clients[client].clock(self.now) + left - MARGIN,
            reign: reign.index,
            is_fresh: latest == Some(reign.index),
            is_ahead: reign.turns.iter().flatten().any(shows),
        });
        let turn = Turn { record, reply };
        let told = match end {
            End::Open => {
                self.left.take(May::BeLate);
                reign.turns[core] = Some(turn);
                None
            }
            End::Proposed => self.nodes[node].end_turn(turn, true, self.now, rules),
            End::Refused => {
                self.left.take(May::Refusals);
                self.nodes[node].end_turn(turn, false, self.now, rules)
            }
        };
        if let Some(Record::Granted(key, lease)) = record
            && before[key] != Some(lease)
        {
            self.check_issued(key, lease.fence, before[key]);
        }
        self.tell(told, true, rules);
    }

    /// Replies leave their node.
    fn tell(&mut self, told: impl IntoIterator<Item = Reply>, is_heard: bool, rules: Rules) {
        for reply in told {
            if self.awaits(&reply) {
                self.check_told(&reply, rules);
                match is_heard {
                    true => self.deliver(&reply),
                    false => self.on_the_way.push(reply),
                }
            }
        }
    }

    fn deliver(&mut self, reply: &Reply) {
        if self.awaits(reply) {
            self.check_heard(reply);
            self.clients[reply.client].hear(reply);
        }
    }

    fn awaits(&self, reply: &Reply) -> bool {
        self.clients[reply.client].request() == Some(reply.request)
    }

    /// The index of the last marker that is chosen.
    pub fn latest_reign(&self) -> Option<Index> {
        let is_marker = |entry: &Entry| entry.payload == Payload::Marker;
        let at = self.chosen.iter().rposition(is_marker);
        at.map(|at| at as Index + 1)
    }

    /// Makes states equal that differ in nothing that matters.
    fn tidy(&mut self) {
        let may_double = self.left.has(May::Doubles);
        for client in &mut self.clients {
            client.look(self.now);
            client.late.take_if(|_| !may_double);
        }
        let requests = self.clients.each_ref().map(Client::request);
        let is_awaited = |reply: &Reply| requests[reply.client] == Some(reply.request);
        for node in &mut self.nodes {
            node.strays
                .truncate(if may_double { STRAYS_MAX } else { 0 });
            if let Some(reign) = &mut node.reign {
                reign.held.retain(|(_, reply)| is_awaited(reply));
            }
        }
        self.on_the_way.retain(is_awaited);
        self.on_the_way.sort();
    }
}

/// How many old writes of a node are remembered.
const STRAYS_MAX: usize = 2;
