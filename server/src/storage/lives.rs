//! A matrix of lives: whatever the mode of each server and however it ends, no key is granted
//! before every lease that was acknowledged for it has ended, and fences only rise.
//!
//! One directory, on the disk that forgets, is served by up to five servers in a row. Each has a
//! mode, clients that take, renew, claim and release locks, and an end. What clients were told is a
//! promise until its time has passed, over all lives. The disk's syncs are acknowledged late, at
//! random, so that snapshots are begun between a sync and its acknowledgement.
//!
//! `client.rs` has the clients, `witness.rs` the disk that a server is killed on while it starts.
//! `FENCEPOST_LIVES=N cargo test -p fencepost-server lives` tries N seeds instead of a few.

mod client;
mod witness;

use crate::config::{Config, Durability};
use crate::{Builder, Server};
use client::{Client, Told};
use protocol::{
    Acquire, Claim, Fence, Key, Lease, Metadata, Mode, Opening, Request, SessionKey, TraceId,
};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wal::forgetful::{Dice, ForgetfulDisk, Keep};
use wal::{Disk, Repair, SEGMENT_BYTES};
use witness::Witness;

/// Seeds that are tried unless the environment says otherwise.
const SEEDS: u64 = 16;

/// Seeds that are tried at a time.
const THREADS: u64 = 4;

const LIVES_MAX: u64 = 5;

/// How many things clients do in one life.
const STEPS: u64 = 24;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Leases longer than this are written down one by one.
const GRACE_MAX: Duration = Duration::from_secs(1);

/// On both sides of that.
const TTLS_MS: [u32; 5] = [150, 400, 900, 1_100, 2_500];

/// Of sessions: one that the horizon covers, and one that is written down.
const SESSION_TTLS_MS: [u32; 2] = [800, 60_000];

/// No lease and no session is longer, as far as `repair` is told.
const LEASE_MS_MAX: u64 = 60_000;

#[test]
fn no_key_is_granted_before_its_leases_have_ended_whatever_lives_follow_one_another() {
    let seeds = match std::env::var("FENCEPOST_LIVES") {
        Ok(seeds) => seeds.parse().expect("FENCEPOST_LIVES is a number"),
        Err(_) => SEEDS,
    };
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || {
                for seed in (first..seeds).step_by(THREADS as usize) {
                    Story::new(seed).run();
                }
            });
        }
    });
}

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// As by SIGTERM.
    Stopped,
    Killed,
    /// The machine loses its power.
    PowerCut,
    /// Killed while it starts, before it has let clients in.
    KilledAtStart,
    /// It does not start: its port is taken.
    FailedStart,
    /// Killed, its log damaged and repaired.
    Repaired,
}

/// What a client was told: it holds the key under this fence until then.
#[derive(Clone, Debug)]
struct Promise {
    key: &'static str,
    fence: u64,
    until: Instant,
    session: SessionKey,
    life: usize,
}

struct Story {
    seed: u64,
    dice: Dice,
    disk: ForgetfulDisk,
    promises: Vec<Promise>,
    /// The highest fence of each key that was told.
    fences: BTreeMap<&'static str, u64>,
    told: Vec<String>,
}

