//! A process of clients: this program with the argument `clients`.
//!
//! It connects its clients, lets them work, and writes what they see to its standard output, one
//! [`Event`] a line. A line `stop` on its standard input winds it up; the end of standard input
//! ends it at once.

use crate::history::{Event, Recorder};
use crate::worker::{Shared, Worker};
use clap::Args;
use fencepost::Client;
use parking_lot::Mutex;
use std::io::{self, BufWriter};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Few enough that their clients meet all the time.
const KEY_COUNT: usize = 5;
const HECTIC_KEY_COUNT: usize = 2;
const CLIENT_COUNT: usize = 3;
/// Of these, the last.
const HECTIC_CLIENT_COUNT: usize = 1;
const TASKS_PER_CLIENT: usize = 2;
/// On which all of these run.
const CLIENT_THREADS: usize = 2;

/// How long the clients may take to come to an end.
pub(crate) const WIND_UP: Duration = Duration::from_secs(30);

/// Which clients a process runs.
#[derive(Args, Clone, Debug)]
pub struct Crowd {
    /// Where the server is; of the nodes of a cluster, all, with commas between them
    #[arg(long)]
    pub address: String,
    /// Which process of clients this is
    #[arg(long)]
    pub process: usize,
    /// Choices come from this
    #[arg(long)]
    pub seed: u64,
    /// When the run began, on the monotonic clock
    #[arg(long)]
    pub start_ns: u64,
}

impl Crowd {
    /// As the arguments of a process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        vec![
            "clients".to_owned(),
            format!("--address={}", self.address),
            format!("--process={}", self.process),
            format!("--seed={}", self.seed),
            format!("--start-ns={}", self.start_ns),
        ]
    }

    /// What the names of its clients begin with.
    pub(crate) fn name(&self) -> String {
        format!("clients-{}/", self.process)
    }
}

/// Runs the clients until they are told to stop. For the child process.
pub fn run(crowd: &Crowd) -> ExitCode {
    // A process that was stopped cannot notice that its parent is gone.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match run_to_the_end(crowd) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}: {why}", crowd.name());
            ExitCode::FAILURE
        }
    }
}

fn run_to_the_end(crowd: &Crowd) -> Result<(), String> {
    let system = |error: io::Error| format!("the system refused: {error}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CLIENT_THREADS)
        .enable_all()
        .build()
        .map_err(system)?;
    let start_clock = Duration::from_nanos(crowd.start_ns);
    let out = Box::new(BufWriter::new(io::stdout()));
    let shared = Arc::new(Shared {
        recorder: Arc::new(Recorder::sending(start_clock, out).map_err(system)?),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
    });
    std::thread::spawn({
        let shared = Arc::clone(&shared);
        move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                if line == STOP {
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
            // The driver keeps it open until this process has ended.
            std::process::exit(1);
        }
    });
    let gathered = runtime.block_on(gather(crowd, &shared))?;
    shared.recorder.write(Event::Ready);
    runtime.block_on(gathered.disperse())?;
    let failures = std::mem::take(&mut *shared.failures.lock());
    shared.recorder.write(Event::Met(failures));
    Ok(())
}

/// Tells a process of clients to wind up.
pub(crate) const STOP: &str = "stop";

struct Gathered {
    clients: Vec<Client>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

async fn gather(crowd: &Crowd, shared: &Arc<Shared>) -> Result<Gathered, String> {
    let mut random = fastrand::Rng::with_seed(crowd.seed);
    let mut gathered = Gathered {
        clients: Vec::new(),
        tasks: Vec::new(),
    };
    let keys = |name, count| -> Vec<Arc<str>> {
        let names = (0..count).map(|number| format!("{name}/{number}").into());
        names.collect()
    };
    for number in 0..CLIENT_COUNT {
        let is_hectic = number >= CLIENT_COUNT - HECTIC_CLIENT_COUNT;
        let session_ttl = [900, 1_200, 1_600, 2_000][(number + crowd.process) % 4];
        let session_ttl = Duration::from_millis(session_ttl);
        let name = format!("{}{number}", crowd.name());
        let connected = Client::builder()
            .address(&crowd.address)
            .name(&name)
            .connections(1 + (number + crowd.process) % 2)
            .session_ttl(session_ttl)
            .connect_timeout(Duration::from_secs(1))
            .request_timeout(Duration::from_secs(1))
            .connect()
            .await;
        let client = connected.map_err(|error| error.to_string())?;
        for task in 0..TASKS_PER_CLIENT {
            let mut keys = match is_hectic {
                true => keys("busy", HECTIC_KEY_COUNT),
                false => keys("key", KEY_COUNT),
            };
            // Contended all the same: by the task of this number in every other client.
            let own_key = (!is_hectic).then(|| Arc::from(format!("task/{task}")));
            keys.extend(own_key.clone());
            let worker = Worker {
                shared: shared.clone(),
                keys,
                own_key,
                is_hectic,
                client: client.clone(),
                session_ttl,
                name: format!("{name}/{task}").into(),
                random: random.fork(),
            };
            gathered.tasks.push(tokio::spawn(worker.run()));
        }
        gathered.clients.push(client);
    }
    Ok(gathered)
}

impl Gathered {
    /// Waits until all have stopped, which they do when they are told to.
    async fn disperse(self) -> Result<(), String> {
        for task in self.tasks {
            let ended = task.await;
            ended.map_err(|error| format!("a client's task failed: {error}"))?;
        }
        for client in self.clients {
            // Without a goodbye the session ends by itself.
            let _ = tokio::time::timeout(WIND_UP / 6, client.close()).await;
        }
        Ok(())
    }
}
