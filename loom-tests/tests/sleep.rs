//! The two handshakes of the server that end in a sleep: the log's writer and its appenders, a
//! core and the writer that syncs for it. Both are made of [`SleepFlag`].

use engine::{Fault, SleepFlag};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_tests::{check, check_broken};

/// Two threads append while the writer finds the queue empty and goes to sleep
/// (`wal/src/log/queue.rs`).
fn append_against_sleep() {
    let flag = Arc::new(SleepFlag::new());
    let queue = Arc::new(AtomicU64::new(0));
    let appenders = [1, 2].map(|_| {
        let (flag, queue) = (flag.clone(), queue.clone());
        thread::spawn(move || {
            queue.fetch_add(1, Ordering::Release);
            flag.must_wake()
        })
    });
    flag.raise();
    let found = queue.load(Ordering::Acquire);
    if found > 0 {
        flag.lower();
    }
    let woken = appenders.map(|appender| appender.join().unwrap());

    if found == 0 {
        let wakers = woken.iter().filter(|&&is_woken| is_woken).count();
        assert_eq!(
            wakers, 1,
            "the writer sleeps on what was appended, or is woken twice"
        );
    }
}

/// A core waits for the second of two syncs, and the first one rings its bell
/// (`core/durable_replies.rs`, `storage/mod.rs`).
fn sync_against_await() {
    let posts = Arc::new([SleepFlag::new()]);
    let synced = Arc::new(AtomicU64::new(0));
    // As the real bell: it remembers one ring. A mutex, since loom lets a swap read what is not the
    // latest.
    let bell = Arc::new(Mutex::new(false));
    let writer = thread::spawn({
        let (posts, synced, bell) = (posts.clone(), synced.clone(), bell.clone());
        move || {
            for ticket in 1..=2 {
                synced.store(ticket, Ordering::Release);
                for _ in SleepFlag::to_wake(&*posts, |post| post) {
                    *bell.lock().unwrap() = true;
                }
            }
        }
    });
    let look = || {
        posts[0].raise();
        synced.load(Ordering::Acquire)
    };
    let has_rung = || std::mem::take(&mut *bell.lock().unwrap());
    let mut seen = look();
    if has_rung() {
        seen = look();
    }
    writer.join().unwrap();
    // The core sleeps now until the bell has rung.
    while has_rung() {
        seen = look();
    }

    assert_eq!(seen, 2, "the core sleeps on what is synced");
}

#[test]
fn what_is_appended_is_found_or_wakes_the_writer() {
    check(append_against_sleep);
}

#[test]
#[should_panic(expected = "the writer sleeps on what was appended")]
fn an_appender_without_a_fence_is_caught() {
    check_broken(Fault::WakerUnfenced, append_against_sleep);
}

#[test]
#[should_panic(expected = "the writer sleeps on what was appended")]
fn a_writer_without_a_fence_is_caught() {
    check_broken(Fault::SleeperUnfenced, append_against_sleep);
}

#[test]
fn what_is_synced_is_seen_or_rings_the_bell() {
    check(sync_against_await);
}

#[test]
#[should_panic(expected = "the core sleeps on what is synced")]
fn a_writer_that_rings_without_a_fence_is_caught() {
    check_broken(Fault::WakerUnfenced, sync_against_await);
}

#[test]
#[should_panic(expected = "the core sleeps on what is synced")]
fn a_core_that_waits_without_a_fence_is_caught() {
    check_broken(Fault::SleeperUnfenced, sync_against_await);
}
