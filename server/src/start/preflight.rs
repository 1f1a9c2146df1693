//! Everything about a start that can fail, before anything is changed.
//!
//! A start that fails must leave the log as it was: above all, a clean stop stays one, or the next
//! start would have forgotten every lease and would grant nothing for a while. So [`preflight`]
//! reads, binds, opens and puts back all there is, and gets every thread from the system; the first
//! write comes after it, in `Server::start`. `--check-config` does the same and then lets go of it
//! all, so whatever passes there can start, and nothing is left behind by it.

use super::builder::Builder;
use super::open_files;
use super::start_error::StartError;
use crate::config::{Config, Durability};
use crate::conn::places::Places;
use crate::conn::secure::Certificates;
use crate::core::losses::Losses;
use crate::core::mail::Post;
use crate::core::shared::Shared;
use crate::core::switchboard::Switchboard;
use crate::core::wakeup::{SyncHook, Wakeup};
use crate::durability::{self, Opening, Restored};
use crate::observe::audit;
use crate::observe::metrics::Metrics;
use crate::observe::notices::Notices;
use crate::redis::{self, Port};
use crate::report::http;
use crate::rights::Rights;
use crate::serve::listener;
use crate::session::detached::Detached;
use crate::session::secret::SessionKeys;
use crate::storage::{Alarm, Recovery};
use crate::system::clock::Clock;
use crate::system::panics::Failure;
use crate::system::standby::Standby;
use cluster::founding::ADOPTED_FILE;
use engine::{Engine, Fence, Settings};
use rustix::fs::{Access, access};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// What a preflight is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A server starts.
    Start,
    /// An operator wants to know whether one would. Files that are not there are not made.
    Check,
}

/// All that a server needs and that could have been refused.
pub(super) struct Preflight {
    /// Without its storage, which begins with the first write.
    pub(super) shared: Shared,
    pub(super) posts: Arc<[Post]>,
    pub(super) opening: Option<Opening>,
    pub(super) alarm: Option<Arc<Alarm>>,
    pub(super) restored: Restored,
    pub(super) audit: Option<audit::Writer>,
    /// What the audit log says of it.
    pub(super) told: audit::Start,
    pub(super) listeners: Vec<std::net::TcpListener>,
    /// `None` unless the settings ask for the Redis port.
    pub(super) port: Option<Arc<Port>>,
    pub(super) redis_listeners: redis::Listeners,
    pub(super) http_listener: Option<(std::net::TcpListener, SocketAddr)>,
    pub(super) threads: Threads,
    pub(super) late_acks: Option<SyncHook>,
}

/// Threads that wait for their work, those with a runtime with their runtimes.
pub(crate) struct Threads {
    pub(crate) cores: Vec<(Standby, Runtime)>,
    pub(crate) http: Option<(Standby, Runtime)>,
    pub(crate) keeper: Option<Standby>,
    pub(crate) upkeep: Option<Standby>,
    pub(crate) prefaulter: Standby,
}

