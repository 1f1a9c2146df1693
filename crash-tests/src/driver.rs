//! One run: the lives of the server, and when they end.

use crate::checker::Mode;
use crate::history::{History, Life, LifeEnd, Recorder, Time};
use crate::prober;
use crate::process::{Program, Server, Site, free_address};
use crate::worker::{Shared, Worker};
use fencepost::Client;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Few enough that their clients meet all the time.
const KEY_COUNT: usize = 6;
const HECTIC_KEY_COUNT: usize = 2;
const CLIENT_COUNT: usize = 6;
/// Of these, the last.
const HECTIC_CLIENT_COUNT: usize = 2;
const TASKS_PER_CLIENT: usize = 2;

/// A server that grants nothing for this long, though all leases are shorter, never will.
const STUCK: Duration = Duration::from_secs(60);

/// How long the clients may take to come to an end.
const WIND_UP: Duration = Duration::from_secs(30);

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is run.
    pub program: Program,
    /// How it is run.
    pub mode: Mode,
    /// How often it is killed.
    pub kills: usize,
    /// All moments and choices come from this. The system adds its own, so a seed does not repeat a run; it repeats its shape.
    pub seed: u64,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was seen.
    pub history: History,
    /// What failed, and how often. Much of it has to, while the server is down.
    pub failures: BTreeMap<String, u64>,
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Killed so long after it was started, ready or not.
    AtStart(Duration),
    /// Killed so long after it was ready.
    Soon(Duration),
    /// Killed so long after it granted the first lock that was asked for in this life.
    InFullRun(Duration),
    /// Stopped in good order, after the same.
    Stopped(Duration),
}

impl Fate {
    fn pick(random: &mut fastrand::Rng) -> Self {
        let mut ms = |range| Duration::from_millis(random.u64(range));
        let (at_start, soon, later) = (ms(0..30), ms(0..200), ms(0..600));
        match random.u8(..20) {
            0..2 => Fate::AtStart(at_start),
            2..6 => Fate::Soon(soon),
            6 => Fate::Stopped(later),
            _ => Fate::InFullRun(later),
        }
    }
}

/// Runs the server as often as the plan says, and returns what its clients saw. `progress` hears of every kill. An error is
/// something that no server may do, like not starting; what is in the history is for the checker.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(usize, &Recorder)) -> Result<Outcome, String> {
    let system = |error: std::io::Error| format!("the system refused: {error}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(system)?;
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let home = tempfile::tempdir().map_err(system)?;
    let site = Site {
        program: plan.program.clone(),
        mode: plan.mode,
        data_dir: home.path().join("data"),
        address: free_address(&mut random)?,
    };
    let recorder = Arc::new(Recorder::default());
    let shared = Arc::new(Shared {
        recorder: recorder.clone(),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
    });

    let first = Alive::start(&site, &recorder)?;
    let crowd = runtime.block_on(Crowd::gather(&site.address, &shared, &mut random))?;
    let prober = {
        let shared = shared.clone();
        let address = site.address.parse().expect("it was made of digits");
        let mode = plan.mode;
        std::thread::spawn(move || prober::run(&shared, address, mode))
    };
    let mut killer = Killer {
        site: &site,
        recorder: &recorder,
        random,
    };
    let ended = killer.kill_often(first, plan.kills, progress);
    shared.stop.store(true, Ordering::Relaxed);
    // The last server stays until all are done, so that everything gets its answer.
    let wound_up = runtime.block_on(crowd.disperse());
    if prober.join().is_err() {
        return Err("the prober panicked".to_owned());
    }
    let last = ended?;
    wound_up?;
    last.end(&recorder, LifeEnd::Killed)?;
    let failures = std::mem::take(&mut *shared.failures.lock());
    Ok(Outcome {
        history: recorder.history(),
        failures,
    })
}

struct Killer<'a> {
    site: &'a Site,
    recorder: &'a Recorder,
    random: fastrand::Rng,
}

