//! Each rule, kept and broken.

use super::*;

/// Three nodes, of which the first leads in term 2 and has committed an entry of its own there.
struct Case {
    rules: Rules,
    nodes: BTreeMap<NodeId, Seen>,
    logs: BTreeMap<NodeId, Vec<LogId>>,
}

fn leader(term: u64, node_id: NodeId) -> LeaderId {
    LeaderId { term, node_id }
}

fn id(term: u64, node: NodeId, index: u64) -> LogId {
    LogId::new(leader(term, node), index)
}

fn vote(term: u64, node: NodeId, committed: bool) -> Option<Vote> {
    Some(Vote {
        leader_id: leader(term, node),
        committed,
    })
}

fn case() -> Case {
    let log = vec![id(1, 3, 0), id(1, 3, 1), id(2, 1, 2)];
    let node = |node: NodeId| {
        let last = log.last().copied();
        let seen = Seen {
            log: Log {
                vote: vote(2, 1, true),
                last,
            },
            leads: node == 1,
            committed: last,
            applied: last,
            membership: Some(log[0]),
            appended: 5,
            synced: 5,
            ..Seen::default()
        };
        (node, seen)
    };
    let mut case = Case {
        rules: Rules::new(3),
        nodes: (1..=3).map(node).collect(),
        logs: (1..=3).map(|node| (node, log.clone())).collect(),
    };
    case.rules.entry(log[0], None, true).unwrap();
    for node in [3, 2, 1] {
        assert_eq!(case.look(node), Ok(()));
    }
    case
}

impl Case {
    fn look(&mut self, node: NodeId) -> Result<(), String> {
        let log = self.logs[&node].clone();
        let ids = |from: u64, to: u64| {
            let ids = log.iter().filter(|id| (from..=to).contains(&id.index()));
            ids.copied().collect()
        };
        self.rules.look(node, &self.nodes[&node], ids)
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Seen)) -> Result<(), String> {
        change(self.nodes.get_mut(&node).unwrap());
        self.look(node)
    }

    /// The node's log gets this entry, which its disk has at once.
    fn append(&mut self, node: NodeId, entry: LogId) {
        let log = self.logs.get_mut(&node).unwrap();
        log.retain(|before| before.index() < entry.index());
        log.push(entry);
        self.nodes.get_mut(&node).unwrap().log.last = Some(entry);
    }

    /// The node has given its vote for another leader.
    fn vote(&mut self, node: NodeId, term: u64, of: NodeId) -> Result<(), String> {
        self.change(node, |seen| {
            seen.log.vote = vote(term, of, false);
            seen.leads = false;
        })
    }

    fn is_broken(&mut self, node: NodeId, what: &str) {
        let looked = self.look(node);
        let broken = looked.expect_err(what);
        assert!(broken.contains(what), "{broken}");
    }
}

#[test]
fn a_cluster_that_goes_on_breaks_no_rule() {
    let mut case = case();
    // Node 3 is elected by 2 and itself, and goes on from the same log.
    case.vote(2, 3, 3).unwrap();
    case.vote(3, 3, 3).unwrap();
    case.append(3, id(3, 3, 3));
    let elected = case.change(3, |seen| {
        seen.log.vote = vote(3, 3, true);
        seen.leads = true;
    });
    assert_eq!(elected, Ok(()));
    case.append(2, id(3, 3, 3));
    case.look(2).unwrap();
    let committed = Some(id(3, 3, 3));
    assert_eq!(case.change(3, |seen| seen.committed = committed), Ok(()));
    // Node 1 has an entry that nobody committed, and gives it up.
    case.append(1, id(2, 1, 3));
    case.look(1).unwrap();
    case.vote(1, 3, 3).unwrap();
    case.append(1, id(3, 3, 3));
    assert_eq!(case.change(1, |seen| seen.committed = committed), Ok(()));
    // A process begins with what it knows from its disk, and that is less than it knew.
    case.rules.node_started(2);
    let begun = case.change(2, |seen| {
        (seen.committed, seen.applied) = (None, None);
        (seen.appended, seen.synced) = (0, 0);
    });
    assert_eq!(begun, Ok(()));
}

