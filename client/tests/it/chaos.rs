//! Everything at once: many tasks, a network that breaks all the time, callers that go away.

use crate::support::*;
use fencepost::{Acquisition, Client, Fence, LockError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const KEY_COUNT: usize = 4;
const CLIENT_COUNT: usize = 3;
const TASKS_PER_CLIENT: usize = 6;
const ROUNDS: usize = 40;
const BREAKS: usize = 25;

/// What one key protects: the holder that is inside, and the largest fence seen.
#[derive(Default)]
struct Protected {
    inside: Option<Fence>,
    seen: Option<Fence>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_held_twice_or_left_behind_however_often_connections_break() {
    let seed = std::env::var("FENCEPOST_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("FENCEPOST_TEST_SEED={seed}");
    let server = start_server();
    let observer = connect(&server).await;
    let resources: Arc<Vec<Mutex<Protected>>> =
        Arc::new((0..KEY_COUNT).map(|_| Mutex::default()).collect());
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut clients, mut tasks, mut disturbers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CLIENT_COUNT {
        let proxy = Proxy::start(server.local_addr()).await;
        let client = builder(proxy.address).connect().await.unwrap();
        for _ in 0..TASKS_PER_CLIENT {
            let work = work(client.clone(), Arc::clone(&resources), random.fork());
            tasks.push(tokio::spawn(work));
        }
        clients.push(client);
        disturbers.push(tokio::spawn(disturb(proxy, random.fork())));
    }
    for task in tasks {
        in_time(task).await.unwrap();
    }
    for disturber in disturbers {
        disturber.await.unwrap();
    }
    // The leases are long and the sessions live: whatever is free by then was released.
    for number in 0..KEY_COUNT {
        eventually_key(&observer, &key(number), "no holder", |state| {
            state.holder_count == 0 && state.queue_length == 0
        })
        .await;
    }
    drop(clients);
}

fn key(number: usize) -> String {
    format!("chaos/{number}")
}

async fn work(client: Client, resources: Arc<Vec<Mutex<Protected>>>, mut random: fastrand::Rng) {
    for _ in 0..ROUNDS {
        let number = random.usize(..KEY_COUNT);
        let mut request = client.lock(key(number));
        if random.u8(..4) == 0 {
            request = request.session_bound();
        }
        let guard = match random.u8(..4) {
            0 => match request.try_acquire().await.unwrap() {
                Acquisition::Acquired(guard) => guard,
                Acquisition::Held(_) => continue,
            },
            1 => {
                // A caller in a hurry.
                let patience = Duration::from_micros(random.u64(..3000));
                match timeout(patience, request.acquire()).await {
                    Ok(Ok(guard)) => guard,
                    Ok(Err(error)) => panic!("{error}"),
                    Err(_elapsed) => continue,
                }
            }
            2 => match request.wait(Duration::from_millis(2)).acquire().await {
                Ok(guard) => guard,
                Err(LockError::NotAcquired(_)) => continue,
                Err(error) => panic!("{error}"),
            },
            _ => request.acquire().await.unwrap(),
        };
        let fence = guard.fence();
        {
            let mut resource = resources[number].lock();
            assert_eq!(resource.inside.replace(fence), None, "two are inside");
            assert!(resource.seen < Some(fence), "fences rise");
            resource.seen = Some(fence);
        }
        sleep(Duration::from_micros(random.u64(..500))).await;
        if random.u8(..4) == 0 {
            let inner = client.lock(key(number)).reentrant().acquire();
            assert_eq!(
                inner.await.unwrap().fence(),
                fence,
                "a hold more, not a grant"
            );
        }
        assert!(guard.is_valid(), "its session was resumed every time");
        assert_eq!(resources[number].lock().inside.take(), Some(fence));
        if random.bool() {
            guard.release().await.unwrap();
        }
    }
}

async fn disturb(proxy: Proxy, mut random: fastrand::Rng) {
    for _ in 0..BREAKS {
        sleep(Duration::from_micros(random.u64(1000..30_000))).await;
        if random.bool() {
            proxy.cut();
        } else {
            proxy.swallow_replies();
            sleep(Duration::from_micros(random.u64(..5000))).await;
            proxy.recover();
        }
    }
}
