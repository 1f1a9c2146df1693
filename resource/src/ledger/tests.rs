//! The bounded ledger against a plain map that forgets nothing.

use super::{Bounds, Floors, Ledger, Seen, WhenFull};
use crate::refusal::{Full, Policy, Refusal};
use bytes::Bytes;
use proptest::prelude::*;
use protocol::Fence;
use std::collections::BTreeMap;
use std::sync::Arc;

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn forgetting(keys_max: usize) -> Ledger<()> {
    let bounds = Bounds {
        keys_max,
        bytes_max: u64::MAX,
        when_full: WhenFull::Forget,
    };
    Ledger::new(bounds, [7; 16])
}

fn refusing(keys_max: usize, bytes_max: u64) -> Ledger<Bytes> {
    let bounds = Bounds {
        keys_max,
        bytes_max,
        when_full: WhenFull::Refuse,
    };
    Ledger::new(bounds, [7; 16])
}

/// Admits and applies, as the owner of the key's turn does.
fn write<V: super::Value>(
    ledger: &mut Ledger<V>,
    key: &str,
    number: u64,
    value: V,
) -> Result<(), Refusal> {
    let policy = Some(Policy::FirstUse);
    ledger.admit(key.as_bytes(), fence(number), &value, policy)?;
    ledger.apply(&Arc::from(key.as_bytes()), fence(number), value);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is let through would have been let through by a guard with memory without end;
    /// whatever such a guard lets through is let through as long as all keys fit.
    #[test]
    fn forgetting_never_lets_a_stale_fence_through(
        keys_max in 1_usize..6,
        is_first_use: bool,
        writes in prop::collection::vec((0_u8..8, 1_u64..40), 0..200),
    ) {
        let policy = if is_first_use { Policy::FirstUse } else { Policy::AtLeast };
        let mut ledger = forgetting(keys_max);
        let mut model = BTreeMap::<[u8; 1], Fence>::new();
        for (key, number) in writes {
            let (key, got) = ([key], fence(number));
            let highest = model.get(&key).copied();
            let model_admits = highest.is_none_or(|seen| policy.admits(seen, got));
            let known = ledger.seen(&key).fence();
            prop_assert!(known >= highest, "{known:?} is remembered of {highest:?}");

            let admitted = ledger.admit(&key, got, &(), Some(policy));
            prop_assert!(admitted.is_err() || model_admits, "{got} was let through above {highest:?}");
            if model.len() <= keys_max && (model.contains_key(&key) || model.len() < keys_max) {
                prop_assert_eq!(admitted.is_ok(), model_admits, "nothing was forgotten yet");
            }
            match admitted {
                Ok(()) => {
                    ledger.apply(&Arc::from(key), got, ());
                    prop_assert_eq!(ledger.seen(&key), Seen::Fence(got));
                    model.insert(key, got);
                }
                Err(Refusal::Stale(stale)) => {
                    prop_assert_eq!(Some(stale.seen), known);
                    prop_assert_eq!(stale.got, got);
                    prop_assert!(!policy.admits(stale.seen, got));
                }
                Err(refusal) => prop_assert!(false, "{}", refusal),
            }
            prop_assert!(ledger.keys() <= keys_max);
        }
    }

    /// Two keys that meet in a cell only ever see each other's fences from below.
    #[test]
    fn a_floor_is_never_below_a_fence_that_was_forgotten(
        forgotten in prop::collection::vec((any::<u16>(), 1_u64..1_000_000), 1..2_000),
    ) {
        let mut floors = Floors::new([3; 16]);
        let mut highest = BTreeMap::new();
        for (key, number) in forgotten {
            floors.raise(&key.to_le_bytes(), fence(number));
            let entry = highest.entry(key).or_insert(number);
            *entry = number.max(*entry);
        }
        for (key, number) in &highest {
            prop_assert!(floors.under(&key.to_le_bytes()) >= Some(fence(*number)));
        }
        let mut restored = Floors::new([3; 16]);
        for (cell, fence) in floors.raised() {
            prop_assert!(restored.restore(cell, fence));
        }
        for key in highest.keys() {
            prop_assert_eq!(restored.under(&key.to_le_bytes()), floors.under(&key.to_le_bytes()));
        }
    }
}

