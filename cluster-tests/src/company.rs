//! All clients of a run: two processes of them, some of the Redis port, the prober, keepers and
//! meter, and perhaps a line for one key, or more load.

use crate::keepers::{Keepers, Seen};
use crate::line::{Line, Served};
use crate::load::{Latencies, Load};
use crate::nodes::Nodes;
use crash_tests::clients::Clients;
use crash_tests::crowd::Crowd;
use crash_tests::history::{History, Recorder};
use crash_tests::prober;
use crash_tests::redis::RedisWorker;
use crash_tests::worker::Shared;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const CLIENT_PROCESS_COUNT: usize = 2;
const REDIS_CLIENT_COUNT: usize = 3;
/// Outlives a failover on a busy machine, so that the session is there to try again what it gave
/// back.
const PROBER_TTL_MS: u32 = 8_000;

/// Which clients a run has besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// None.
    None,
    /// Many more stand in line for one key.
    Line,
    /// Some take and release locks at a steady rate.
    Load,
}

/// The clients of a run, at work.
pub struct Company {
    shared: Arc<Shared>,
    clients: Vec<Clients>,
    threads: Vec<JoinHandle<()>>,
    keepers: Option<Keepers>,
    line: Option<Line>,
    load: Option<Load>,
    /// What keepers and meter see.
    pub seen: Arc<Seen>,
}

/// What the clients saw.
pub struct Told {
    /// Grants, sightings, losses.
    pub history: History,
    /// Failures that they met, which is nothing bad by itself.
    pub failures: BTreeMap<String, u64>,
}

impl Company {
    /// Connects all of them.
    pub fn gather(
        nodes: &Nodes,
        extra: Extra,
        recorder: &Arc<Recorder>,
        client_program: &Path,
        random: &mut fastrand::Rng,
    ) -> Result<Company, String> {
        let shared = Arc::new(Shared {
            recorder: recorder.clone(),
            stop: AtomicBool::new(false),
            failures: Mutex::default(),
        });
        let addresses = nodes.addresses();
        let clients: Result<Vec<Clients>, String> = (0..CLIENT_PROCESS_COUNT)
            .map(|process| {
                let crowd = Crowd {
                    address: addresses.join(","),
                    process,
                    seed: random.u64(..),
                    start_ns: recorder.start_clock().as_nanos() as u64,
                };
                Clients::start(client_program, &crowd, &shared)
            })
            .collect();
        let clients = clients?;
        let keepers = Keepers::start(&addresses, &shared, random.u64(..))?;
        let line = match extra {
            Extra::Line => Some(Line::start(&addresses, &shared)?),
            _ => None,
        };
        let load = match extra {
            Extra::Load => Some(Load::start(&addresses, &shared)?),
            _ => None,
        };
        let mut threads = Vec::new();
        threads.push(std::thread::spawn({
            let shared = shared.clone();
            let addresses: Vec<_> = addresses
                .iter()
                .map(|address| address.parse().expect("made of digits"))
                .collect();
            move || prober::run(&shared, &addresses, true, PROBER_TTL_MS)
        }));
        for number in 0..REDIS_CLIENT_COUNT {
            let worker = RedisWorker {
                addresses: nodes.redis_addresses(),
                name: format!("redis-{number}").into(),
                leases_survive: true,
                random: random.fork(),
            };
            let shared = shared.clone();
            threads.push(std::thread::spawn(move || worker.run(&shared)));
        }
        Ok(Company {
            shared,
            clients,
            threads,
            seen: keepers.seen.clone(),
            keepers: Some(keepers),
            line,
            load,
        })
    }

    /// What the clients in line see, if there is a line.
    pub fn served(&self) -> Option<Arc<Served>> {
        self.line.as_ref().map(|line| line.served.clone())
    }

    /// How long the acquires of the load take, if there is one.
    pub fn latencies(&self) -> Option<Arc<Latencies>> {
        self.load.as_ref().map(|load| load.latencies.clone())
    }

    /// Has all come to an end, and returns what they were told.
    pub fn disperse(mut self) -> Result<Told, String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for process in &mut self.clients {
            process.wind_up()?;
        }
        std::mem::take(&mut self.clients)
            .into_iter()
            .try_for_each(Clients::end)?;
        self.keepers.take().expect("it is taken once").end()?;
        self.line.take().map_or(Ok(()), Line::end)?;
        self.load.take().map_or(Ok(()), Load::end)?;
        for thread in std::mem::take(&mut self.threads) {
            let ended = thread.join();
            ended.map_err(|_| "a client of the harness panicked".to_owned())?;
        }
        let failures = std::mem::take(&mut *self.shared.failures.lock());
        Ok(Told {
            history: self.shared.recorder.history(),
            failures,
        })
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}