#[test]
fn a_leader_has_votes_that_are_on_disks() {
    let mut case = case();
    case.vote(3, 3, 3).unwrap();
    // The vote of node 2 is on its way to the disk only.
    case.nodes.get_mut(&2).unwrap().appended = 6;
    case.vote(2, 3, 3).unwrap();
    case.nodes.get_mut(&3).unwrap().log.vote = vote(3, 3, true);
    case.nodes.get_mut(&3).unwrap().leads = true;
    case.is_broken(3, "leads with the votes of 1 nodes");
    case.change(2, |seen| seen.synced = 6).unwrap();
    assert_eq!(case.look(3), Ok(()));
}

#[test]
fn a_leader_takes_nothing_out_of_its_log() {
    let mut case = case();
    case.append(1, id(2, 1, 3));
    case.append(1, id(2, 1, 4));
    case.look(1).unwrap();
    case.append(1, id(2, 1, 3));
    case.is_broken(1, "while it leads");
}

#[test]
fn an_entry_has_one_predecessor() {
    let mut rules = Rules::new(3);
    rules.entry(id(2, 1, 2), Some(id(1, 3, 1)), false).unwrap();
    rules.entry(id(2, 1, 2), None, false).unwrap();
    rules.entry(id(2, 1, 2), Some(id(1, 3, 1)), false).unwrap();
    let other = rules.entry(id(2, 1, 2), Some(id(1, 2, 1)), false);
    assert!(other.unwrap_err().contains("stands behind"));
}

#[test]
fn a_leader_has_what_was_committed_before() {
    let mut case = case();
    case.vote(2, 3, 2).unwrap();
    case.vote(3, 3, 2).unwrap();
    case.logs.get_mut(&2).unwrap().remove(1);
    case.nodes.get_mut(&2).unwrap().log.vote = vote(3, 2, true);
    case.nodes.get_mut(&2).unwrap().leads = true;
    case.is_broken(2, "leads without the committed entry");
}

#[test]
fn a_leader_that_is_over_need_not_have_what_came_later() {
    let mut case = case();
    // Node 2 is elected in term 3, and node 3 in term 4 before anything is heard of that.
    for (voter, term, leader) in [(1, 3, 2), (2, 3, 2), (1, 4, 3), (3, 4, 3)] {
        case.vote(voter, term, leader).unwrap();
    }
    case.append(3, id(4, 3, 3));
    case.append(1, id(4, 3, 3));
    case.look(1).unwrap();
    let committed = case.change(3, |seen| {
        seen.log.vote = vote(4, 3, true);
        (seen.leads, seen.committed) = (true, Some(id(4, 3, 3)));
    });
    assert_eq!(committed, Ok(()));
    // Only now do the votes of term 3 reach node 2.
    let late = case.change(2, |seen| {
        seen.log.vote = vote(3, 2, true);
        seen.leads = true;
    });
    assert_eq!(late, Ok(()));
}

#[test]
fn what_turns_out_to_be_committed_was_in_the_logs_of_later_leaders() {
    let mut case = case();
    case.vote(2, 3, 2).unwrap();
    case.vote(3, 3, 2).unwrap();
    let elected = case.change(2, |seen| {
        seen.log.vote = vote(3, 2, true);
        seen.leads = true;
    });
    assert_eq!(elected, Ok(()));
    // Node 1 still says that it leads in term 2, with an entry that node 2 has not.
    case.append(1, id(2, 1, 3));
    case.nodes.get_mut(&1).unwrap().committed = Some(id(2, 1, 3));
    case.is_broken(1, "led without the committed entry");
}

