//! One run: the lives of the server, and when they end.

use crate::checker::Kept;
use crate::clients::Clients;
use crate::crowd::Crowd;
use crate::history::{History, Life, LifeEnd, Recorder, Time};
use crate::prober;
use crate::process::{Program, Server, Site, free_address};
use crate::redis::RedisWorker;
use crate::trouble::{PAUSE_MS, STEP_NOTICED, STEPS_MS, Trouble, damage_and_repair};
use crate::worker::Shared;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most clients run in processes of their own, so that some can be stopped while others go on.
const CLIENT_PROCESS_COUNT: usize = 2;
const REDIS_CLIENT_COUNT: usize = 4;

/// A server that grants nothing for this long, though all leases are shorter, never will.
const STUCK: Duration = Duration::from_secs(60);

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is run.
    pub program: Program,
    /// This crate's own binary, to run clients in.
    pub client_program: PathBuf,
    /// How the server is run.
    pub mode: Kept,
    /// How often it is killed.
    pub kills: usize,
    /// What else befalls it. Kinds that do not apply to its mode are left out.
    pub troubles: Vec<Trouble>,
    /// All moments and choices come from this. The system adds its own, so a seed repeats the shape
    /// of a run, not the run.
    pub seed: u64,
}

impl Plan {
    fn has(&self, trouble: Trouble) -> bool {
        trouble.applies_to(self.mode) && self.troubles.contains(&trouble)
    }

    /// Whether every life knows all that was acknowledged in the one before.
    fn knows_all(&self) -> bool {
        let forgets = |trouble: &Trouble| trouble.forgets() && self.has(*trouble);
        self.mode == Kept::Lease && !self.troubles.iter().any(forgets)
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was seen.
    pub history: History,
    /// What failed, and how often. Much of it has to, while the server is down.
    pub failures: BTreeMap<String, u64>,
    /// What befell server and clients besides kills, and how often.
    pub troubles: BTreeMap<&'static str, u64>,
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
    /// Stopped in good order so long after it was ready: in its grace period, if it has one.
    StoppedSoon(Duration),
}

impl Fate {
    fn pick(random: &mut fastrand::Rng) -> Self {
        let mut ms = |range| Duration::from_millis(random.u64(range));
        let (at_start, soon, later) = (ms(0..30), ms(0..200), ms(0..600));
        match random.u8(..20) {
            0..2 => Fate::AtStart(at_start),
            2..6 => Fate::Soon(soon),
            6 => Fate::Stopped(later),
            7 => Fate::StoppedSoon(soon),
            _ => Fate::InFullRun(later),
        }
    }
}

/// Runs the server as often as the plan says, and returns what its clients saw. `progress` hears of
/// every kill. An error is something that no server may do, like not starting; the history is for
/// the checker.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(usize, &Recorder)) -> Result<Outcome, String> {
    let system = |error: std::io::Error| format!("the system refused: {error}");
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let home = tempfile::tempdir().map_err(system)?;
    let site = Site {
        program: plan.program.clone(),
        mode: plan.mode,
        data_dir: home.path().join("data"),
        address: free_address(&mut random)?,
        redis_address: free_address(&mut random)?,
        clock_ahead_ms: 0,
        more: Vec::new(),
        log_file: None,
    };
    let recorder = Arc::new(Recorder::default());
    let shared = Arc::new(Shared {
        recorder: recorder.clone(),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
    });

    let first = Alive::start(&site, &recorder)?;
    let clients: Result<Vec<Clients>, String> = (0..CLIENT_PROCESS_COUNT)
        .map(|process| {
            let crowd = Crowd {
                address: site.address.clone(),
                process,
                seed: random.u64(..),
                start_ns: recorder.start_clock().as_nanos() as u64,
            };
            Clients::start(&plan.client_program, &crowd, &shared)
        })
        .collect();
    let clients = clients?;
    let prober = {
        let shared = shared.clone();
        let address = site.address.parse().expect("it was made of digits");
        let releases_survive = plan.knows_all();
        std::thread::spawn(move || {
            prober::run(
                &shared,
                &[address],
                releases_survive,
                prober::SESSION_TTL_MS,
            )
        })
    };
    let redis = (0..REDIS_CLIENT_COUNT).map(|number| {
        let worker = RedisWorker {
            addresses: vec![site.redis_address.parse().expect("it was made of digits")],
            name: format!("redis-{number}").into(),
            leases_survive: plan.knows_all(),
            random: random.fork(),
        };
        let shared = shared.clone();
        std::thread::spawn(move || worker.run(&shared))
    });
    let redis: Vec<_> = redis.collect();
    let mut killer = Killer {
        plan,
        site,
        recorder: &recorder,
        clients,
        troubles: BTreeMap::new(),
        random,
    };
    let ended = killer.kill_often(first, plan.kills, progress);
    let Killer {
        clients, troubles, ..
    } = killer;
    shared.stop.store(true, Ordering::Relaxed);
    // The last server stays until all are done, so that everything gets its answer.
    let wound_up = wind_up(clients);
    if prober.join().is_err() {
        return Err("the prober panicked".to_owned());
    }
    if redis.into_iter().any(|client| client.join().is_err()) {
        return Err("a client of the Redis port panicked".to_owned());
    }
    let last = ended?;
    wound_up?;
    last.end(&recorder, LifeEnd::Killed)?;
    let failures = std::mem::take(&mut *shared.failures.lock());
    Ok(Outcome {
        history: recorder.history(),
        failures,
        troubles,
    })
}

/// Ends the processes of clients in good order.
fn wind_up(mut clients: Vec<Clients>) -> Result<(), String> {
    for process in &mut clients {
        process.wind_up()?;
    }
    clients.into_iter().try_for_each(Clients::end)
}

