use super::*;
use crate::types::{Command, LeaderId};
use bytes::{BufMut, Bytes};
use wal::{Batch, Lease, Record};

fn id(term: u64, index: u64) -> LogId {
    let leader_id = LeaderId { term, node_id: 1 };
    LogId::new(leader_id, index)
}

fn entry(index: u64, item: &Item) -> Entry {
    Entry {
        log_id: id(1, index),
        payload: Payload::Normal(item.encode()),
    }
}

fn born() -> Item {
    Item::Born(Birth {
        cluster_id: 7,
        session_key: [1; 32],
        birth_unix_ms: 1_000,
    })
}

fn batch(reign: u64, seq: u64, stamp_ms: u64, records: &[Record<'_>]) -> Item {
    let mut batch = Batch::new();
    records.iter().for_each(|record| batch.push(record));
    Item::Batch(BatchItem {
        reign,
        seq,
        stamp_ms,
        records: Bytes::copy_from_slice(batch.as_bytes()),
    })
}

fn try_apply(state: &mut LedgerState, index: u64, item: &Item) -> io::Result<Applied> {
    state.apply(&entry(index, item), Instant::now(), &Numbers::default())
}

fn apply(state: &mut LedgerState, index: u64, item: &Item) -> bool {
    try_apply(state, index, item).unwrap().counts
}

const CEILING: Record<'static> = Record::Ceiling {
    shard: 0,
    fence: 100,
};

fn session() -> Record<'static> {
    Record::SessionOpened {
        session: 9,
        ttl_ms: 1_000,
        deadline_unix_ms: u64::MAX,
        name: b"",
    }
}

fn granted(fence: u64) -> Record<'static> {
    Record::Granted(Lease {
        key: b"key",
        fence,
        session: 9,
        mode: ::types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: 50_000,
        granted_unix_ms: 2_000,
        note: b"",
    })
}

fn held(state: &mut LedgerState) -> Vec<u64> {
    state.ledger.settle();
    let leases = state.ledger.parts().iter().flat_map(wal::Leases::iter);
    leases.map(|lease| lease.fence).collect()
}

#[test]
fn only_what_the_rule_of_the_log_allows_counts() {
    let mut state = LedgerState::default();
    assert!(apply(&mut state, 0, &born()));
    assert!(!apply(&mut state, 1, &born()), "a cluster is born once");
    assert!(apply(&mut state, 2, &Item::Reign { node: 1 }));
    assert!(apply(
        &mut state,
        3,
        &batch(2, 1, 2_000, &[CEILING, session()])
    ));
    assert!(
        !apply(&mut state, 4, &batch(2, 1, 2_000, &[granted(5)])),
        "twice"
    );
    assert!(
        !apply(&mut state, 5, &batch(2, 3, 2_000, &[granted(5)])),
        "a gap"
    );
    assert!(
        !apply(&mut state, 6, &batch(2, 2, 1_999, &[granted(5)])),
        "back in time"
    );
    assert!(held(&mut state).is_empty());
    assert!(apply(&mut state, 7, &batch(2, 2, 2_001, &[granted(5)])));
    assert!(apply(&mut state, 8, &Item::Reign { node: 2 }));
    assert!(
        !apply(&mut state, 9, &batch(2, 3, 2_002, &[granted(6)])),
        "a dead reign"
    );
    assert!(apply(&mut state, 10, &batch(8, 1, 2_002, &[])));
    assert_eq!(held(&mut state), [5]);
    assert_eq!(state.ledger.ceiling_max(), 100);
}

/// All reigns in the log that was found were taken off the count, also those that another leader
/// truncated, and those that its image skipped. So as many later ones were not counted.
#[test]
fn a_reign_counts_unless_the_node_had_it_when_it_started() {
    let numbers = Numbers {
        found: Some(id(2, 4)),
        ..Numbers::default()
    };
    let mut state = LedgerState::default();
    let count = |state: &mut LedgerState, log_id| {
        let payload = Payload::Normal(Item::Reign { node: 1 }.encode());
        let entry = Entry { log_id, payload };
        state.apply(&entry, Instant::now(), &numbers).unwrap();
        numbers.reigns.load(Ordering::Relaxed)
    };
    assert_eq!(count(&mut state, id(1, 0)), 0);
    assert_eq!(count(&mut state, id(2, 1)), 0);
    // A later leader has truncated the other three.
    assert_eq!(count(&mut state, id(3, 2)), 1);
    assert_eq!(count(&mut state, id(3, 3)), 2);
    // Its image has skipped some.
    state.applied = Some(id(3, 8));
    assert_eq!(count(&mut state, id(3, 9)), 3);
}

