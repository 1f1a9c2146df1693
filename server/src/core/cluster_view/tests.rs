use super::*;
use crate::config::Peers;
use cluster::types::Member;

fn led_by(leader: Option<NodeId>) -> Leadership {
    let members = (1..=3).map(|node| (node, (Member::default(), true)));
    Leadership {
        leader,
        members: members.collect(),
        ..Leadership::default()
    }
}

#[test]
fn a_node_is_ready_while_it_hears_a_leader_that_is_not_about_to_begin() {
    let heard = |leader, serves| why_not_ready(&led_by(leader), Standing::Heard, 1, serves);
    assert_eq!(heard(Some(2), false), None);
    assert_eq!(heard(Some(1), true), None);
    assert_eq!(heard(Some(1), false), Some("restoring"));
    assert_eq!(heard(None, false), Some("electing"));
    let new = why_not_ready(&Leadership::default(), Standing::Heard, 1, false);
    assert_eq!(new, Some("joining"));
}

/// A rolling restart went on to the next node while this one had yet to be sent what is held.
#[test]
fn a_follower_that_has_not_caught_up_is_not_ready() {
    let reason = why_not_ready(&led_by(Some(2)), Standing::CatchingUp, 1, false);
    assert_eq!(reason, Some("catching_up"));
}

/// It counts for no majority, so a rollout must not count on it.
#[test]
fn a_node_without_a_vote_is_joining() {
    let mut learner = led_by(Some(2));
    learner.members.insert(4, (Member::default(), false));
    for own in [4, 5] {
        for standing in [Standing::CatchingUp, Standing::Heard] {
            let reason = why_not_ready(&learner, standing, own, false);
            assert_eq!(reason, Some("joining"), "{own}");
        }
        let reason = why_not_ready(&learner, Standing::Unheard, own, false);
        assert_eq!(reason, Some("electing"));
    }
}

/// A leader that had lost its majority said `restoring`, as if it were about to serve.
#[test]
fn a_leader_that_hears_no_majority_waits_for_an_election() {
    for serves in [true, false] {
        let reason = why_not_ready(&led_by(Some(1)), Standing::Unheard, 1, serves);
        assert_eq!(reason, Some("electing"), "{serves}");
    }
}

#[test]
fn a_removed_node_does_not_wait_for_an_election() {
    let reason = why_not_ready(&led_by(Some(2)), Standing::Removed, 1, false);
    assert_eq!(reason, Some("removed"));
}

#[test]
fn a_node_without_a_cluster_says_what_it_waits_for() {
    let peers = "1=10.0.0.1:7500,12=10.0.0.12:7500";
    let said = |node_id, bootstrap| {
        waits_for(&Config {
            node_id,
            bootstrap,
            peers: Peers::parse(peers).unwrap(),
            ..Config::default()
        })
    };
    let added =
        "node 12 belongs to no cluster yet: it waits for `fencepost cluster add 12=10.0.0.12:7500`";
    assert_eq!(said(12, false), added);
    assert!(said(12, true).ends_with("it waits for node 1 to make it"));
    assert!(said(1, true).contains("a majority of the nodes must be up"));
}
