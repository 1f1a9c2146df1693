//! Raft's own rules, looked at after every step. They are openraft's to keep and the log's on the
//! disk underneath it. The list is that of openraft's own simulation (`tests-turmoil`), and what
//! only a look at the disks can tell.
//!
//! | rule                                                                | openraft calls it     |
//! |---------------------------------------------------------------------|-----------------------|
//! | one process leads under a leader id (`checks.rs`)                   | election safety       |
//! | a leader has the votes of a majority on their disks                 |                       |
//! | a leader adds to its log and takes nothing out of it                |                       |
//! | an id of an entry has one predecessor, in any log                   | log matching          |
//! | a leader has all that was committed before it was elected           | leader completeness   |
//! | one id is committed under an index, at any time, on any node        | committed immutable   |
//! | nodes that applied the same have the same (`checks.rs`)             | state machine safety  |
//! | what a leader commits is on the disks of a majority                 | committed on quorum   |
//! | what is committed and on a node's disk stays there                  |                       |
//! | purged <= snapshot <= applied <= committed <= end of the log        | state ordering        |
//! | a vote never falls: what was on the disk is there after a restart   | monotonic term, vote  |
//! | committed and applied never fall while a process lives              | monotonic indexes     |
//! | a membership is an entry of the log                                 |                       |
//!
//! openraft's twelfth, that the entry that wrote a key never gets older, is said of its own map of
//! keys. Of ours `checks.rs` compares the whole ledger with the sum of the log.

use cluster::types::{LeaderId, LogId, NodeId, Vote};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is seen of a node's Raft after its step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Vote and end of its log, on the disk or about to be.
    pub log: Log,
    pub purged: Option<LogId>,
    /// openraft says that it leads, under the vote above.
    pub leads: bool,
    pub committed: Option<LogId>,
    pub applied: Option<LogId>,
    pub snapshot: Option<LogId>,
    pub membership: Option<LogId>,
    /// What its disk was given, and what is safe there: tickets.
    pub appended: u64,
    pub synced: u64,
}

/// The two things of a log that elections and commits depend on.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Log {
    pub vote: Option<Vote>,
    pub last: Option<LogId>,
}

impl Log {
    /// Votes are ordered by term, node, and whether a majority has given theirs.
    fn vote_order(&self) -> Option<(u64, NodeId, bool)> {
        let vote = self.vote?;
        Some((vote.leader_id.term, vote.leader_id.node_id, vote.committed))
    }
}

/// What is known of a node over all its lives, unless it says otherwise.
#[derive(Default)]
struct Known {
    /// What is on its disk for certain: no less is there after a restart.
    certain: Log,
    /// What may be there, and other nodes may have been told that it is.
    possible: Log,
    pending: VecDeque<Pending>,
    /// What its disk had been given when it was seen last.
    appended: u64,
    /// A committed entry that is on its disk.
    kept: Option<LogId>,
    has_begun: bool,
    /// In this life.
    committed: Option<LogId>,
    applied: Option<LogId>,
    /// Under which id it led when it was seen last, and the end of its log then.
    led: Option<(LeaderId, Option<LogId>)>,
}

/// Was written within a step, so as one of the tickets from the first to the last. A step may sync
/// in its middle, when a snapshot is made.
struct Pending {
    first: u64,
    last: u64,
    log: Log,
}

/// What a leader's log had when it was first seen to lead.
struct LeaderLog {
    purged: Option<LogId>,
    entries: BTreeSet<LogId>,
}

