#![cfg(not(loom))]
use engine::*;
#[test]
fn churn_after_a_large_table_was_evicted() {
    let engine = Engine::new(Settings { shards: 1, idle_ms: 1, ..Settings::default() }, Alone);
    let t = Tick::from_ms;
    let mut a = Seat::new(engine.open_session(80_000_000, t(0)).unwrap());
    let mut n = 0u64;
    let mut take = |now: u64, n: &mut u64, a: &mut Seat| {
        let b = n.to_le_bytes(); *n += 1;
        let o = engine.acquire(a, &Acquire::exclusive(Key::new(&b).unwrap(), 10), t(now));
        assert!(matches!(o, Outcome::Granted(_)), "{o:?}");
    };
    for _ in 0..150_000 { take(1, &mut n, &mut a); }
    while engine.advance(t(1000), 100_000).more {}
    while engine.advance(t(5000), 100_000).more {}
    println!("keys {}", engine.keys());
    for i in 0..200_000u64 { take(6000 + i / 10, &mut n, &mut a); while engine.advance(t(6000 + i / 10), 100).more {} }
    println!("keys {}", engine.keys());
    // slow growth: hold everything
    for i in 0..300_000u64 { take(90_000 + i/100_000, &mut n, &mut a); }
    println!("keys {}", engine.keys());
}