struct Killer<'a> {
    plan: &'a Plan,
    site: Site,
    recorder: &'a Recorder,
    clients: Vec<Clients>,
    troubles: BTreeMap<&'static str, u64>,
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
        if self.plan.has(Trouble::Pauses) {
            // However short the run is.
            alive.wait_for_grant(self.recorder)?;
            self.pause_clients()?;
        }
        while done + 1 < kills {
            let (pause, end) = match Fate::pick(&mut self.random) {
                // The life that is to be cut short at its start is the next one.
                Fate::AtStart(pause) => {
                    alive.end(self.recorder, LifeEnd::Killed)?;
                    done += 1;
                    self.kill_at_start(pause)?;
                    done += 1;
                    progress(done, self.recorder);
                    alive = self.start()?;
                    continue;
                }
                Fate::Soon(pause) => (pause, LifeEnd::Killed),
                Fate::StoppedSoon(pause) => (pause, LifeEnd::Stopped),
                Fate::InFullRun(pause) => {
                    alive.wait_for_grant(self.recorder)?;
                    self.set_clock(&mut alive)?;
                    (pause, LifeEnd::Killed)
                }
                Fate::Stopped(pause) => {
                    alive.wait_for_grant(self.recorder)?;
                    self.set_clock(&mut alive)?;
                    (pause, LifeEnd::Stopped)
                }
            };
            self.stop_for_a_while(&mut alive, end)?;
            std::thread::sleep(pause);
            alive.end(self.recorder, end)?;
            if end == LifeEnd::Killed {
                done += 1;
                progress(done, self.recorder);
            }
            self.stay_down(end)?;
            alive = self.start()?;
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

    fn start(&mut self) -> Result<Alive, String> {
        if self.plan.has(Trouble::Modes) {
            let is_lease = self.random.bool();
            let before = self.site.mode;
            self.site.mode = if is_lease { Kept::Lease } else { Kept::Fence };
            if self.site.mode != before {
                self.note("lives in another mode than the one before");
            }
        }
        Alive::start(&self.site, self.recorder)
    }

    /// Now and then the server or its clients stand still for a while.
    fn stop_for_a_while(&mut self, alive: &mut Alive, end: LifeEnd) -> Result<(), String> {
        if !self.plan.has(Trouble::Pauses) || self.random.u8(..4) > 0 {
            return Ok(());
        }
        if self.random.bool() {
            return self.pause_clients();
        }
        let pause = Duration::from_millis(self.random.u64(PAUSE_MS));
        alive.server.pause()?;
        std::thread::sleep(pause);
        if end == LifeEnd::Killed && self.random.bool() {
            self.note("pauses of the server, killed in the end");
            return Ok(());
        }
        self.note("pauses of the server");
        alive.server.go_on()
    }

    /// Stops one process of clients, which goes on by itself. The others and the server do not wait
    /// for it.
    fn pause_clients(&mut self) -> Result<(), String> {
        let pause = Duration::from_millis(self.random.u64(PAUSE_MS));
        let index = self.random.usize(..self.clients.len());
        if self.clients[index].pause_for(pause)? {
            self.note("pauses of a process of clients");
        }
        Ok(())
    }

    /// Now and then an operator sets the clock of the machine on which the server runs.
    fn set_clock(&mut self, alive: &mut Alive) -> Result<(), String> {
        if !self.plan.has(Trouble::Clocks) || self.random.u8(..4) > 0 {
            return Ok(());
        }
        let step_ms = self.pick_step();
        self.site.clock_ahead_ms += if self.random.bool() {
            step_ms
        } else {
            -step_ms
        };
        alive.server.set_clock(self.site.clock_ahead_ms)?;
        self.note("steps of the clock while the server ran");
        std::thread::sleep(STEP_NOTICED);
        Ok(())
    }

    fn note(&mut self, trouble: &'static str) {
        *self.troubles.entry(trouble).or_default() += 1;
    }

    fn pick_step(&mut self) -> i64 {
        STEPS_MS[self.random.usize(..STEPS_MS.len())]
    }

    /// Most often the next server is there at once. Now and then it takes so long that leases end
    /// meanwhile.
    fn stay_down(&mut self, end: LifeEnd) -> Result<(), String> {
        if self.plan.has(Trouble::Clocks) && self.random.u8(..8) == 0 {
            // Not forward: that cannot be told from time that has passed.
            self.site.clock_ahead_ms -= self.pick_step();
            self.note("steps of the clock while no server ran");
        }
        if self.plan.has(Trouble::Repairs) && end == LifeEnd::Killed && self.random.u8(..6) == 0 {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH);
            let unix_ms = unix.unwrap_or_default().as_millis() as u64;
            let now_unix_ms = unix_ms.saturating_add_signed(self.site.clock_ahead_ms);
            if damage_and_repair(&self.site.data_dir, now_unix_ms)? {
                self.note("repairs of a damaged log");
            }
        }
        let pause = match self.random.u8(..10) {
            0 => self.random.u64(300..1_200),
            _ => self.random.u64(..50),
        };
        std::thread::sleep(Duration::from_millis(pause));
        Ok(())
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

    /// Waits until a client was granted a lock in this life. Without that, a grace period would
    /// keep every life but the first from granting anything.
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
        let ended = recorder.now();
        match end {
            LifeEnd::Killed => self.server.kill()?,
            LifeEnd::Stopped => self.server.stop()?,
        }
        recorder.lived(Life {
            ready: self.ready,
            ended,
            gone: recorder.now(),
            end,
        });
        Ok(())
    }
}