impl LeaderLog {
    fn has(&self, id: &LogId) -> bool {
        let is_purged = self
            .purged
            .is_some_and(|purged| id.index() <= purged.index());
        is_purged || self.entries.contains(id)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Rules {
    voters: usize,
    nodes: BTreeMap<NodeId, Known>,
    predecessors: BTreeMap<LogId, LogId>,
    memberships: BTreeSet<LogId>,
    /// By index. With a leader that is not earlier than the one that committed it.
    committed: BTreeMap<u64, (LogId, LeaderId)>,
    leaders: BTreeMap<LeaderId, LeaderLog>,
}

impl Rules {
    pub(crate) fn new(voters: usize) -> Rules {
        Rules {
            voters,
            ..Rules::default()
        }
    }

    /// A process begins, with what its disk has kept.
    pub(crate) fn node_started(&mut self, node: NodeId) {
        let known = self.nodes.entry(node).or_default();
        known.has_begun = false;
        known.pending.clear();
        known.appended = 0;
        (known.committed, known.applied, known.led) = (None, None, None);
    }

    /// An entry in some log, and the one in front of it there.
    pub(crate) fn entry(
        &mut self,
        id: LogId,
        before: Option<LogId>,
        is_membership: bool,
    ) -> Result<(), String> {
        if is_membership {
            self.memberships.insert(id);
        }
        let Some(before) = before else {
            return Ok(());
        };
        let first = *self.predecessors.entry(id).or_insert(before);
        match first == before {
            true => Ok(()),
            false => Err(format!(
                "entry {id} stands behind {before} and behind {first}"
            )),
        }
    }

    /// A node after its step. `ids` has the ids in its log, from an index to another, both
    /// included.
    pub(crate) fn look(
        &mut self,
        id: NodeId,
        seen: &Seen,
        ids: impl Fn(u64, u64) -> Vec<LogId>,
    ) -> Result<(), String> {
        self.look_at_disk(id, seen)?;
        ordered(id, seen)?;
        self.look_at_commits(id, seen, &ids)?;
        if let Some(membership) = seen.membership
            && !self.memberships.contains(&membership)
        {
            return Err(format!(
                "node {id} goes by a membership at {membership}, where no log has one"
            ));
        }
        self.look_at_leader(id, seen, &ids)
    }

    fn look_at_disk(&mut self, id: NodeId, seen: &Seen) -> Result<(), String> {
        let known = self.nodes.entry(id).or_default();
        let before = known.pending.back().map_or(known.certain, |last| last.log);
        if seen.log.vote_order() < before.vote_order() {
            let (vote, before) = (seen.log.vote, before.vote);
            return Err(format!(
                "the vote of node {id} falls from {before:?} to {vote:?}"
            ));
        }
        if seen.log.last < known.kept {
            let (last, kept) = (seen.log.last, known.kept);
            return Err(format!(
                "node {id} had the committed entry {kept:?} on its disk, and its log ends with {last:?}"
            ));
        }
        if seen.log != before || !known.has_begun {
            // All that a process begins with was found on its disk.
            let first = match known.has_begun {
                true => known.appended + 1,
                false => 0,
            };
            known.pending.push_back(Pending {
                first: first.min(seen.appended),
                last: seen.appended,
                log: seen.log,
            });
            known.has_begun = true;
        }
        known.appended = seen.appended;
        for pending in &known.pending {
            if pending.first <= seen.synced {
                known.possible = pending.log;
            }
        }
        while let Some(pending) = known.pending.front()
            && pending.last <= seen.synced
        {
            known.certain = pending.log;
            known.pending.pop_front();
        }
        // Then its whole log is on the disk, all that it knows to be committed included.
        if known.pending.is_empty() {
            known.kept = known.kept.max(seen.committed);
        }
        Ok(())
    }

    fn look_at_commits(
        &mut self,
        id: NodeId,
        seen: &Seen,
        ids: &impl Fn(u64, u64) -> Vec<LogId>,
    ) -> Result<(), String> {
        let known = self.nodes.get_mut(&id).expect("its disk was looked at");
        for (what, before, now) in [
            ("committed", known.committed, seen.committed),
            ("applied", known.applied, seen.applied),
        ] {
            if now < before {
                return Err(format!(
                    "what node {id} has {what} falls from {before:?} to {now:?}"
                ));
            }
        }
        known.applied = seen.applied;
        let before = std::mem::replace(&mut known.committed, seen.committed);
        let (Some(committed), Some(vote)) = (seen.committed, seen.log.vote) else {
            return Ok(());
        };
        if before == seen.committed {
            return Ok(());
        }
        let from = before.map_or(0, |before| before.index() + 1);
        for entry in ids(from, committed.index()) {
            self.commit(id, entry, vote.leader_id)?;
        }
        self.commit(id, committed, vote.leader_id)
    }

    /// The node has accepted no later leader than this one, so none has told it of the commit.
    fn commit(&mut self, node: NodeId, id: LogId, leader: LeaderId) -> Result<(), String> {
        let first = self.committed.entry(id.index()).or_insert((id, leader));
        if first.0 != id {
            let first = first.0;
            return Err(format!(
                "node {node} has committed {id} where {first} was committed"
            ));
        }
        first.1 = first.1.min(leader);
        let later = self
            .leaders
            .range(leader..)
            .filter(|(later, _)| **later > leader);
        match later.into_iter().find(|(_, log)| !log.has(&id)) {
            Some((later, _)) => Err(format!("{later} led without the committed entry {id}")),
            None => Ok(()),
        }
    }

    fn look_at_leader(
        &mut self,
        id: NodeId,
        seen: &Seen,
        ids: &impl Fn(u64, u64) -> Vec<LogId>,
    ) -> Result<(), String> {
        let known = self.nodes.get_mut(&id).expect("its disk was looked at");
        let leader = match seen.log.vote {
            Some(vote) if seen.leads => vote.leader_id,
            _ => {
                known.led = None;
                return Ok(());
            }
        };
        let last = seen.log.last;
        if let Some((led, before)) = known.led.replace((leader, last))
            && led == leader
            && last < before
        {
            return Err(format!(
                "the log of {leader} ended with {before:?} and ends with {last:?}, while it leads"
            ));
        }
        if !self.leaders.contains_key(&leader) {
            let elected = self.count(|log| log.vote.is_some_and(|vote| vote.leader_id >= leader));
            self.majority(elected, || {
                format!("{leader} leads with the votes of {elected} nodes on their disks")
            })?;
            let log = LeaderLog {
                purged: seen.purged,
                entries: ids(0, u64::MAX).into_iter().collect(),
            };
            let mut earlier = self.committed.values().filter(|(_, by)| *by < leader);
            if let Some((missing, _)) = earlier.find(|(id, _)| !log.has(id)) {
                return Err(format!(
                    "{leader} leads without the committed entry {missing}"
                ));
            }
            self.leaders.insert(leader, log);
        }
        // Entries of earlier leaders were confirmed together with the first of its own.
        match seen.committed {
            Some(committed) if *committed.committed_leader_id() == leader => {
                let having = self.count(|log| log.last >= Some(committed));
                self.majority(having, || {
                    format!("{leader} has committed {committed}, which is on the disks of {having} nodes")
                })
            }
            _ => Ok(()),
        }
    }

    fn count(&self, is_so: impl Fn(&Log) -> bool) -> usize {
        let nodes = self.nodes.values();
        nodes.filter(|known| is_so(&known.possible)).count()
    }

    fn majority(&self, count: usize, what: impl FnOnce() -> String) -> Result<(), String> {
        match count * 2 > self.voters {
            true => Ok(()),
            false => Err(what()),
        }
    }
}

fn ordered(id: NodeId, seen: &Seen) -> Result<(), String> {
    let steps = [
        ("purged", seen.purged),
        ("in a snapshot", seen.snapshot),
        ("applied", seen.applied),
        ("committed", seen.committed),
        ("in its log", seen.log.last),
    ];
    for pair in steps.windows(2) {
        let [(lower, below), (higher, above)] = pair else {
            unreachable!("windows of two");
        };
        if below > above {
            return Err(format!(
                "node {id} has {below:?} {lower}, and only {above:?} {higher}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
