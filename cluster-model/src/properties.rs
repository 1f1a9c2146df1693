//! What is checked, in the words of the design's safety argument.

use crate::client::{Answer, Doing, Hold, Reply, Request};
use crate::ledger::Ledger;
use crate::record::{Lease, Record};
use crate::world::{Breach, World};
use crate::{Cluster, Fence, Index, KEYS, MARGIN, Rules, TTL};
use stateright::Property;

pub const ONE_WRITER: &str = "S1: an engine that waits for nothing holds what the ledger says";
pub const COMMITTED: &str = "S2: what is told is committed";
pub const FRESH: &str = "S2: what is told was decided by the latest reign";
pub const EQUAL: &str = "S3: a ledger is the fold of the committed log";
pub const FENCE_ONCE: &str = "S4: no fence is granted twice";
pub const FENCE_RISES: &str = "S4: a client that asks later gets a higher fence";
pub const NOT_EARLY: &str = "S5: no lease ends before its time";
pub const NOT_BEHIND: &str = "S5: no clock is behind a committed stamp";
pub const ONE_HOLDER: &str = "S6: one client at a time believes that it holds a key";
pub const REPEATS: &str = "a repeated request is not refused because of its own grant";

pub const FAILOVER: &str = "a lock is held over a failover";
pub const EXPIRY: &str = "a lock is granted after it expired";
pub const SAME_FENCE: &str = "a later reign repeats a grant with the same fence";
pub const IGNORED: &str = "a batch in the log does not count";
pub const DISORDER: &str = "a release stands behind the grant that followed it";

pub fn all() -> Vec<Property<Cluster>> {
    vec![
        Property::always(ONE_WRITER, |_, world| is_one_writer(world)),
        Property::always(COMMITTED, |_, world| has_no(world, Breach::ToldUncommitted)),
        Property::always(FRESH, |_, world| has_no(world, Breach::ToldStale)),
        Property::always(EQUAL, |model, world| is_fold(world, model.rules)),
        Property::always(FENCE_ONCE, |_, world| has_no(world, Breach::FenceAgain)),
        Property::always(FENCE_RISES, |_, world| has_no(world, Breach::FenceFell)),
        Property::always(NOT_EARLY, |_, world| has_no(world, Breach::ExpiredEarly)),
        Property::always(NOT_BEHIND, |_, world| is_in_front(world)),
        Property::always(ONE_HOLDER, |_, world| has_one_holder(world)),
        Property::always(REPEATS, |_, world| has_no(world, Breach::RefusedByItself)),
        Property::sometimes(FAILOVER, |_, world| is_held_over_failover(world)),
        Property::sometimes(EXPIRY, |model, world| is_after_expiry(world, model.rules)),
        Property::sometimes(SAME_FENCE, |model, world| is_repeated(world, model.rules)),
        Property::sometimes(IGNORED, |model, world| has_ignored(world, model.rules)),
        Property::sometimes(DISORDER, |model, world| is_in_disorder(world, model.rules)),
    ]
}

impl World {
    fn breaks(&mut self, is_broken: bool, breach: Breach) {
        if is_broken {
            self.breach.get_or_insert(breach);
        }
    }

    /// A reign grants a fence on a key that was held by `before`, if at all.
    pub(crate) fn check_issued(&mut self, key: usize, fence: Fence, before: Option<Lease>) {
        self.breaks(self.issued[key] & 1 << fence != 0, Breach::FenceAgain);
        self.issued[key] |= 1 << fence;
        let is_early = before.is_some_and(|lease| self.now < lease.promised + TTL - MARGIN);
        self.breaks(is_early, Breach::ExpiredEarly);
    }

    /// A reply leaves its node.
    pub(crate) fn check_told(&mut self, reply: &Reply, rules: Rules) {
        let history = Ledger::history(&self.chosen, rules);
        let is_granted = |key, fence| has_grant(&history, key, |_, lease| lease.fence == fence);
        let is_committed = match (reply.request, reply.answer) {
            (Request::Acquire(key, _), Answer::Granted(fence)) => is_granted(key, fence),
            // A refusal may show what another core has granted and not written down yet.
            (Request::Acquire(key, id), Answer::Refused(holder)) => {
                self.breaks(holder.request == id, Breach::RefusedByItself);
                reply.is_ahead || is_granted(key, holder.fence)
            }
            (Request::Renew(key, fence), _) => history.iter().any(|(_, record)| {
                matches!(record, Record::Renewed(of, lease) if (*of, lease.fence) == (key, fence))
            }),
            (Request::Release(key, fence), _) => {
                let held = Ledger::fold(&self.chosen, rules).locks[key];
                held.is_none_or(|lease| lease.fence != fence)
            }
            _ => false,
        };
        self.breaks(!is_committed, Breach::ToldUncommitted);
        self.breaks(!reply.is_fresh, Breach::ToldStale);
    }

