//! Clients of the harness itself: *keepers* hold guards with a lease of 10 s, which outlive a
//! failover; the *meter* asks for a lock all the time, so that it is known for how long there were
//! no grants.

use crate::crew::Crew;
use crash_tests::history::{End, Grant, Recorder, Time};
use crash_tests::worker::Shared;
use fencepost::{Acquisition, Client, Guard, LockError, Loss, Release};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

const KEEPER_COUNT: usize = 6;
const KEEPER_TTL: Duration = Duration::from_secs(10);
const KEPT_MS: std::ops::Range<u64> = 2_000..12_000;
/// How often a guard is asked how long it is good for.
const SAMPLE: Duration = Duration::from_millis(50);
const AGAIN: Duration = Duration::from_millis(50);

/// How often the meter asks.
pub const TICK: Duration = Duration::from_millis(20);
const METER_TTL: Duration = Duration::from_secs(2);
/// No key is asked for twice within this many ticks.
const METER_KEY_COUNT: usize = 512;
/// Requests of the meter under way.
const METER_WIDTH: usize = 128;

/// What keepers and meter have seen.
#[derive(Default)]
pub struct Seen {
    /// When the meter's grants were asked for, and answered.
    grants: Mutex<Vec<(Time, Time)>>,
    /// Guards that keepers had.
    guards: Mutex<u64>,
    /// Guards that keepers lost, when, and why.
    lost: Mutex<Vec<(Time, String)>>,
}

impl Seen {
    /// When the first grant was answered that was asked for after `time`.
    pub fn grant_after(&self, time: Time) -> Option<Time> {
        let grants = self.grants.lock();
        let later = grants.iter().filter(|(begun, _)| *begun >= time);
        later.map(|(_, answered)| *answered).min()
    }

    /// The longest time without a grant that ends between these.
    pub fn longest_pause(&self, from: Time, to: Time) -> Time {
        let mut answered: Vec<Time> = self.grants.lock().iter().map(|grant| grant.1).collect();
        answered.sort_unstable();
        let pauses = answered
            .windows(2)
            .filter(|pair| (from..=to).contains(&pair[1]));
        pauses.map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    /// How many guards keepers had.
    pub fn guards(&self) -> u64 {
        *self.guards.lock()
    }

    /// The guards that keepers lost.
    pub fn lost(&self) -> Vec<(Time, String)> {
        self.lost.lock().clone()
    }
}

/// Keepers and meter, at work.
pub struct Keepers {
    crew: Crew,
    /// What they have seen so far.
    pub seen: Arc<Seen>,
}

impl Keepers {
    /// Connects them.
    pub fn start(addresses: &[String], shared: &Arc<Shared>, seed: u64) -> Result<Self, String> {
        let mut crew = Crew::new("keeper")?;
        let mut connect = || {
            let settings = Client::builder().addresses(addresses.to_vec());
            crew.connect(settings.session_ttl(KEEPER_TTL))
        };
        let (keeper, meter) = (connect()?, connect()?);
        let seen = Arc::new(Seen::default());
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..KEEPER_COUNT {
            crew.begin(keep(
                keeper.clone(),
                number,
                shared.clone(),
                seen.clone(),
                random.fork(),
            ));
        }
        crew.begin(measure(meter, shared.clone(), seen.clone()));
        Ok(Keepers { crew, seen })
    }

    /// Waits for their end, which comes once the run stops.
    pub fn end(self) -> Result<(), String> {
        self.crew.end()
    }
}

fn record(recorder: &Recorder, begun: Time, guard: &Guard, name: &str) -> Grant {
    Grant {
        key: String::from_utf8_lossy(guard.key()).into(),
        fence: guard.fence().get(),
        is_shared: false,
        holder: name.into(),
        ttl_us: KEEPER_TTL.as_micros() as u64,
        begun,
        answered: recorder.now(),
        promises: vec![recorder.time_of(guard.valid_until())],
        end: End::Open,
    }
}

/// Holds one key, again and again.
async fn keep(
    client: Client,
    number: usize,
    shared: Arc<Shared>,
    seen: Arc<Seen>,
    mut random: fastrand::Rng,
) {
    let (key, name) = (format!("kept/{number}"), format!("keeper/{number}"));
    let recorder = shared.recorder.clone();
    while !shared.is_stopping() {
        let begun = recorder.now();
        let request = client.lock(&*key).ttl(KEEPER_TTL).wait(KEEPER_TTL);
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(LockError::Failed(error)) => {
                shared.note(&error);
                sleep(AGAIN).await;
                continue;
            }
            Err(_) => continue,
        };
        let grant = recorder.granted(record(&recorder, begun, &guard, &name));
        *seen.guards.lock() += 1;
        let until = recorder.now() + random.u64(KEPT_MS) * 1_000;
        let lost = guard.lost();
        tokio::pin!(lost);
        let loss = loop {
            if recorder.now() >= until || shared.is_stopping() {
                break None;
            }
            tokio::select! {
                loss = &mut lost => break Some(loss),
                () = sleep(SAMPLE) => {}
            }
            recorder.promised(grant, recorder.time_of(guard.valid_until()));
        };
        let begun = recorder.now();
        let end = match loss {
            Some(loss) => {
                let why = format!("{loss:?}");
                seen.lost.lock().push((begun, format!("{name}: {why}")));
                let by_server = !matches!(loss, Loss::DeadlinePassed | Loss::Closed);
                End::Lost {
                    at: begun,
                    by_server,
                    why,
                }
            }
            None => release(guard, &shared).await,
        };
        recorder.ended(grant, end);
    }
}

/// Asks for a lock at every tick, whether the last one was answered or not.
async fn measure(client: Client, shared: Arc<Shared>, seen: Arc<Seen>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut under_way = tokio::task::JoinSet::new();
    let mut number = 0;
    while !shared.is_stopping() {
        ticks.tick().await;
        while under_way.try_join_next().is_some() {}
        if under_way.len() < METER_WIDTH {
            let key = format!("measured/{}", number % METER_KEY_COUNT);
            number += 1;
            under_way.spawn(ask_once(client.clone(), key, shared.clone(), seen.clone()));
        }
    }
    while under_way.join_next().await.is_some() {}
}

async fn ask_once(client: Client, key: String, shared: Arc<Shared>, seen: Arc<Seen>) {
    let recorder = &shared.recorder;
    let begun = recorder.now();
    let request = client.lock(&*key).ttl(METER_TTL).no_renew();
    let guard = match request.try_acquire().await {
        Ok(Acquisition::Acquired(guard)) => guard,
        // Left over from a release that was not heard.
        Ok(Acquisition::Held(_)) => return,
        Err(error) => return shared.note(&error),
    };
    let grant = Grant {
        ttl_us: METER_TTL.as_micros() as u64,
        ..record(recorder, begun, &guard, "meter")
    };
    seen.grants.lock().push((begun, grant.answered));
    let grant = recorder.granted(grant);
    recorder.ended(grant, release(guard, &shared).await);
}

/// Gives a lock back, and says what is known of its end.
pub(crate) async fn release(guard: Guard, shared: &Shared) -> End {
    let begun = shared.recorder.now();
    match guard.release().await {
        Ok(Release::Released) => End::Released {
            begun,
            answered: shared.recorder.now(),
        },
        Ok(_) => End::Abandoned { begun },
        Err(error) => {
            shared.note(&error);
            End::Abandoned { begun }
        }
    }
}
