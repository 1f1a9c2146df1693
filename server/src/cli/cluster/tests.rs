use super::*;

fn member(node: u64, votes: bool) -> MemberStatus {
    MemberStatus {
        node,
        votes,
        peer: format!("10.0.0.{node}:7500"),
        client: String::new(),
        redis: String::new(),
        matched_index: None,
        heard_ms: None,
    }
}

fn status(node: u64, role: &str, leader: Option<u64>) -> Status {
    Status {
        node,
        role: role.to_owned(),
        role_since_unix_ms: 1_763_560_800_000,
        term: 2,
        leader,
        cluster: "606c".to_owned(),
        last_index: 9,
        committed_index: 8,
        applied_index: 8,
        snapshot_index: 0,
        purged_index: 0,
        format: 1,
        clock_ms: 0,
        hash: 0,
        keys: 0,
        ignored: 0,
        reigns: 1,
        members: vec![member(1, true), member(2, true), member(3, true)],
    }
}

/// A view of nodes of which these answer, as the first of them knows the members.
fn view(answers: Vec<Status>) -> View {
    let best = answers[0].clone();
    let answers = answers.into_iter().map(|status| (status.node, Ok(status)));
    View::new(&best, best.members.clone(), answers.collect())
}

/// It said `node 1 leads` for as long as the others were away, and ended with 0.
#[test]
fn a_leader_without_a_majority_does_not_lead() {
    let view = view(vec![status(1, LEADER, None)]);
    assert_eq!(view.leader, None);
    let text = view.to_text();
    let said = "no leader: node 1 led in term 2 and hears from no majority of the voters";
    assert!(text.contains(said), "{text}");
    assert!(
        text.contains("   1  led        2025-11-19T14:00:00.000Z  yes "),
        "{text}"
    );
}

#[test]
fn a_leader_that_hears_a_majority_leads() {
    let view = view(vec![
        status(1, LEADER, Some(1)),
        status(2, "follower", Some(1)),
    ]);
    assert_eq!(view.leader, Some(1));
    let text = view.to_text();
    assert!(text.contains("node 1 leads in term 2"), "{text}");
}

#[test]
fn a_node_without_a_vote_is_told_from_the_voters() {
    let mut leader = status(1, LEADER, Some(1));
    leader.members[2].votes = false;
    let view = view(vec![leader, status(2, "follower", Some(1))]);
    let text = view.to_text();
    assert!(text.contains("2 voters, 1 node without a vote, "), "{text}");
    assert!(
        text.contains("   2  follower   2025-11-19T14:00:00.000Z  yes "),
        "{text}"
    );
    assert!(
        text.contains("   3  no answer  -                         no "),
        "{text}"
    );
    assert!(to_line(&view).contains("\"votes\":false"));
}

/// The row of this node, cell by cell.
fn row(view: &View, node: u64) -> Vec<String> {
    let text = view.to_text();
    let mut rows = text.lines().map(|line| line.split_whitespace());
    let row = rows.find(|row| row.clone().next() == Some(&*node.to_string()));
    row.expect("every node has one")
        .map(str::to_owned)
        .collect()
}

#[test]
fn status_says_since_when_a_node_has_its_role_and_what_is_committed() {
    let view = view(vec![status(1, LEADER, Some(1))]);
    let shown = row(&view, 1);
    assert_eq!(shown[2], "2025-11-19T14:00:00.000Z");
    assert_eq!(
        shown[4..8],
        ["2", "8", "8", "1"],
        "term, committed, applied, lag"
    );
    let json = to_line(&view);
    assert!(
        json.contains("\"role_since_unix_ms\":1763560800000"),
        "{json}"
    );
    assert!(json.contains("\"committed_index\":8"), "{json}");
}

#[test]
fn what_a_node_of_an_earlier_version_does_not_tell_is_not_made_up() {
    let mut told = serde_json::to_value(status(1, LEADER, Some(1))).unwrap();
    let fields = told.as_object_mut().unwrap();
    fields.remove("role_since_unix_ms");
    fields.remove("committed_index");
    let told = serde_json::from_value(told).unwrap();
    let shown = row(&view(vec![told]), 1);
    assert_eq!(shown[2], "-");
    assert_eq!(shown[5], "-");
}
