//! The life of a lock.

use engine::{Acquire, Alone, Engine, Key, Outcome, Release, Seat, Settings, Tick};

fn at(ms: u64) -> Tick {
    Tick::from_ms(ms)
}

#[test]
fn a_released_key_is_granted_again_under_a_higher_fence() {
    let engine = Engine::new(Settings::default(), Alone);
    let mut a = Seat::new(engine.open_session(60_000, at(0)).unwrap());
    let mut b = Seat::new(engine.open_session(60_000, at(0)).unwrap());
    let key = Key::new(b"k").unwrap();
    let Outcome::Granted(first) = engine.acquire(&mut a, &Acquire::exclusive(key, 100), at(1))
    else {
        panic!()
    };
    assert!(matches!(
        engine.acquire(&mut b, &Acquire::exclusive(key, 100), at(2)),
        Outcome::Held(_)
    ));
    assert_eq!(
        engine.release(&mut a, key, first.fence, at(3)),
        Release::Released { count: 0 }
    );
    let Outcome::Granted(second) = engine.acquire(&mut b, &Acquire::exclusive(key, 100), at(4))
    else {
        panic!()
    };
    assert!(second.fence > first.fence);
    // Lazily expired.
    let Outcome::Granted(third) = engine.acquire(&mut a, &Acquire::exclusive(key, 100), at(104))
    else {
        panic!()
    };
    assert!(third.fence > second.fence);
    // By the wheel, then evicted.
    while engine.advance(at(100_000), 1000).more {}
    while engine.advance(at(200_000), 1000).more {}
    assert_eq!(engine.keys(), 0);
    let mut c = Seat::new(engine.open_session(60_000, at(200_000)).unwrap());
    let Outcome::Granted(fourth) =
        engine.acquire(&mut c, &Acquire::exclusive(key, 100), at(200_001))
    else {
        panic!()
    };
    assert!(fourth.fence > third.fence);
}

#[test]
fn the_table_grows_to_a_million_keys_and_finds_them_all() {
    let engine = Engine::new(
        Settings {
            shards: 4,
            ..Settings::default()
        },
        Alone,
    );
    let mut a = Seat::new(engine.open_session(600_000, at(0)).unwrap());
    let mut fences = Vec::new();
    for i in 0..1_000_000u64 {
        let bytes = i.to_le_bytes();
        let key = Key::new(&bytes).unwrap();
        let Outcome::Granted(grant) =
            engine.acquire(&mut a, &Acquire::exclusive(key, 500_000), at(1))
        else {
            panic!()
        };
        fences.push(grant.fence);
    }
    assert_eq!(engine.keys(), 1_000_000);
    for i in 0..1_000_000u64 {
        let bytes = i.to_le_bytes();
        let key = Key::new(&bytes).unwrap();
        assert_eq!(
            engine.release(&mut a, key, fences[i as usize], at(2)),
            Release::Released { count: 0 }
        );
    }
}
