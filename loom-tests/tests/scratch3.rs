#![cfg(loom)]
use loom::thread;
use loom_tests::*;
use engine::*;
fn m() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = a.lock(KEY, 10, at(0));
    let taker = thread::spawn(move || b.lock(KEY, 10, at(11)));
    let renewed = a.renew(KEY, old, 500, at(10));
    let new = taker.join().unwrap();
    println!("{renewed} {new:?} {:?} {:?}", world.state(KEY, at(20)).map(|s|s.holders[0].until), world.told());
}
#[test]
fn x() { check_broken(Fault::FenceUnchecked, m) }