    /// A client hears a reply that it waits for.
    pub(crate) fn check_heard(&mut self, reply: &Reply) {
        let doing = self.clients[reply.client].doing;
        if let (Answer::Granted(fence), Doing::Asking(key, _, after)) = (reply.answer, doing) {
            self.breaks(fence <= after, Breach::FenceFell);
            self.known[key] = self.known[key].max(fence);
        }
    }

    /// What clients believe to hold, each by its own clock.
    fn holds(&self) -> impl Iterator<Item = Hold> {
        self.clients.iter().filter_map(|client| client.hold())
    }
}

type History = Vec<(Index, Record)>;

fn has_grant(history: &History, key: usize, is_it: impl Fn(Index, &Lease) -> bool) -> bool {
    history.iter().any(|(reign, record)| {
        matches!(record, Record::Granted(of, lease) if *of == key && is_it(*reign, lease))
    })
}

fn has_no(world: &World, breach: Breach) -> bool {
    world.breach != Some(breach)
}

fn has_one_holder(world: &World) -> bool {
    (0..KEYS).all(|key| world.holds().filter(|hold| hold.key == key).count() <= 1)
}

fn is_one_writer(world: &World) -> bool {
    let mut reigns = world
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.reign.as_ref()?)));
    reigns.all(|(node, reign)| {
        let is_waiting = !reign.unsettled.is_empty() || reign.turns.iter().any(Option::is_some);
        let is_over = reign.index != node.ledger.reign;
        // The ledger errs on the side of "held": its ends may be later.
        let is_same = |key| match (reign.engine.locks[key], node.ledger.holder(key)) {
            (Some(lock), Some(held)) => lock.fence == held.fence && lock.until <= held.until,
            (lock, held) => lock == held,
        };
        is_waiting || is_over || (0..KEYS).all(is_same)
    })
}

fn is_fold(world: &World, rules: Rules) -> bool {
    world.nodes.iter().all(|node| {
        let log = world.chosen.get(..node.applied);
        log.is_some_and(|log| Ledger::fold(log, rules) == node.ledger)
    })
}

fn is_in_front(world: &World) -> bool {
    let mut nodes = world.nodes.iter();
    nodes.all(|node| node.cluster_clock(world.now) >= node.ledger.stamp)
}

/// A later reign serves, and has to respect what an earlier one's client believes.
fn is_held_over_failover(world: &World) -> bool {
    let mut reigns = world.nodes.iter().filter_map(|node| node.reign.as_ref());
    let latest = reigns.find(|reign| Some(reign.index) == world.latest_reign());
    let serving = latest.filter(|reign| reign.engine.ceiling > reign.engine.fence_last);
    serving.is_some_and(|reign| world.holds().any(|hold| hold.told_by < reign.index))
}

fn is_after_expiry(world: &World, rules: Rules) -> bool {
    world.holds().any(|hold| {
        let history = Ledger::history(&world.chosen, rules);
        let is_released = |fence| {
            let released = Record::Released(hold.key, fence);
            history.iter().any(|(_, record)| *record == released)
        };
        let is_over = |lease: &Lease| world.now >= lease.promised + TTL - MARGIN;
        has_grant(&history, hold.key, |_, lease| {
            lease.fence < hold.fence && is_over(lease) && !is_released(lease.fence)
        })
    })
}

fn is_repeated(world: &World, rules: Rules) -> bool {
    world.holds().any(|hold| {
        let history = Ledger::history(&world.chosen, rules);
        let is_it = |reign, lease: &Lease| reign < hold.told_by && lease.fence == hold.fence;
        has_grant(&history, hold.key, is_it)
    })
}

fn has_ignored(world: &World, rules: Rules) -> bool {
    let mut ledger = Ledger::default();
    let mut entries = (1..).zip(&world.chosen);
    entries.any(|(index, entry)| !ledger.apply(index, entry, rules))
}

fn is_in_disorder(world: &World, rules: Rules) -> bool {
    let history = Ledger::history(&world.chosen, rules);
    history
        .iter()
        .enumerate()
        .any(|(at, (_, record))| match record {
            Record::Released(key, fence) => {
                let before = history[..at].to_vec();
                has_grant(&before, *key, |_, lease| lease.fence > *fence)
            }
            _ => false,
        })
}
