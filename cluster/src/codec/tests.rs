use super::*;
use proptest::prelude::*;

fn log_id(term: u64, node: u64, index: u64) -> LogId {
    let leader_id = LeaderId {
        term,
        node_id: node,
    };
    LogId::new(leader_id, index)
}

fn three_nodes() -> Membership {
    let member = |node: u64| Member {
        peer: format!("10.0.0.{node}:7500"),
        client: format!("10.0.0.{node}:7400"),
        redis: String::new(),
    };
    let nodes: BTreeMap<u64, Member> = (1..=4).map(|node| (node, member(node))).collect();
    let configs = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2, 4])];
    Membership::new(configs, nodes).unwrap()
}

#[test]
fn a_membership_that_is_changing_comes_back_as_it_was() {
    let mut bytes = Vec::new();
    put_membership(&three_nodes(), &mut bytes);
    let mut reader = Reader::new(bytes.into());
    assert_eq!(reader.membership(), Ok(three_nodes()));
    assert_eq!(reader.end("end"), Ok(()));
}

#[test]
fn an_empty_membership_comes_back_as_it_was() {
    let mut bytes = Vec::new();
    put_membership(&Membership::default(), &mut bytes);
    assert_eq!(
        Reader::new(bytes.into()).membership(),
        Ok(Membership::default())
    );
}

#[test]
fn payloads_come_back_as_they_were() {
    for payload in [
        Payload::Blank,
        Payload::Normal(Command(Bytes::from_static(b"batch"))),
        Payload::Normal(Command(Bytes::new())),
        Payload::Membership(three_nodes()),
    ] {
        let mut bytes = Vec::new();
        put_payload(&payload, &mut bytes);
        assert_eq!(bytes.len(), payload_bytes(&payload));
        assert_eq!(Reader::new(bytes.into()).payload(), Ok(payload));
    }
}

#[test]
fn every_prefix_of_a_membership_is_refused() {
    let mut bytes = Vec::new();
    put_payload(&Payload::Membership(three_nodes()), &mut bytes);
    for cut in 0..bytes.len() {
        let prefix = Bytes::copy_from_slice(&bytes[..cut]);
        assert!(Reader::new(prefix).payload().is_err(), "{cut} bytes");
    }
}

/// No encoder writes that, and two messages with the same meaning would not be the same bytes.
#[test]
fn a_membership_in_another_order_or_with_a_node_twice_is_refused() {
    let mut bytes = Vec::new();
    put_membership(&three_nodes(), &mut bytes);
    let refused = |field: &str, change: &dyn Fn(&mut [u8])| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        let read = Reader::new(bytes.into()).membership();
        assert_eq!(read.map_err(|error| error.field).unwrap_err(), field);
    };
    // Two counts, and then the first voters, of one byte that is not zero.
    refused("voter", &|bytes| bytes.swap(2, 10));
    refused("voter", &|bytes| bytes[10] = 1);
    let members_at = 1 + 2 * (1 + 3 * 8) + 1;
    refused("node of a member", &|bytes| bytes[members_at] = 9);
}

proptest! {
    #[test]
    fn votes_and_log_ids_come_back_as_they_were(
        term: u64, node: u64, index: u64, committed: bool, present: bool,
    ) {
        let vote = Vote { leader_id: LeaderId { term, node_id: node }, committed };
        let mut bytes = Vec::new();
        put_vote(&vote, &mut bytes);
        let id = present.then(|| log_id(term, node, index));
        put_option(id.as_ref(), &mut bytes, put_log_id);
        let mut reader = Reader::new(bytes.into());
        prop_assert_eq!(reader.vote(), Ok(vote));
        prop_assert_eq!(reader.option("id", Reader::log_id), Ok(id));
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let _ = Reader::new(bytes.clone()).membership();
        let _ = Reader::new(bytes.clone()).payload();
        let _ = Reader::new(bytes).vote();
    }
}
