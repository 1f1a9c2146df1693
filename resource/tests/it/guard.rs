//! The guard's promises, with many writers at once.

use crate::support::{in_time, until};
use resource::{Fence, FenceGuard, Full, Policy, Refusal, Seen, WhenFull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot};

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

/// What is guarded: a list of the fences of its writes, which notices when two writes overlap.
#[derive(Default)]
struct Resource {
    is_being_written: AtomicBool,
    written: Mutex<Vec<Fence>>,
}

impl Resource {
    fn begin(&self) {
        assert!(
            !self.is_being_written.swap(true, Ordering::SeqCst),
            "two writes at once"
        );
    }

    fn end(&self, fence: Fence) {
        self.written.lock().unwrap().push(fence);
        self.is_being_written.store(false, Ordering::SeqCst);
    }

    /// Checks that fences rose in the order of the writes, and how many there were.
    fn check(&self, policy: Policy, accepted: usize) {
        let written = self.written.lock().unwrap();
        for pair in written.windows(2) {
            assert!(
                policy.admits(pair[0], pair[1]),
                "{} after {}",
                pair[1],
                pair[0]
            );
        }
        assert_eq!(written.len(), accepted);
        assert!(accepted > 0);
    }
}

const WRITERS: usize = 8;
const WRITES: usize = 400;

/// Fences around a slowly rising middle: many are accepted, many come too late.
fn draw(random: &mut fastrand::Rng, step: usize) -> Fence {
    fence(1 + step as u64 + random.u64(..20))
}

fn crowd_of_threads(guard: FenceGuard) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let resource = Resource::default();
    let accepted = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (guard, resource) = (&guard, &resource);
                let mut random = fastrand::Rng::with_seed(seed + writer as u64);
                scope.spawn(move || {
                    let mut accepted = 0;
                    for step in 0..WRITES {
                        let fence = draw(&mut random, step);
                        let written = guard.write_blocking("hot", fence, || {
                            resource.begin();
                            thread::yield_now();
                            resource.end(fence);
                        });
                        match written {
                            Ok(()) => accepted += 1,
                            Err(Refusal::Stale(stale)) => assert_eq!(stale.got, fence),
                            Err(refusal) => panic!("{refusal}"),
                        }
                        // Another key, so that the hot one is forgotten again and again where there
                        // is room for one only.
                        let other = format!("{writer}");
                        let _ = guard.write_blocking(other, fence, || ());
                    }
                    accepted
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum()
    });
    resource.check(guard.policy(), accepted);
    assert_eq!(guard.writes(), 0);
    let counts = guard.counts();
    assert_eq!(
        counts.accepted + counts.stale,
        2 * (WRITERS * WRITES) as u64
    );
}

async fn crowd_of_tasks(guard: FenceGuard) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let resource = Arc::new(Resource::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (guard, resource) = (guard.clone(), Arc::clone(&resource));
            let mut random = fastrand::Rng::with_seed(seed + writer as u64);
            tokio::spawn(async move {
                let mut accepted = 0;
                for step in 0..WRITES {
                    let fence = draw(&mut random, step);
                    let resource = Arc::clone(&resource);
                    let write = move || async move {
                        resource.begin();
                        tokio::task::yield_now().await;
                        resource.end(fence);
                    };
                    match guard.write("hot", fence, write).await {
                        Ok(()) => accepted += 1,
                        Err(Refusal::Stale(stale)) => assert_eq!(stale.got, fence),
                        Err(refusal) => panic!("{refusal}"),
                    }
                    let _ = guard.write(format!("{writer}"), fence, || async {}).await;
                }
                accepted
            })
        })
        .collect();
    let mut accepted = 0;
    for writer in writers {
        accepted += writer.await.unwrap();
    }
    resource.check(guard.policy(), accepted);
}

#[test]
fn fences_rise_in_the_order_of_writes_from_many_threads() {
    crowd_of_threads(FenceGuard::builder().in_memory());
    crowd_of_threads(FenceGuard::builder().policy(Policy::AtLeast).in_memory());
}

#[test]
fn fences_rise_even_if_the_key_is_forgotten_all_the_time() {
    crowd_of_threads(FenceGuard::builder().keys_max(1).in_memory());
    crowd_of_threads(
        FenceGuard::builder()
            .policy(Policy::AtLeast)
            .keys_max(1)
            .in_memory(),
    );
}