impl Killer<'_> {
    /// Returns the life after the last kill but one: the last kill comes when all is done.
    fn kill_often(
        &mut self,
        first: Alive,
        kills: usize,
        progress: &mut dyn FnMut(usize, &Recorder),
    ) -> Result<Alive, String> {
        let mut alive = first;
        let mut done = 0;
        while done + 1 < kills {
            let (pause, end) = match Fate::pick(&mut self.random) {
                // The life that is to be cut short at its start is the next one.
                Fate::AtStart(pause) => {
                    alive.end(self.recorder, LifeEnd::Killed)?;
                    done += 1;
                    self.kill_at_start(pause)?;
                    done += 1;
                    progress(done, self.recorder);
                    alive = Alive::start(self.site, self.recorder)?;
                    continue;
                }
                Fate::Soon(pause) => (pause, LifeEnd::Killed),
                Fate::InFullRun(pause) => {
                    alive.wait_for_grant(self.recorder)?;
                    (pause, LifeEnd::Killed)
                }
                Fate::Stopped(pause) => {
                    alive.wait_for_grant(self.recorder)?;
                    (pause, LifeEnd::Stopped)
                }
            };
            std::thread::sleep(pause);
            alive.end(self.recorder, end)?;
            if end == LifeEnd::Killed {
                done += 1;
                progress(done, self.recorder);
            }
            self.stay_down();
            alive = Alive::start(self.site, self.recorder)?;
        }
        alive.wait_for_grant(self.recorder)?;
        Ok(alive)
    }

    fn kill_at_start(&mut self, pause: Duration) -> Result<(), String> {
        let server = self.site.start()?;
        std::thread::sleep(pause);
        let mut alive = Alive {
            server,
            ready: None,
            started: Instant::now(),
            grants_before: 0,
        };
        if alive.server.has_ended() {
            return Err(alive.server.complain("ended while it started"));
        }
        alive.end(self.recorder, LifeEnd::Killed)
    }

    /// Most often the next server is there at once. Now and then it takes so long that leases end meanwhile.
    fn stay_down(&mut self) {
        let pause = match self.random.u8(..10) {
            0 => self.random.u64(300..1_200),
            _ => self.random.u64(..50),
        };
        std::thread::sleep(Duration::from_millis(pause));
    }
}

/// A life of the server.
struct Alive {
    server: Server,
    ready: Option<Time>,
    started: Instant,
    grants_before: u64,
}

impl Alive {
    fn start(site: &Site, recorder: &Recorder) -> Result<Self, String> {
        let server = site.start_ready()?;
        Ok(Alive {
            server,
            ready: Some(recorder.now()),
            started: Instant::now(),
            grants_before: recorder.grant_count(),
        })
    }

    /// Waits until somebody was granted a lock in this life. Without that a grace period would keep every life but the first
    /// from granting anything.
    fn wait_for_grant(&mut self, recorder: &Recorder) -> Result<(), String> {
        while recorder.grant_count() == self.grants_before {
            if self.server.has_ended() {
                return Err(self.server.complain("ended by itself"));
            }
            if self.started.elapsed() > STUCK {
                return Err(self
                    .server
                    .complain(&format!("granted nothing within {STUCK:?}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn end(self, recorder: &Recorder, end: LifeEnd) -> Result<(), String> {
        let life = Life {
            ready: self.ready,
            ended: recorder.now(),
            end,
        };
        match end {
            LifeEnd::Killed => self.server.kill()?,
            LifeEnd::Stopped => self.server.stop()?,
        }
        recorder.lived(life);
        Ok(())
    }
}

/// The clients.
struct Crowd {
    clients: Vec<Client>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    async fn gather(
        address: &str,
        shared: &Arc<Shared>,
        random: &mut fastrand::Rng,
    ) -> Result<Self, String> {
        let mut crowd = Crowd {
            clients: Vec::new(),
            tasks: Vec::new(),
        };
        let keys = |name, count| -> Vec<Arc<str>> {
            let names = (0..count).map(|number| format!("{name}/{number}").into());
            names.collect()
        };
        for number in 0..CLIENT_COUNT {
            let is_hectic = number >= CLIENT_COUNT - HECTIC_CLIENT_COUNT;
            let session_ttl = Duration::from_millis([900, 1_200, 1_600, 2_000][number % 4]);
            let connected = Client::builder()
                .address(address)
                .name(format!("client-{number}"))
                .connections(1 + number % 2)
                .session_ttl(session_ttl)
                .connect_timeout(Duration::from_secs(1))
                .request_timeout(Duration::from_secs(1))
                .connect()
                .await;
            let client = connected.map_err(|error| error.to_string())?;
            for task in 0..TASKS_PER_CLIENT {
                let worker = Worker {
                    shared: shared.clone(),
                    keys: match is_hectic {
                        true => keys("busy", HECTIC_KEY_COUNT),
                        false => keys("key", KEY_COUNT),
                    },
                    is_hectic,
                    client: client.clone(),
                    session_ttl,
                    name: format!("client-{number}/{task}").into(),
                    random: random.fork(),
                };
                crowd.tasks.push(tokio::spawn(worker.run()));
            }
            crowd.clients.push(client);
        }
        Ok(crowd)
    }

    async fn disperse(self) -> Result<(), String> {
        for task in self.tasks {
            match tokio::time::timeout(WIND_UP, task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(format!("a client's task failed: {error}")),
                Err(_) => return Err("a client's task does not come to an end".to_owned()),
            }
        }
        for client in self.clients {
            // Without a goodbye the session ends by itself.
            let _ = tokio::time::timeout(WIND_UP, client.close()).await;
        }
        Ok(())
    }
}