#[test]
fn a_forgotten_busy_key_does_not_block_quiet_ones() {
    let mut ledger = forgetting(1);
    write(&mut ledger, "busy", 1_000_000, ()).unwrap();
    let refused =
        (0..1_000).filter(|key| write(&mut ledger, &format!("quiet/{key}"), 1, ()).is_err());
    assert_eq!(
        refused.count(),
        0,
        "the hash of this test is fixed, so is the answer"
    );
    match write(&mut ledger, "busy", 1_000_000, ()) {
        Err(Refusal::Stale(stale)) => {
            assert!(stale.is_floor);
            assert_eq!(stale.seen, fence(1_000_000));
        }
        other => panic!("{other:?}"),
    }
    write(&mut ledger, "busy", 1_000_001, ()).unwrap();
}

#[test]
fn the_key_written_longest_ago_is_forgotten_and_looking_is_not_writing() {
    let mut ledger = forgetting(2);
    write(&mut ledger, "a", 1, ()).unwrap();
    write(&mut ledger, "b", 2, ()).unwrap();
    write(&mut ledger, "a", 3, ()).unwrap();
    assert_eq!(ledger.seen(b"b"), Seen::Fence(fence(2)));
    write(&mut ledger, "c", 4, ()).unwrap();
    assert_eq!(ledger.seen(b"b"), Seen::Floor(fence(2)));
    assert_eq!(ledger.seen(b"a"), Seen::Fence(fence(3)));
    assert_eq!(ledger.seen(b"d"), Seen::Nothing);
}

#[test]
fn room_that_was_promised_is_not_promised_twice() {
    let mut ledger = refusing(2, 100);
    let value = Bytes::from_static(b"12345");
    let admit = |ledger: &mut Ledger<Bytes>, key: &[u8], value: &Bytes| {
        ledger.admit(key, fence(1), value, Some(Policy::FirstUse))
    };
    admit(&mut ledger, b"a", &value).unwrap();
    admit(&mut ledger, b"b", &value).unwrap();
    let full = admit(&mut ledger, b"c", &value);
    assert!(
        matches!(full, Err(Refusal::Full(Full::Keys { keys_max: 2 }))),
        "{full:?}"
    );
    ledger.apply(&Arc::from(*b"a"), fence(1), value.clone());
    ledger.apply(&Arc::from(*b"b"), fence(1), value.clone());
    assert_eq!((ledger.keys(), ledger.bytes()), (2, 12));
    assert_eq!((ledger.pending_keys, ledger.pending_bytes), (0, 0));

    let long = Bytes::from(vec![0; 95]);
    let full = ledger.admit(b"a", fence(2), &long, Some(Policy::FirstUse));
    assert!(
        matches!(full, Err(Refusal::Full(Full::Bytes { bytes_max: 100 }))),
        "{full:?}"
    );
    let fits = Bytes::from(vec![0; 93]);
    write(&mut ledger, "a", 2, fits).unwrap();
    assert_eq!(ledger.bytes(), 100);
    // A full service still takes what makes it smaller.
    write(&mut ledger, "a", 3, Bytes::new()).unwrap();
    assert_eq!(ledger.bytes(), 7);
    assert_eq!(ledger.get(b"b"), Some((value, fence(1))));
}

#[test]
fn without_enforcement_the_value_goes_back_and_the_highest_fence_stays() {
    let mut ledger = refusing(1, 100);
    write(&mut ledger, "a", 5, Bytes::from_static(b"new")).unwrap();
    let old = Bytes::from_static(b"old");
    ledger.admit(b"a", fence(4), &old, None).unwrap();
    ledger.apply(&Arc::from(*b"a"), fence(4), old.clone());
    assert_eq!(ledger.get(b"a"), Some((old, fence(5))));
}
