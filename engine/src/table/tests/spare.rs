//! Indexes that were laid out ahead of need, and indexes whose mover was held up.

use super::*;

/// A table whose index is as large as the smallest that is stocked, and all but empty, though
/// nearly used up.
fn churned() -> (Bench, u32) {
    let mut bench = Bench::new(1 << 20, 0);
    let mut number = 0;
    while bench.capacity() < 16_384 {
        bench.find_or_insert(&name(number)).unwrap();
        number += 1;
    }
    for name in bench.model.keys().cloned().collect::<Vec<_>>() {
        bench.evict(&name);
    }
    while !bench.table.current(&epoch::pin()).is_filling() {
        bench.find_or_insert(&name(number)).unwrap();
        bench.evict(&name(number));
        number += 1;
    }
    (bench, number)
}

/// Between looking at how large the next index has to be and saying where it is, the mover may be
/// stopped for as long as you like; others go on inserting until there is no room left.
#[test]
fn the_next_index_has_room_for_all_that_come_while_its_mover_is_held_up() {
    let (mut bench, first) = churned();
    let Bench { table, bounds, .. } = &bench;
    let insert = |number: u32| {
        let name = name(number);
        let (key, hash) = (Key::new(&name).unwrap(), table.hash_key.hash_one(&name[..]));
        let guard = epoch::pin();
        let (found, _) = table
            .find_or_insert(key, hash, bounds, Tick::default(), &guard)
            .unwrap();
        (name, found.slot)
    };
    let mut model: Vec<(Vec<u8>, u32)> = Vec::new();
    let unused = {
        let mut growth = table.growth.lock();
        let guard = epoch::pin();
        let index = table.current(&guard);
        let capacity = table.successor_capacity(index);
        let unused = index.unused() as u32;
        model.extend((first..first + unused).map(insert));
        growth.position = 0;
        index.next.publish(Index::with_capacity(capacity));
        unused
    };
    model.extend((first + unused..first + unused + 20_000).map(insert));
    bench.model.extend(model);
    bench.check();
}

#[test]
fn a_spare_index_is_laid_out_in_time_and_used() {
    let mut bench = Bench::new(1 << 20, 0);
    let mut laid_out = 0;
    for number in 0..120_000 {
        bench.find_or_insert(&name(number)).unwrap();
        let capacity = bench.capacity();
        if bench.table.lay_out_spare() {
            laid_out += 1;
            assert!(bench.table.spare.is_there());
            assert!(!bench.table.lay_out_spare(), "one is enough");
            assert_eq!(
                bench.capacity(),
                capacity,
                "it is not used before it is needed"
            );
        }
    }
    assert!(!bench.table.spare.is_there());
    // From the first of 16,384 entries on to one of 262,144.
    assert_eq!((laid_out, bench.capacity()), (4, 262_144));
    bench.check();
}

#[test]
fn a_spare_index_that_has_become_too_small_is_not_used() {
    let mut bench = Bench::new(1 << 20, 0);
    bench.table.spare.put(Index::with_capacity(64));
    for number in 0..1_000 {
        bench.find_or_insert(&name(number)).unwrap();
    }
    assert!(!bench.table.spare.is_there());
    bench.check();
}

/// A mover that is held up twice: after it has measured how large the new index must be, and again
/// after it has published it. The test plays the mover, so the order is certain. Once the new index
/// was too small for what came meanwhile: the next step of the move panicked under the growth
/// mutex.
#[test]
fn a_mover_held_up_twice_finds_room_in_the_new_index() {
    let mut bench = Bench::new(1 << 20, 0);
    let mut fresh = 0;
    let mut insert = |bench: &mut Bench| {
        bench.find_or_insert(&name(fresh)).unwrap();
        fresh += 1;
        fresh - 1
    };
    let is_moving = |bench: &Bench| {
        let guard = epoch::pin();
        let index = bench.table.current(&guard);
        index.next.load(&guard).is_some()
    };
    while bench.capacity() < 65_536 || is_moving(&bench) {
        insert(&mut bench);
    }
    let capacity = bench.capacity();
    for name in bench.model.keys().cloned().collect::<Vec<_>>() {
        bench.evict(&name);
    }
    // The next insertion makes it crowded, and an eighth of it is live.
    let kept = capacity * 3 / 8 - capacity / 4 - 70;
    let mut live = VecDeque::new();
    let unused = |bench: &Bench| bench.table.current(&epoch::pin()).unused();
    while capacity - unused(&bench) + 1 < capacity / 4 * 3 {
        live.push_back(insert(&mut bench));
        if live.len() > kept {
            bench.evict(&name(live.pop_front().unwrap()));
        }
    }

    // What an inserter does without the mutex, which the mover has.
    let insert_only = |number: u32| {
        let name = name(number);
        let (key, hash) = (Key::new(&name).unwrap(), bench.hash(&name));
        let guard = epoch::pin();
        let (_, is_new) = bench
            .table
            .find_or_insert(key, hash, &bench.bounds, Tick::default(), &guard)
            .unwrap();
        assert!(is_new);
    };
    let guard = epoch::pin();
    let index = bench.table.current(&guard);
    let mut growth = bench.table.growth.lock();
    let mut numbers = 10_000_000..;
    insert_only(numbers.next().unwrap());
    let next_capacity = bench.table.successor_capacity(index);
    while index.unused() > 0 {
        insert_only(numbers.next().unwrap());
    }
    index.next.publish(Index::with_capacity(next_capacity));
    growth.position = 0;
    for number in numbers.by_ref().take(next_capacity / 4) {
        insert_only(number);
    }
    drop(growth);
    for number in numbers.by_ref().take(capacity / MIGRATE_PER_INSERT + 10) {
        insert_only(number);
    }
    drop(guard);
    assert!(!is_moving(&bench), "the move is over");
    let inserted = 10_000_000..numbers.start;
    for number in inserted {
        assert!(bench.find(&name(number)).is_some(), "{number} was lost");
    }
}
