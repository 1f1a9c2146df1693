//! A model of the cluster's own rules: reign, ledger, cluster clock and hold-back.
//!
//! [stateright](https://docs.rs/stateright) walks through every state that three nodes, two clients
//! and two keys can reach within bounds, and checks S1 to S6 (`properties.rs`) in each. Every
//! [`Fault`] is a rule left out; the tests demand that each is found.
//!
//! - `raft.rs`: consensus, taken for correct: elections, copies of the log, what is chosen.
//! - `record.rs`: what a leader writes down.
//! - `ledger.rs`: the rule of the log (reign, seq, stamp) and the rules of replay.
//! - `clock.rs`: the bound that a node has of the cluster's clock.
//! - `node.rs`: reigns: the engine that is restored at the marker, batches, replies held back.
//! - `client.rs`: who asks, and until when it believes.
//! - `world.rs`: all of them, and every step that can happen.
//! - `bounds.rs`: how often each thing may happen.
//!
//! Time is a count of ticks. A lease lasts [`TTL`] and a client gives it up [`MARGIN`] earlier. The
//! clocks of nodes may gain, those of clients lose, [`MARGIN`] ticks in all: that is what
//! "within 1 %" is for so short a time. Clocks of nodes are never compared.
//!
//! # Not modelled
//!
//! - Raft itself, membership, leader leases (there are none), more than three nodes.
//! - Clients that die: one that falls silent is one that takes no more steps.
//! - Several turns in one batch; shared and reentrant locks, downgrades, waiting in line and
//!   hand-off,
//!   locks taken away by others, the end of sessions; a second ceiling in one reign.
//! - Disks, but for what a follower loses that acknowledged before it synced; amnesia.
//! - Snapshots that show more than their index (fuzzy ones), and compaction.
//! - Liveness: that something is granted at all is shown by the `sometimes` properties only.

pub mod bounds;
pub mod client;
pub mod clock;
pub mod ledger;
pub mod node;
pub mod properties;
pub mod raft;
pub mod record;
pub mod world;

use bounds::Bounds;
use stateright::{Model, Property};
use world::{Action, World};

pub const NODES: usize = 3;
pub const CLIENTS: usize = 2;
pub const KEYS: usize = 2;
pub const CORES: usize = 2;
pub const TTL: Time = 2;
pub const MARGIN: Time = 1;
/// How many fences a reign may grant.
pub const FENCES_PER_CEILING: Fence = 4;

pub type Time = i8;
pub type Fence = u8;
pub type Term = u8;
/// Of an entry; the first is 1.
pub type Index = u8;
pub type RequestId = u8;

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// A reply leaves when it is decided.
    ReplyBeforeCommit,
    /// A reply leaves when its batch is in the leader's own log.
    ReplyAtLocalSync,
    /// A reply without records leaves when everything before it is settled.
    BarrierSkipped,
    /// A node that leads again goes on with the engine of its last reign.
    EngineKept,
    /// A batch counts whatever its seq is.
    SeqUnchecked,
    /// A batch counts whatever its reign is.
    StaleReignCounted,
    /// Records count in the order of the log, whatever their fences are.
    ReplayTrustsOrder,
    /// Of two records about one grant, the later record counts and not the later end.
    EarlierEndCounts,
    /// A reign takes its clock from the node's wall clock.
    ClockFromTheWall,
    /// A reign's clock makes up for the time that stamps may have been under way.
    ClockAsUpperBound,
    /// The bound of the clock is the best of all stamps ever heard, not of one reign's.
    ClockOfAllReigns,
    /// Fences are granted before their ceiling is committed.
    CeilingUsedEarly,
    /// The floor is the ceiling of the ledger one entry before.
    FloorTooOld,
    /// A follower acknowledges what is not on its disk.
    AckBeforeSync,
    /// A grant does not remember which request it answered.
    RequestIdDropped,
    /// A repeated answer rests on the record of the first one.
    RepeatUnwritten,
    /// A snapshot has leases and no sessions.
    SnapshotWithoutSessions,
}

/// The rules, one of which may be broken.
#[derive(Clone, Copy, Debug)]
pub struct Rules(pub Option<Fault>);

impl Rules {
    pub fn has(self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }
}

/// What is checked.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub rules: Rules,
    pub bounds: Bounds,
    /// Nodes are alike, so it is enough to look at one order of them. Steps to a broken property
    /// read better where each node keeps its number.
    pub keeps_numbers: bool,
}

impl Model for Cluster {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds, self.rules)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        world.step(action, self.rules);
        if !self.keeps_numbers {
            world.nodes.sort();
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
