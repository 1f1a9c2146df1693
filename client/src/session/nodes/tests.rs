use super::*;

const GIVEN: [&str; 2] = ["a:1", "b:1"];

fn given() -> Vec<String> {
    GIVEN.map(str::to_owned).to_vec()
}

fn order(nodes: &Nodes) -> Vec<String> {
    let addresses = nodes.in_order(&given());
    addresses
        .iter()
        .map(|address| address.to_string())
        .collect()
}

fn told(text: &str) -> NodeAddresses<'_> {
    NodeAddresses::new(text).unwrap()
}

#[test]
fn a_server_of_its_own_is_asked_in_the_order_given() {
    let nodes = Nodes::default();
    assert_eq!(order(&nodes), GIVEN);
    nodes.note_welcome(&Arc::from("b:1"), NodeAddresses::default());
    assert_eq!(order(&nodes), GIVEN);
    assert!(nodes.has_several(&given()));
    assert!(!nodes.has_several(&["a:1".to_owned()]));
}

#[test]
fn the_leader_is_asked_first_and_all_that_it_told_of_last() {
    let nodes = Nodes::default();
    nodes.note_welcome(&Arc::from("b:1"), told("a:1,b:1,c:1"));
    assert_eq!(order(&nodes), ["b:1", "a:1", "c:1"]);
    assert!(nodes.has_several(&["a:1".to_owned()]));
    nodes.note_not_leader("b:1", Some("c:1"));
    assert_eq!(order(&nodes), ["c:1", "a:1", "b:1"]);
    // The leader knew best; one that knows none says nothing about the one that it is not.
    nodes.note_not_leader("a:1", None);
    assert_eq!(order(&nodes), ["c:1", "a:1", "b:1"]);
    nodes.note_not_leader("c:1", Some("c:1"));
    assert_eq!(order(&nodes), ["a:1", "b:1", "c:1"]);
}

#[test]
fn a_silent_node_is_asked_last_until_it_welcomes_us() {
    let nodes = Nodes::default();
    let silent = Arc::from("a:1");
    nodes.note_welcome(&silent, told("a:1,b:1,c:1"));
    nodes.doubt(&silent);
    assert_eq!(order(&nodes), ["b:1", "c:1", "a:1"]);
    // The others have not noticed yet.
    nodes.note_not_leader("b:1", Some("a:1"));
    assert_eq!(order(&nodes), ["b:1", "c:1", "a:1"]);
    nodes.note_welcome(&silent, told("a:1,b:1,c:1"));
    assert_eq!(order(&nodes), ["a:1", "b:1", "c:1"]);
}

#[test]
fn hellos_get_more_time_the_longer_none_is_answered() {
    let nodes = Nodes::default();
    let (silent, other) = (Arc::from("a:1"), Arc::from("b:1"));
    let longest = OVERDUE * 8;
    let times = |nodes: &Nodes| ["a:1", "b:1"].map(|address| nodes.overdue_after(address, longest));
    assert_eq!(times(&nodes), [OVERDUE, OVERDUE]);
    nodes.note_overdue(&silent);
    assert_eq!(times(&nodes), [DOUBTED_OVERDUE * 2, OVERDUE * 2]);
    for _ in 0..100 {
        nodes.note_overdue(&silent);
    }
    assert_eq!(times(&nodes), [longest, longest]);
    nodes.note_welcome(&other, NodeAddresses::default());
    assert_eq!(times(&nodes), [DOUBTED_OVERDUE, OVERDUE]);
}

#[test]
fn no_node_can_make_the_list_grow_without_end() {
    let nodes = Nodes::default();
    let many: Vec<String> = (0..NODES_TOLD_MAX * 2).map(|n| format!("n:{n}")).collect();
    nodes.note_welcome(&Arc::from("a:1"), told(&many.join(",")));
    assert_eq!(order(&nodes).len(), GIVEN.len() + NODES_TOLD_MAX);
}