#[test]
fn fences_rise_with_a_log_that_is_rewritten_all_the_time() {
    let dir = TempDir::new().unwrap();
    let guard = FenceGuard::builder().keys_max(3).compact_bytes_min(500);
    crowd_of_threads(guard.open(dir.path()).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fences_rise_in_the_order_of_writes_from_many_tasks() {
    crowd_of_tasks(FenceGuard::builder().in_memory()).await;
    crowd_of_tasks(FenceGuard::builder().keys_max(1).in_memory()).await;
    let dir = TempDir::new().unwrap();
    crowd_of_tasks(
        FenceGuard::builder()
            .policy(Policy::AtLeast)
            .open(dir.path())
            .unwrap(),
    )
    .await;
}

#[test]
fn first_use_is_once_and_at_least_is_often() {
    let once = FenceGuard::builder().in_memory();
    once.write_blocking("k", fence(5), || ()).unwrap();
    let Err(Refusal::Stale(stale)) = once.write_blocking("k", fence(5), || ()) else {
        panic!("used twice");
    };
    assert_eq!(
        (stale.seen, stale.got, stale.is_floor),
        (fence(5), fence(5), false)
    );
    assert_eq!(stale.to_string(), "stale fencing token: seen 5, got 5");

    let often = FenceGuard::builder().policy(Policy::AtLeast).in_memory();
    often.write_blocking("k", fence(5), || ()).unwrap();
    often.write_blocking("k", fence(5), || ()).unwrap();
    assert!(often.write_blocking("k", fence(4), || ()).is_err());
    assert_eq!(often.seen("k"), Seen::Fence(fence(5)));
    assert_eq!(often.seen("other"), Seen::Nothing);
}

#[tokio::test]
async fn an_abandoned_write_runs_to_its_end_before_the_next_begins() {
    let guard = FenceGuard::builder().in_memory();
    let (begun, has_begun) = oneshot::channel();
    let go_on = Arc::new(Notify::new());
    let order = Arc::new(Mutex::new(Vec::new()));

    let (first_goes_on, first_order) = (Arc::clone(&go_on), Arc::clone(&order));
    let first = tokio::spawn({
        let guard = guard.clone();
        async move {
            let write = move || async move {
                begun.send(()).unwrap();
                first_goes_on.notified().await;
                first_order.lock().unwrap().push(1);
            };
            guard.write("k", fence(1), write).await
        }
    });
    in_time(has_begun).await.unwrap();
    // As a server drops what it was doing for a client that hung up.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());

    let second_order = Arc::clone(&order);
    let second = tokio::spawn({
        let guard = guard.clone();
        let write = move || async move { second_order.lock().unwrap().push(2) };
        async move { guard.write("k", fence(2), write).await }
    });
    until(|| guard.writes() == 2).await;
    assert!(
        order.lock().unwrap().is_empty(),
        "the second waits for the first"
    );
    go_on.notify_one();
    in_time(second).await.unwrap().unwrap();
    assert_eq!(*order.lock().unwrap(), [1, 2]);
}

#[tokio::test]
async fn a_write_that_panics_has_used_its_fence_and_frees_the_key() {
    let guard = FenceGuard::builder().in_memory();
    let panicking = tokio::spawn({
        let guard = guard.clone();
        async move {
            guard
                .write("k", fence(2), || async { panic!("half-way") })
                .await
        }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    let late = guard.write("k", fence(1), || async {}).await;
    assert!(
        matches!(late, Err(Refusal::Stale(_))),
        "its effect may be there in part"
    );
    guard.write("k", fence(3), || async {}).await.unwrap();
    assert_eq!(guard.writes(), 0);
}

#[test]
fn a_guard_that_may_not_forget_takes_no_new_keys() {
    let dir = TempDir::new().unwrap();
    let open = || {
        FenceGuard::builder()
            .keys_max(2)
            .when_full(WhenFull::Refuse)
            .open(dir.path())
            .unwrap()
    };
    let guard = open();
    guard.write_blocking("a", fence(9), || ()).unwrap();
    guard.write_blocking("b", fence(1), || ()).unwrap();
    let full = guard.write_blocking("c", fence(1), || ());
    assert!(
        matches!(full, Err(Refusal::Full(Full::Keys { keys_max: 2 }))),
        "{full:?}"
    );
    guard.write_blocking("b", fence(2), || ()).unwrap();
    drop(guard);
    let guard = open();
    assert!(matches!(
        guard.write_blocking("c", fence(1), || ()),
        Err(Refusal::Full(_))
    ));
    assert_eq!(guard.seen("a"), Seen::Fence(fence(9)));
}

#[tokio::test]
#[should_panic(expected = "Cannot block the current thread")]
async fn blocking_where_tasks_run_is_a_mistake_that_shows_at_once() {
    let guard = FenceGuard::builder().in_memory();
    let _ = guard.write_blocking("k", fence(1), || ());
}

#[test]
fn different_keys_do_not_wait_for_each_other() {
    let guard = FenceGuard::builder().in_memory();
    let inner = guard.write_blocking("a", fence(1), || {
        guard.write_blocking("b", fence(1), || "inside")
    });
    assert_eq!(inner.unwrap().unwrap(), "inside");
}

#[tokio::test]
async fn too_many_writers_are_told_so() {
    let guard = FenceGuard::builder().writes_max(1).in_memory();
    let nested = guard.clone();
    let write = move || async move { nested.write("b", fence(1), || async {}).await };
    let refused = guard.write("a", fence(1), write).await.unwrap();
    assert!(matches!(refused, Err(Refusal::Busy { writes_max: 1 })));
}