/// Does all that can fail.
pub(super) fn preflight(builder: Builder, purpose: Purpose) -> Result<Preflight, StartError> {
    let Builder {
        config,
        disk,
        log_sizes,
        // Of a node of a cluster only.
        reads: _,
        late_acks,
        on_panic,
        on_admission,
        on_pause,
    } = builder;
    config.check().map_err(StartError::Setting)?;
    let rights = Rights::load(&config).map_err(StartError::Auth)?;
    let certificates = Certificates::load(&config).map_err(StartError::Tls)?;
    open_files::check(&config);
    let stop = CancellationToken::new();
    let failure = Failure::new(on_panic, stop.clone());
    let core_count = config.thread_count() as usize;
    let (listeners, redis_listeners, http_listener) = bind(&config, core_count)?;
    let clock = Clock::start();
    let audit = audit_of(&config, clock, purpose)?;
    let clock_floor = clock_floor();
    let is_to_be_made = disk.is_none() && !config.data_dir.exists();
    if disk.is_none() && config.data_dir.join(ADOPTED_FILE).exists() {
        return Err(StartError::Adopted(config.data_dir));
    }
    let mut opening = match purpose {
        Purpose::Check if is_to_be_made && config.durability != Durability::None => {
            check_new_dir(&config.data_dir)?;
            None
        }
        _ => {
            let disk = disk.clone();
            Opening::read(&config, disk, log_sizes, clock_floor, clock)
                .map_err(StartError::Storage)?
        }
    };
    let mut settings = engine_settings(&config, clock, clock_floor);
    if config.durability == Durability::None {
        settings.floor = durability::floor_without_log(&config, disk.as_deref(), clock_floor)
            .map_err(StartError::Storage)?;
    }
    let posts: Arc<[Post]> = (0..core_count).map(|_| Post::new()).collect();
    let mut alarm = None;
    let mut told = audit::Start::default();
    let mut recovery = Recovery::default();
    let mut keys = SessionKeys::fleeting();
    if let Some(opening) = &mut opening {
        settings.floor = opening.floor;
        settings.ceiling = opening.ceiling();
        settings.keys_expected = opening.locks();
        settings.keys_restored = opening.locks();
        // Two more for the Redis port and detached locks.
        settings.sessions_max = settings.sessions_max.max(opening.sessions() + 2);
        let until = clock.now().plus_ms(opening.grace.as_millis() as u64);
        let until = (!opening.grace.is_zero()).then_some(until);
        told.last_stop = Some(opening.last_stop());
        told.grace_ms = opening.grace.as_millis() as u64;
        std::mem::swap(&mut keys, &mut opening.keys);
        recovery = Recovery::new(until, opening.horizon());
        alarm = Some(Arc::new(Alarm::new(settings.shards)));
    }
    let audit_events = audit.as_ref().map(audit::Writer::audit);
    let long = opening.as_ref().map(|opening| opening.long.clone());
    let switchboard = Switchboard::new(
        posts.clone(),
        Losses::new(audit_events, long),
        alarm.clone(),
    );
    let shared = Shared {
        engine: Engine::new(settings, switchboard),
        clock,
        rights: Arc::new(rights),
        certificates,
        keys,
        storage: None,
        recovery,
        detached: Detached::default(),
        prefaulter: OnceLock::new(),
        metrics: Metrics::new(core_count),
        core_count,
        places: Places::new(config.connections_max as usize),
        notices: Notices::default(),
        failure,
        on_admission,
        on_pause,
        serves_since: clock.now(),
        started_unix_ms: since_epoch().as_millis() as u64,
        stop,
        cluster: None,
        lease_max_ms: config.lease_max_ms(),
        config,
    };
    let mut restored = Restored::default();
    if let Some(opening) = &opening {
        restored = durability::restore(&shared, &opening.known()).map_err(StartError::Restore)?;
    }
    shared.engine.finish_restoring();
    shared.resume_detached().map_err(StartError::Restore)?;
    let port = match redis_listeners.is_open() {
        true => Some(Port::open(&shared).map_err(StartError::Restore)?),
        false => None,
    };
    let threads = Threads::get(core_count, http_listener.is_some(), opening.is_some())
        .map_err(StartError::System)?;
    Ok(Preflight {
        shared,
        posts,
        opening,
        alarm,
        restored,
        audit,
        told,
        listeners,
        port,
        redis_listeners,
        http_listener,
        threads,
        late_acks,
    })
}

impl Preflight {
    /// Begins the log: the first write of a start.
    pub(super) fn open_storage(&mut self) -> Result<(), StartError> {
        let Some(opening) = self.opening.take() else {
            return Ok(());
        };
        let (posts, late_acks) = (self.posts.clone(), self.late_acks.take());
        let shards = self.shared.engine.shard_count();
        let wakeup = Wakeup { posts, late_acks };
        let storage = opening.start(wakeup, shards, self.restored.latest_end);
        let storage = storage.map_err(StartError::Storage)?;
        self.shared.storage = Some(Arc::new(storage));
        let port = self.port.as_ref().map(|port| &port.space.session);
        self.shared.record_lasting(port);
        Ok(())
    }
}

pub(crate) type Listeners = (
    Vec<std::net::TcpListener>,
    redis::Listeners,
    Option<(std::net::TcpListener, SocketAddr)>,
);

/// Takes all ports.
pub(crate) fn bind(config: &Config, core_count: usize) -> Result<Listeners, StartError> {
    let cannot_listen = |address| move |error| StartError::Listen { address, error };
    let listeners =
        listener::bind_all(config.listen, core_count).map_err(cannot_listen(config.listen))?;
    let http_listener = match config.http {
        Some(address) => Some(http::bind(address).map_err(cannot_listen(address))?),
        None => None,
    };
    let mut redis_listeners = redis::Listeners::default();
    if let Some(address) = config.redis_listen {
        redis_listeners
            .bind_tcp(address, core_count)
            .map_err(cannot_listen(address))?;
    }
    if let Some(path) = &config.redis_unix {
        redis_listeners
            .bind_unix(path, core_count)
            .map_err(|error| StartError::ListenUnix {
                path: path.clone(),
                error,
            })?;
    }
    Ok((listeners, redis_listeners, http_listener))
}

