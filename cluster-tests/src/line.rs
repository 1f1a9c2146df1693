//! Many clients that stand in line for one key, over and over.

use crate::crew::Crew;
use crate::keepers::release;
use crash_tests::history::{End, Grant, Time};
use crash_tests::worker::Shared;
use fencepost::{Client, LockError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const WAITER_COUNT: usize = 200;
const CLIENT_COUNT: usize = 4;
const KEY: &str = "hot";
const TTL: Duration = Duration::from_secs(10);
/// Longer than any failover.
const WAIT: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(20);
/// Requests that were sent so shortly after one another have no order.
const AT_ONCE_US: Time = 100_000;

/// What waiters have seen.
pub struct Served {
    /// Grants of each waiter.
    counts: Vec<AtomicU64>,
    grants: Mutex<Vec<Turn>>,
}

/// One grant of the key.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Which client its waiter belongs to.
    client: usize,
    asked: Time,
    granted: Time,
    fence: u64,
}

/// Grants that came out of the order in which they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overtaking {
    /// Waiters that got the lock after one that had come later by some time.
    pub overtaken: u64,
    /// Of these, the ones that a waiter of their own client overtook.
    pub by_own_client: u64,
    /// Waiters that got the lock before one that had come earlier by some time.
    pub overtakers: u64,
}

impl Overtaking {
    fn among(mut turns: Vec<Turn>) -> Overtaking {
        turns.sort_unstable_by_key(|turn| turn.fence);
        let mut found = Overtaking::default();
        let mut latest = 0;
        let mut latest_of = [0; CLIENT_COUNT];
        for turn in &turns {
            let is_before = |other: Time| turn.asked + AT_ONCE_US < other;
            found.overtaken += u64::from(is_before(latest));
            let own = &mut latest_of[turn.client];
            found.by_own_client += u64::from(is_before(*own));
            latest = latest.max(turn.asked);
            *own = turn.asked.max(*own);
        }
        let mut earliest = Time::MAX;
        for turn in turns.iter().rev() {
            found.overtakers += u64::from(earliest.saturating_add(AT_ONCE_US) < turn.asked);
            earliest = earliest.min(turn.asked);
        }
        found
    }
}

impl Served {
    /// How many grants each waiter has had.
    pub fn counts(&self) -> Vec<u64> {
        let counts = self.counts.iter();
        counts.map(|it| it.load(Ordering::Relaxed)).collect()
    }

    /// Who overtook whom.
    pub fn overtaking(&self) -> Overtaking {
        Overtaking::among(self.grants.lock().clone())
    }

    /// The longest that a waiter has waited.
    pub fn longest_wait(&self) -> Duration {
        let grants = self.grants.lock();
        let waits = grants.iter().map(|turn| turn.granted - turn.asked);
        Duration::from_micros(waits.max().unwrap_or(0))
    }
}

/// A line of clients for one key.
pub struct Line {
    crew: Crew,
    /// What they have seen so far.
    pub served: Arc<Served>,
}

impl Line {
    /// Has them stand in line.
    pub fn start(addresses: &[String], shared: &Arc<Shared>) -> Result<Line, String> {
        let mut crew = Crew::new("waiter")?;
        let connect = |_| {
            let settings = Client::builder().addresses(addresses.to_vec());
            crew.connect(settings.session_ttl(TTL))
        };
        let clients: Result<Vec<Client>, String> = (0..CLIENT_COUNT).map(connect).collect();
        let clients = clients?;
        let served = Arc::new(Served {
            counts: (0..WAITER_COUNT).map(|_| AtomicU64::new(0)).collect(),
            grants: Mutex::default(),
        });
        for number in 0..WAITER_COUNT {
            let client = clients[number % CLIENT_COUNT].clone();
            crew.begin(stand(client, number, shared.clone(), served.clone()));
        }
        Ok(Line { crew, served })
    }

    /// Waits for their end, which comes once the run stops.
    pub fn end(self) -> Result<(), String> {
        self.crew.end()
    }
}

async fn stand(client: Client, number: usize, shared: Arc<Shared>, served: Arc<Served>) {
    let recorder = &shared.recorder;
    let holder: Arc<str> = format!("line/{number}").into();
    while !shared.is_stopping() {
        let begun = recorder.now();
        let guard = match client.lock(KEY).ttl(TTL).wait(WAIT).acquire().await {
            Ok(guard) => guard,
            Err(LockError::Failed(error)) => {
                shared.note(&error);
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            Err(_) => continue,
        };
        let answered = recorder.now();
        let fence = guard.fence().get();
        let grant = recorder.granted(Grant {
            key: KEY.into(),
            fence,
            is_shared: false,
            holder: holder.clone(),
            ttl_us: TTL.as_micros() as u64,
            begun,
            answered,
            promises: vec![recorder.time_of(guard.valid_until())],
            end: End::Open,
        });
        served.counts[number].fetch_add(1, Ordering::Relaxed);
        served.grants.lock().push(Turn {
            client: number % CLIENT_COUNT,
            asked: begun,
            granted: answered,
            fence,
        });
        recorder.ended(grant, release(guard, &shared).await);
    }
}

#[cfg(test)]
mod tests;