#[test]
fn a_node_with_another_disk_is_known() {
    let mut state = LedgerState::default();
    assert!(apply(&mut state, 0, &Item::Joined { node: 3, disk: 5 }));
    assert!(apply(&mut state, 1, &Item::Joined { node: 3, disk: 5 }));
    assert!(!apply(&mut state, 2, &Item::Joined { node: 3, disk: 6 }));
    assert_eq!(state.disks[&3], 5);
}

#[test]
fn a_format_that_this_version_does_not_read_stops_the_node() {
    let mut state = LedgerState::default();
    let older = Item::Format(Format::FIRST);
    assert!(!apply(&mut state, 0, &older), "it never falls");
    let newer = Item::Format(Format(Format::NEWEST.0 + 1));
    let error = try_apply(&mut state, 1, &newer).unwrap_err().to_string();
    assert!(error.contains("Start this node with"), "{error}");
    assert_eq!(state.format, Format::FIRST);
}

#[test]
fn a_ledger_that_differs_from_the_leaders_stops_the_node() {
    let mut state = LedgerState::default();
    apply(&mut state, 0, &born());
    let hash = state.checks[0].1;
    assert!(apply(&mut state, 1, &Item::Checked { index: 0, hash }));
    let other = Item::Checked {
        index: 0,
        hash: hash + 1,
    };
    let error = try_apply(&mut state, 2, &other).unwrap_err().to_string();
    assert!(error.contains("add it under a new id"), "{error}");
}

#[test]
fn bytes_that_say_nothing_stop_the_node() {
    let mut state = LedgerState::default();
    let nonsense = Entry {
        payload: Payload::Normal(Command(Bytes::from_static(b"\xff"))),
        ..entry(0, &born())
    };
    let numbers = Numbers::default();
    assert!(state.apply(&nonsense, Instant::now(), &numbers).is_err());
}

#[test]
fn an_image_has_everything() {
    let mut state = LedgerState::default();
    apply(&mut state, 0, &born());
    apply(&mut state, 1, &Item::Joined { node: 3, disk: 5 });
    apply(&mut state, 2, &Item::Reign { node: 1 });
    apply(
        &mut state,
        3,
        &batch(2, 1, 2_000, &[CEILING, session(), granted(5)]),
    );
    let mut bytes = Vec::new();
    let under_way = state.put_image_head(&mut bytes);
    for part in 0..wal::LEDGER_PARTS {
        state.ledger.put_image_part(&under_way, part, &mut bytes);
    }
    bytes.put_u64_le(3);
    let mut read = LedgerState::from_image(&[Bytes::from(bytes.clone())]).unwrap();
    assert_eq!(held(&mut read), [5]);
    assert_eq!(read.birth, state.birth);
    assert_eq!(read.disks, state.disks);
    assert_eq!((read.reign, read.seq), (state.reign, state.seq));
    assert_eq!(read.applied, state.applied);
    assert!(
        apply(&mut read, 4, &batch(2, 2, 2_000, &[])),
        "the reign goes on"
    );
    for cut in 0..bytes.len() {
        let cut = Bytes::copy_from_slice(&bytes[..cut]);
        assert!(LedgerState::from_image(&[cut]).is_err());
    }
}

/// openraft has a node that starts make an image of what it has just read. An image whose parts
/// show later entries than it is named after then said that they do not, and the node that read the
/// second image compared its ledger too early, and stopped.
#[test]
fn an_image_of_an_image_shows_no_less() {
    let mut state = LedgerState::default();
    apply(&mut state, 0, &born());
    apply(&mut state, 1, &Item::Reign { node: 1 });
    let mut bytes = Vec::new();
    let under_way = state.put_image_head(&mut bytes);
    for part in 0..wal::LEDGER_PARTS {
        state.ledger.put_image_part(&under_way, part, &mut bytes);
    }
    bytes.put_u64_le(3);
    let mut read = LedgerState::from_image(&[Bytes::from(bytes)]).unwrap();
    assert_eq!(read.shows_up_to(), 3);
    apply(&mut read, 2, &Item::Reign { node: 1 });
    assert_eq!(read.shows_up_to(), 3);
    apply(&mut read, 3, &Item::Reign { node: 1 });
    apply(&mut read, 4, &Item::Reign { node: 1 });
    assert_eq!(read.shows_up_to(), 4);
}

#[test]
fn no_entry_is_left_out() {
    let mut state = LedgerState::default();
    assert!(try_apply(&mut state, 1, &born()).is_err());
    apply(&mut state, 0, &born());
    let error = try_apply(&mut state, 2, &born()).unwrap_err().to_string();
    assert!(error.contains("entry 1 is next"), "{error}");
}
