//! Clients that take and release locks at a steady rate, so that it is known how long an acquire
//! takes while something else goes on.

use crate::crew::Crew;
use crash_tests::worker::Shared;
use fencepost::{Acquisition, Client};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

const CLIENT_COUNT: usize = 2;
const TASK_COUNT: usize = 32;
/// How often each task acquires, if it has had its answer by then.
const EVERY: Duration = Duration::from_millis(10);
const TTL: Duration = Duration::from_secs(2);

/// Answers that are kept until they are looked at; later ones are not.
const KEPT_MAX: usize = 4 << 20;

/// How long acquires took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acquires {
    /// How many there were.
    pub count: usize,
    /// Half took less.
    pub p50_us: u32,
    /// 99 of a hundred took less.
    pub p99_us: u32,
    /// The longest.
    pub max_us: u32,
}

impl fmt::Display for Acquires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: u32| f64::from(us) / 1e3;
        let (p50, p99, max) = (ms(self.p50_us), ms(self.p99_us), ms(self.max_us));
        let count = self.count;
        write!(f, "p50 {p50:.1} p99 {p99:.1} max {max:.1} ms of {count}")
    }
}

/// How long acquires took since that was looked at last.
#[derive(Default)]
pub struct Latencies(Mutex<Vec<u32>>);

impl Latencies {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Takes them away.
    pub fn take(&self) -> Acquires {
        let mut all = std::mem::take(&mut *self.0.lock());
        all.sort_unstable();
        let at = |percent: usize| {
            let index = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(index).copied().unwrap_or(0)
        };
        Acquires {
            count: all.len(),
            p50_us: at(50),
            p99_us: at(99),
            max_us: at(100),
        }
    }

    fn add(&self, took: Duration) {
        let mut all = self.0.lock();
        if all.len() < KEPT_MAX {
            all.push(took.as_micros().try_into().unwrap_or(u32::MAX));
        }
    }
}

/// The clients, at work.
pub struct Load {
    crew: Crew,
    /// How long their acquires take.
    pub latencies: Arc<Latencies>,
}

impl Load {
    /// Connects them.
    pub fn start(addresses: &[String], shared: &Arc<Shared>) -> Result<Load, String> {
        let mut crew = Crew::new("client of the load")?;
        let connect = |_| crew.connect(Client::builder().addresses(addresses.to_vec()));
        let clients: Result<Vec<Client>, String> = (0..CLIENT_COUNT).map(connect).collect();
        let clients = clients?;
        let latencies = Arc::<Latencies>::default();
        for number in 0..TASK_COUNT {
            let client = clients[number % CLIENT_COUNT].clone();
            crew.begin(acquire(client, number, shared.clone(), latencies.clone()));
        }
        Ok(Load { crew, latencies })
    }

    /// Waits for their end, which comes once the run stops.
    pub fn end(self) -> Result<(), String> {
        self.crew.end()
    }
}

async fn acquire(client: Client, number: usize, shared: Arc<Shared>, latencies: Arc<Latencies>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let key = format!("load/{number}");
    while !shared.is_stopping() {
        ticks.tick().await;
        let begun = Instant::now();
        let lock = client.lock(&*key).ttl(TTL).no_renew();
        match lock.try_acquire().await {
            Ok(Acquisition::Acquired(guard)) => {
                latencies.add(begun.elapsed());
                if let Err(error) = guard.release().await {
                    shared.note(&error);
                }
            }
            // Left over from a release that was not heard.
            Ok(Acquisition::Held(_)) => {}
            Err(error) => shared.note(&error),
        }
    }
}