#[test]
fn one_entry_is_committed_under_an_index() {
    let mut case = case();
    case.append(1, id(2, 1, 3));
    case.append(2, id(2, 1, 3));
    case.look(2).unwrap();
    let committed = case.change(1, |seen| seen.committed = Some(id(2, 1, 3)));
    assert_eq!(committed, Ok(()));
    case.append(3, id(1, 3, 3));
    case.nodes.get_mut(&3).unwrap().log.last = Some(id(2, 1, 4));
    case.nodes.get_mut(&3).unwrap().committed = Some(id(2, 1, 4));
    case.is_broken(3, "was committed");
}

#[test]
fn what_a_leader_commits_is_on_the_disks_of_a_majority() {
    let mut case = case();
    case.append(1, id(2, 1, 3));
    case.append(2, id(2, 1, 3));
    // On its way to the disk only.
    case.change(2, |seen| seen.appended = 6).unwrap();
    case.nodes.get_mut(&1).unwrap().committed = Some(id(2, 1, 3));
    case.is_broken(1, "on the disks of 1 nodes");
    case.change(2, |seen| seen.synced = 6).unwrap();
    assert_eq!(case.look(1), Ok(()));
}

#[test]
fn what_is_committed_and_on_a_disk_stays_there() {
    let mut case = case();
    case.rules.node_started(2);
    case.append(2, id(1, 3, 1));
    (
        case.nodes.get_mut(&2).unwrap().committed,
        case.nodes.get_mut(&2).unwrap().applied,
    ) = (None, None);
    case.is_broken(2, "had the committed entry");
}

#[test]
fn a_node_applies_what_is_committed_and_purges_what_a_snapshot_has() {
    let last = Some(id(2, 1, 2));
    type Change = fn(&mut Seen, Option<LogId>);
    let changes: [(Change, &str); 4] = [
        (|seen, id| seen.purged = id, "purged"),
        (
            |seen, id| (seen.snapshot, seen.applied) = (id, None),
            "in a snapshot",
        ),
        (
            |seen, id| (seen.applied, seen.committed) = (id, None),
            "applied",
        ),
        (|seen, _| seen.committed = Some(id(2, 1, 9)), "committed"),
    ];
    for (change, what) in changes {
        let mut case = case();
        case.rules.node_started(2);
        change(case.nodes.get_mut(&2).unwrap(), last);
        case.is_broken(2, what);
    }
}

#[test]
fn a_vote_never_falls() {
    let mut case = case();
    case.vote(2, 4, 2).unwrap();
    case.nodes.get_mut(&2).unwrap().log.vote = vote(3, 3, true);
    case.is_broken(2, "the vote of node 2 falls");
    // Over a restart what was on the disk counts, and nothing else.
    for (synced, is_kept) in [(6, false), (5, true)] {
        let mut case = self::case();
        case.change(2, |seen| {
            (seen.appended, seen.synced) = (6, synced);
            seen.log.vote = vote(4, 2, false);
        })
        .unwrap();
        case.rules.node_started(2);
        let begun = case.change(2, |seen| seen.log.vote = vote(2, 1, true));
        assert_eq!(begun.is_ok(), is_kept, "{begun:?}");
    }
}

#[test]
fn what_is_committed_and_applied_never_falls() {
    let mut case = case();
    case.nodes.get_mut(&2).unwrap().applied = Some(id(1, 3, 1));
    case.is_broken(2, "has applied falls");
    let mut case = self::case();
    (
        case.nodes.get_mut(&2).unwrap().committed,
        case.nodes.get_mut(&2).unwrap().applied,
    ) = (Some(id(1, 3, 1)), Some(id(1, 3, 1)));
    case.is_broken(2, "has committed falls");
}

#[test]
fn a_membership_is_an_entry() {
    let mut case = case();
    case.nodes.get_mut(&2).unwrap().membership = Some(id(2, 1, 2));
    case.is_broken(2, "goes by a membership");
}