/// The audit log, if there is to be one.
pub(crate) fn audit_of(
    config: &Config,
    clock: Clock,
    purpose: Purpose,
) -> Result<Option<audit::Writer>, StartError> {
    let Some(path) = &config.audit_log else {
        return Ok(None);
    };
    let rotation = audit::Rotation {
        bytes: config.audit_rotate_bytes,
        files_max: config.audit_files_max,
    };
    open_audit(path, clock, rotation, purpose).map_err(|error| {
        let path = path.clone();
        StartError::Audit { path, error }
    })
}

fn open_audit(
    path: &Path,
    clock: Clock,
    rotation: audit::Rotation,
    purpose: Purpose,
) -> io::Result<Option<audit::Writer>> {
    if purpose == Purpose::Check && !path.exists() {
        // The server that will run may be another user's, and could not write to a file of ours.
        let dir = path.parent().filter(|dir| *dir != Path::new(""));
        return writable(dir.unwrap_or(Path::new("."))).map(|()| None);
    }
    audit::Writer::prepare(path, clock, rotation).map(Some)
}

/// Whether a data directory could be made here, with room for what a server promises.
pub(crate) fn check_new_dir(dir: &Path) -> Result<(), StartError> {
    let above = nearest_dir(dir);
    let cannot_make = |error| {
        StartError::Storage(wal::WalError::Io(wal::IoFailure {
            action: "make",
            path: dir.to_owned(),
            source: Arc::new(error),
        }))
    };
    writable(&above).map_err(cannot_make)?;
    wal::check_room_for_new(dir, &above).map_err(StartError::Storage)
}

/// The nearest directory that exists, this one or above it.
fn nearest_dir(path: &Path) -> PathBuf {
    let mut above = path.ancestors().filter(|above| *above != Path::new(""));
    let found = above.find(|above| above.exists());
    found.unwrap_or(Path::new(".")).to_owned()
}

fn writable(dir: &Path) -> io::Result<()> {
    if !dir.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(access(dir, Access::WRITE_OK | Access::EXEC_OK)?)
}

impl Threads {
    pub(crate) fn get(core_count: usize, has_http: bool, has_log: bool) -> io::Result<Self> {
        let with_runtime = |name: String| -> io::Result<(Standby, Runtime)> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok((Standby::spawn(name)?, runtime))
        };
        let http = has_http.then(|| with_runtime("http".to_owned()));
        let keeper = has_log.then(|| Standby::spawn("keeper".to_owned()));
        let upkeep = has_log.then(|| Standby::spawn("upkeep".to_owned()));
        Ok(Threads {
            cores: (0..core_count)
                .map(|id| with_runtime(format!("core-{id}")))
                .collect::<io::Result<_>>()?,
            http: http.transpose()?,
            keeper: keeper.transpose()?,
            upkeep: upkeep.transpose()?,
            prefaulter: Standby::spawn("prefault".to_owned())?,
        })
    }
}

pub(crate) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Where fences begin when nothing is on disk: they stay monotonic by the clock. A million a
/// second, for two hundred years. Not only whole seconds count, or a server that is back within one
/// would issue the same fences again.
pub(crate) fn clock_floor() -> Fence {
    let floor = (since_epoch().as_nanos() << 20) / 1_000_000_000;
    Fence::granted(floor as u64).unwrap_or(Fence::ZERO)
}

pub(crate) fn engine_settings(config: &Config, clock: Clock, floor: Fence) -> Settings {
    Settings {
        shards: config.shard_count() as usize,
        keys_max: config.keys_max,
        keys_expected: 0,
        keys_restored: 0,
        sessions_max: config.sessions_max,
        waiters_per_key_max: config.waiters_per_key_max,
        waiters_max: config.waiters_max,
        shared_holders_max: config.shared_holders_max,
        bytes_max: config.bytes_max,
        idle_ms: config.idle.as_millis() as u64,
        // A core that paused would keep the holder's release waiting, too.
        pauses_before_refusal: 0,
        floor,
        ceiling: Fence::MAX,
        hash_seed: None,
        now: clock.now(),
    }
}