impl Story {
    fn new(seed: u64) -> Story {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        dice.roll();
        Story {
            seed,
            dice,
            disk: ForgetfulDisk::new(),
            promises: Vec::new(),
            fences: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    fn run(mut self) {
        for life in 0..2 + self.dice.below(LIVES_MAX - 1) as usize {
            self.live(life);
        }
    }

    fn live(&mut self, life: usize) {
        let durability = match self.dice.below(9) {
            0 => Durability::None,
            1..=5 => Durability::Fence,
            _ => Durability::Lease,
        };
        let grace = self.dice.below(8) > 0;
        let end = match self.dice.below(12) {
            0..=2 => End::Stopped,
            3..=6 => End::Killed,
            7 => End::PowerCut,
            8 | 9 => End::KilledAtStart,
            10 => End::FailedStart,
            _ => End::Repaired,
        };
        self.told
            .push(format!("life {life}: {durability:?} grace={grace} {end:?}"));
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            http: None,
            durability,
            grace,
            grace_max: GRACE_MAX,
            threads: 1,
            shards: 2,
            ..Config::default()
        };
        if end == End::FailedStart {
            return self.fail_to_start(config);
        }
        if end == End::KilledAtStart && durability != Durability::None {
            return self.kill_at_start(config);
        }
        if durability == Durability::None || !grace {
            // It may grant at once what is held, and says so.
            self.promises.clear();
        }
        let server = self.start(config, Arc::new(self.disk.clone()));
        self.serve(&server, life);
        if durability == Durability::None {
            // It promised for its own life only.
            self.promises.clear();
        }
        match end {
            End::Stopped => server.shutdown(),
            End::PowerCut => {
                let keep = Keep::ALL[self.dice.below(Keep::ALL.len() as u64) as usize];
                let after = self.disk.cut_power(keep, &mut self.dice);
                self.disk = after;
            }
            _ => self.disk = self.disk.kill(),
        }
        if end == End::Repaired && durability != Durability::None {
            self.damage_and_repair();
        }
    }

    fn builder(&mut self, config: Config, disk: Arc<dyn Disk>) -> Builder {
        let late = AtomicU64::new(self.dice.roll());
        let builder = Server::builder().config(config).disk(disk);
        builder.snapshot_every(1).late_acks(move || {
            let mut dice = Dice(late.fetch_add(0x9e37_79b9, Ordering::Relaxed) | 1);
            if dice.below(3) == 0 {
                std::thread::sleep(Duration::from_millis(dice.below(4)));
            }
        })
    }

    fn start(&mut self, config: Config, disk: Arc<dyn Disk>) -> Server {
        let started = self.builder(config, disk).start();
        started.unwrap_or_else(|error| panic!("{self}\nno start: {error}"))
    }

    fn fail_to_start(&mut self, config: Config) {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config {
            listen: taken.local_addr().unwrap(),
            ..config
        };
        let disk = Arc::new(self.disk.clone());
        assert!(self.builder(config, disk).start().is_err());
    }

    /// The disk as it was at some operation of a start is what is left of it.
    fn kill_at_start(&mut self, config: Config) {
        let witness = Witness {
            disk: self.disk.clone(),
            change: self.disk.changes() + self.dice.below(40),
            left: Arc::default(),
        };
        let left = witness.left.clone();
        drop(self.start(config, Arc::new(witness)));
        let left = left.lock().take();
        self.disk = left.unwrap_or_else(|| self.disk.kill());
    }

    fn damage_and_repair(&mut self) {
        let names = self.disk.names();
        let segments = names.iter().filter(|name| name.starts_with("segment"));
        let Some(name) = segments.max() else { return };
        let mut bytes = self.disk.read(name);
        bytes[20] ^= 1;
        self.disk.tamper(name, bytes);
        let wish = Repair {
            accept_loss: true,
            now_unix_ms: super::unix_now_ms(),
            lease_ms_max: LEASE_MS_MAX,
        };
        let repaired = wal::repair_on(Arc::new(self.disk.clone()), SEGMENT_BYTES, &wish);
        repaired.unwrap_or_else(|error| panic!("{self}\nno repair: {error}"));
    }

    /// Clients come back, take, renew and release. A lock that is granted must be
    /// promised to no other client.
    fn serve(&mut self, server: &Server, life: usize) {
        let address = server.local_addr();
        let mut clients = Vec::new();
        self.promises
            .retain(|promise| promise.until > Instant::now());
        let mut sessions: Vec<SessionKey> = Vec::new();
        for promise in &self.promises {
            if !sessions.iter().any(|session| session == &promise.session) {
                sessions.push(promise.session);
            }
        }
        for session in sessions {
            if self.dice.flip() {
                clients.push(self.come_back(address, session, life));
            }
        }
        for ttl_ms in SESSION_TTLS_MS {
            clients.push(Client::open(self.seed, address, Opening::New, ttl_ms));
        }
        for _ in 0..STEPS {
            let number = self.dice.below(clients.len() as u64) as usize;
            let client = &mut clients[number];
            client.keep_alive();
            match self.dice.below(8) {
                0..=4 => self.acquire(client, life),
                5 => self.renew(client, life),
                _ => self.release(client),
            }
        }
        if self.dice.flip() {
            // One more is under way when the server ends. It is never answered, so it promises
            // nothing.
            let client = &mut clients[0];
            client.send(&acquire(KEYS[0], Lease::Ttl { ttl_ms: 400 }));
        }
    }

    /// Resumes a session and claims what it was promised and is still its own by its own clock.
    fn come_back(&mut self, address: SocketAddr, session: SessionKey, life: usize) -> Client {
        let mut client = Client::open(
            self.seed,
            address,
            Opening::Resume(session),
            SESSION_TTLS_MS[1],
        );
        if !client.is_resumed {
            // It knows that its session is over; the promises stand until their time has passed.
            return client;
        }
        let now = Instant::now();
        let own = |promise: &&Promise| promise.session == session && promise.until > now;
        let own: Vec<Promise> = self.promises.iter().filter(own).cloned().collect();
        for promise in own {
            let sent = Instant::now();
            let claim = Request::Claim(Claim {
                key: wire_key(promise.key),
                fence: wire_fence(promise.fence),
                mode: Mode::Exclusive,
                lease: Lease::Ttl { ttl_ms: 400 },
                hold_count: 1,
                metadata: Metadata::default(),
                trace_id: TraceId::default(),
            });
            if let Told::Granted { fence, ttl_ms } = client.ask(&claim) {
                assert_eq!(fence, promise.fence, "{self}\na claim changed a fence");
                self.promise(&client, promise.key, fence, sent, ttl_ms, life);
            }
        }
        client
    }

    fn acquire(&mut self, client: &mut Client, life: usize) {
        let key = KEYS[self.dice.below(KEYS.len() as u64) as usize];
        let ttl_ms = TTLS_MS[self.dice.below(TTLS_MS.len() as u64) as usize];
        let lease = match self.dice.below(4) {
            0 => Lease::Session,
            _ => Lease::Ttl { ttl_ms },
        };
        let sent = Instant::now();
        let Told::Granted { fence, ttl_ms } = client.ask(&acquire(key, lease)) else {
            return;
        };
        let heard = Instant::now();
        if let Some(held) = self
            .promises
            .iter()
            .find(|promise| promise.key == key && promise.until > heard)
        {
            let early = held.until - heard;
            panic!(
                "{self}\nlife {life}: {key} #{fence} is granted {early:?} before the end of #{}, \
                 acknowledged in life {}",
                held.fence, held.life
            );
        }
        let highest = self.fences.insert(key, fence).unwrap_or(0);
        assert!(
            fence > highest,
            "{self}\nlife {life}: {key} #{fence} after #{highest}"
        );
        self.promise(client, key, fence, sent, ttl_ms, life);
    }

    fn promise(
        &mut self,
        client: &Client,
        key: &'static str,
        fence: u64,
        sent: Instant,
        ttl_ms: u32,
        life: usize,
    ) {
        // No lock outlives its session.
        let until = (sent + Duration::from_millis(ttl_ms.into())).min(client.kept_until);
        self.promises
            .retain(|promise| promise.key != key || promise.fence != fence);
        self.promises.push(Promise {
            key,
            fence,
            until,
            session: client.session,
            life,
        });
    }

    fn own(&mut self, client: &Client) -> Option<Promise> {
        let now = Instant::now();
        let own = |promise: &&Promise| promise.session == client.session && promise.until > now;
        let own: Vec<&Promise> = self.promises.iter().filter(own).collect();
        let count = own.len() as u64;
        (count > 0).then(|| own[self.dice.below(count) as usize].clone())
    }

    fn renew(&mut self, client: &mut Client, life: usize) {
        let Some(own) = self.own(client) else { return };
        let ttl_ms = TTLS_MS[self.dice.below(TTLS_MS.len() as u64) as usize];
        let sent = Instant::now();
        let renew = Request::Renew {
            key: wire_key(own.key),
            fence: wire_fence(own.fence),
            lease: Lease::Ttl { ttl_ms },
        };
        if let Told::Renewed { ttl_ms } = client.ask(&renew) {
            self.promise(client, own.key, own.fence, sent, ttl_ms, life);
        }
    }

    fn release(&mut self, client: &mut Client) {
        let Some(own) = self.own(client) else { return };
        let release = Request::Release {
            key: wire_key(own.key),
            fence: wire_fence(own.fence),
        };
        if client.ask(&release) == Told::Released {
            self.promises
                .retain(|promise| promise.key != own.key || promise.fence != own.fence);
        }
    }
}

impl std::fmt::Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.told.join("; "))
    }
}

fn acquire(key: &'static str, lease: Lease) -> Request<'static> {
    Request::Acquire(Acquire::exclusive(wire_key(key), lease))
}

fn wire_key(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).expect("a key")
}

fn wire_fence(fence: u64) -> Fence {
    Fence::new(fence).expect("a fence")
}
