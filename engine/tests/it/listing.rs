//! Listing by prefix, page by page.

use crate::common::*;
use engine::{Acquire, Cursor, Key, KeyState, Settings};
use std::collections::BTreeMap;

/// All pages, put together. Fails if a key comes twice.
fn list_all(engine: &Locks, prefix: &[u8], limit: usize, now: u64) -> BTreeMap<Vec<u8>, KeyState> {
    let mut found = BTreeMap::new();
    let mut cursor = Cursor::default();
    loop {
        let page = engine.list(prefix, cursor, limit, at(now));
        assert!(page.keys.len() <= limit);
        for (name, state) in page.keys {
            let twice = found.insert(name.to_vec(), state);
            assert!(twice.is_none(), "{name:?} came twice");
        }
        match page.next {
            // As over the wire.
            Some(next) => cursor = Cursor::from_bits(next.bits()),
            None => return found,
        }
    }
}

#[test]
fn every_held_key_is_listed_exactly_once_whatever_the_size_of_a_page() {
    let engine = locks_with(Settings {
        shards: 8,
        ..small()
    });
    let mut a = seat(&engine);
    let mut expected = BTreeMap::new();
    for i in 0..3000 {
        let name = format!("orders/{i}");
        let grant = take(&engine, &mut a, &name, LONG_MS, at(0));
        if i % 3 == 0 {
            give_back(&engine, &mut a, &name, grant.fence, at(0));
        } else {
            expected.insert(name.into_bytes(), grant.fence);
        }
    }
    for limit in [1, 7, 100, 100_000] {
        let found = list_all(&engine, b"", limit, 1);
        let fences: BTreeMap<_, _> = found
            .into_iter()
            .map(|(name, state)| (name, state.holders[0].fence))
            .collect();
        assert_eq!(fences, expected, "pages of {limit}");
    }
}

#[test]
fn a_listing_looks_at_a_bounded_number_of_cells_per_page() {
    let engine = locks_with(Settings {
        shards: 1,
        ..small()
    });
    let mut a = seat(&engine);
    for i in 0..25_000u64 {
        let name = i.to_le_bytes();
        let request = Acquire::exclusive(Key::new(&name).unwrap(), LONG_MS);
        granted(engine.acquire(&mut a, &request, at(0)));
    }
    take(&engine, &mut a, "needle", LONG_MS, at(0));
    // Empty pages lead on.
    let first = engine.list(b"needle", Cursor::default(), 10, at(1));
    assert!(first.keys.is_empty() && first.next.is_some());
    let found = list_all(&engine, b"needle", 10, 1);
    assert_eq!(found.len(), 1);
    assert_eq!(list_all(&engine, b"", 100_000, 1).len(), 25_001);
}

/// One page per shard was a round trip per shard for three locks.
#[test]
fn a_small_table_is_one_page_whatever_the_number_of_shards() {
    let engine = locks_with(Settings {
        shards: 64,
        ..small()
    });
    let empty = engine.list(b"", Cursor::default(), 100, at(1));
    assert!(empty.keys.is_empty() && empty.next.is_none());
    let mut a = seat(&engine);
    for name in ["a", "b", "c"] {
        take(&engine, &mut a, name, LONG_MS, at(0));
    }
    let page = engine.list(b"", Cursor::default(), 100, at(1));
    assert_eq!((page.keys.len(), page.next), (3, None));
}

#[test]
fn only_keys_with_the_prefix_are_listed() {
    let engine = locks();
    let mut a = seat(&engine);
    for name in ["a", "ab", "abc", "b", "ba", "\0ab", "A"] {
        take(&engine, &mut a, name, LONG_MS, at(0));
    }
    let names = |prefix: &[u8]| {
        let found = list_all(&engine, prefix, 2, 1);
        found
            .into_keys()
            .map(|name| String::from_utf8(name).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(b"a"), ["a", "ab", "abc"]);
    assert_eq!(names(b"ab"), ["ab", "abc"]);
    assert_eq!(names(b"abc"), ["abc"]);
    assert_eq!(names(b"abcd"), [""; 0]);
    assert_eq!(names(b"\0"), ["\0ab"]);
    assert_eq!(names(b"").len(), 7);
    assert_eq!(names(&[b'a'; 300]), [""; 0], "longer than any key");
}

#[test]
fn long_keys_shared_keys_and_keys_waited_for_are_listed_with_their_state() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let long = "l".repeat(256);
    take(&engine, &mut a, &long, LONG_MS, at(0));
    granted(share(&engine, &mut a, "shared", LONG_MS, at(0)));
    granted(share(&engine, &mut b, "shared", LONG_MS, at(0)));
    wait(&engine, &mut b, &long, 10, 1, at(0));
    let found = list_all(&engine, b"", 1, 1);
    assert_eq!(found.len(), 2);
    assert_eq!(found[long.as_bytes()].queue_length, 1);
    assert_eq!(found[b"shared".as_slice()].holders.len(), 2);
}

#[test]
fn what_has_expired_is_not_listed() {
    let engine = locks();
    let mut a = seat(&engine);
    take(&engine, &mut a, "short", 100, at(0));
    take(&engine, &mut a, "long", LONG_MS, at(0));
    assert_eq!(list_all(&engine, b"", 10, 100).len(), 2);
    assert_eq!(list_all(&engine, b"", 10, 101).len(), 1);
}

#[test]
fn forgotten_keys_are_not_listed_and_new_ones_in_their_place_are() {
    let engine = locks_with(Settings {
        idle_ms: 0,
        ..small()
    });
    let mut a = seat(&engine);
    for i in 0..100 {
        take(&engine, &mut a, &format!("old/{i}"), 10, at(0));
    }
    advance(&engine, at(11));
    assert_eq!(engine.keys(), 0);
    for i in 0..50 {
        take(&engine, &mut a, &format!("new/{i}"), LONG_MS, at(11));
    }
    assert_eq!(list_all(&engine, b"", 7, 12).len(), 50);
    assert_eq!(list_all(&engine, b"old", 7, 12).len(), 0);
}

#[test]
fn any_bits_are_a_cursor() {
    let engine = locks();
    let mut a = seat(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    for bits in [0, 1, 2, 0xff_ffff, 1 << 24, 2 << 24, 77 << 24 | 5, u32::MAX] {
        let page = engine.list(b"", Cursor::from_bits(bits), 10, at(1));
        assert!(page.keys.len() <= 1, "{bits:#x}");
    }
}

#[test]
fn a_page_of_no_keys_ends_the_listing() {
    let engine = locks();
    let mut a = seat(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    let page = engine.list(b"", Cursor::default(), 0, at(1));
    assert!(page.keys.is_empty() && page.next.is_none());
}
