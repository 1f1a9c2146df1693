#![cfg(loom)]
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use loom::sync::atomic::*;
use loom::sync::atomic::Ordering::*;
#[test]
fn rmw_orders() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let s2 = seen.clone();
    let n = Arc::new(std::sync::atomic::AtomicU64::new(0)); let n2 = n.clone();
    loom::model::Builder::new().check(move || {
        n2.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let x = Arc::new(AtomicU64::new(0));
        let run = |x: Arc<AtomicU64>, id: u64| (0..3).map(|_| { let mut c = x.load(Acquire); loop { match x.compare_exchange(c, c * 4 + id, AcqRel, Acquire) { Ok(c) => break c, Err(now) => c = now } } }).collect::<Vec<_>>();
        let x1 = x.clone();
        let t = loom::thread::spawn(move || run(x1, 1));
        let m = run(x.clone(), 2);
        let o = t.join().unwrap();
        s2.lock().unwrap().insert((o, m));
    });
    println!("rmw distinct {} execs {}", seen.lock().unwrap().len(), n.load(std::sync::atomic::Ordering::Relaxed));
}
#[test]
fn sb() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let s2 = seen.clone();
    loom::model::Builder::new().check(move || {
        let x = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let x1 = x.clone();
        let t = loom::thread::spawn(move || { x1.0.swap(1, AcqRel); x1.1.load(Acquire) });
        x.1.swap(1, AcqRel); let m = x.0.load(Acquire);
        s2.lock().unwrap().insert((t.join().unwrap(), m));
    });
    println!("sb {:?}", seen.lock().unwrap());
}
#[test]
fn mp_store_breaks_release_sequence() {
    // T1: data=1; f.fetch_or(1 rel). T2: f.store(3, relaxed) after having seen f&1 (relaxed). T3: swap f acq ; read data
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let s2 = seen.clone();
    loom::model::Builder::new().check(move || {
        let x = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let (x1, x2) = (x.clone(), x.clone());
        let t = loom::thread::spawn(move || { x1.0.store(1, Relaxed); x1.1.fetch_or(1, AcqRel); });
        let u = loom::thread::spawn(move || { if x2.1.load(Relaxed) & 1 != 0 { x2.1.store(3, Relaxed) } });
        let f = x.1.swap(8, AcqRel); let d = x.0.load(Relaxed);
        t.join().unwrap(); u.join().unwrap();
        s2.lock().unwrap().insert((f, d));
    });
    println!("mp {:?}", seen.lock().unwrap());
}
