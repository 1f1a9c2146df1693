//! Starting and stopping: one thread per core, each with its own runtime, listener, mail and wheels.

use crate::audit;
use crate::auth::Tokens;
use crate::clock::Clock;
use crate::config::{Config, Durability};
use crate::core::Core;
use crate::host::{Post, Switchboard};
use crate::http::{self, Http};
use crate::metrics::Metrics;
use crate::net::listener;
use crate::net::places::Places;
use crate::net::stopping::{self, Signals};
use crate::notices::Notices;
use crate::notify::Notifier;
use crate::open_files;
use crate::panics::{self, Failure, OnPanic};
use crate::pinning;
use crate::redis;
use crate::secret::SessionKeys;
use crate::shared::{AdmissionHook, Shared};
use crate::start_error::StartError;
use crate::stock::Stocker;
use crate::storage::{self, Alarm, Keeper, Opening, Recovery, Restored};
use crate::wal::Disk;
use engine::{Engine, Fence, Seat, SessionId, Settings};
use hashbrown::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

/// As a shell reports a program that an interrupt ended.
const EXIT_AT_SECOND_SIGNAL: i32 = 130;

/// A running server. Dropping it stops it.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    local_addr: SocketAddr,
    redis_addr: Option<SocketAddr>,
    /// Removed at the end.
    redis_unix: Option<PathBuf>,
    threads: Vec<JoinHandle<()>>,
    http: Option<Http>,
    keeper: Option<Keeper>,
    stocker: Option<Stocker>,
    audit: Option<audit::Writer>,
    /// The log has been closed, or there is none.
    is_closed: bool,
}

/// Puts the settings of an embedded server together.
#[derive(Clone, Default)]
pub struct Builder {
    config: Config,
    disk: Option<Arc<dyn Disk>>,
    snapshot_log_bytes: Option<u64>,
    on_panic: OnPanic,
    on_admission: Option<AdmissionHook>,
}

impl Builder {
    /// Starts from these settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Where clients connect. Port 0 takes a free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.config.listen = address;
        self
    }

    /// Where metrics, health and the read-only view are served over HTTP. Port 0 takes a free one.
    pub fn http(mut self, address: SocketAddr) -> Self {
        self.config.http = Some(address);
        self
    }

    /// Serves no HTTP.
    pub fn http_off(mut self) -> Self {
        self.config.http = None;
        self
    }

    /// How many I/O threads; 0 is one per core.
    pub fn threads(mut self, threads: u32) -> Self {
        self.config.threads = threads;
        self
    }

    /// Keeps the log on this disk, which should be in the data directory. For those who want to see what happens when a
    /// disk fails.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Writes a snapshot whenever the log has grown by so much. For those who want to see many of them.
    pub fn snapshot_every(mut self, log_bytes: u64) -> Self {
        self.snapshot_log_bytes = Some(log_bytes);
        self
    }

    /// What becomes of the server if one of its threads panics. Unless told otherwise it stops
    /// serving, and the program that it is part of goes on; [`Server::failure`] says what happened.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// For tests of what a panic does: called by a core's thread for every connection that it lets
    /// in.
    #[doc(hidden)]
    pub fn on_admission(mut self, hook: Arc<dyn Fn() + Send + Sync>) -> Self {
        self.on_admission = Some(hook);
        self
    }

    /// Changes any other setting.
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts the server. When this returns, clients can connect.
    pub fn start(self) -> Result<Server, StartError> {
        Server::start(self)
    }
}

impl Server {
    /// An embedded server with the default settings, except that it takes a free port, serves no HTTP and writes nothing to
    /// disk.
    pub fn builder() -> Builder {
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            http: None,
            durability: Durability::None,
            ..Config::default()
        };
        Builder {
            config,
            ..Builder::default()
        }
    }

    fn start(builder: Builder) -> Result<Server, StartError> {
        let Builder {
            config,
            disk,
            snapshot_log_bytes,
            on_panic,
            on_admission,
        } = builder;
        config.check().map_err(StartError::Setting)?;
        let tokens = match &config.auth_token_file {
            Some(path) => Tokens::from_file(path).map_err(StartError::Auth)?,
            None => Tokens::none(),
        };
        open_files::check(&config);
        let stop = CancellationToken::new();
        let failure = Failure::new(on_panic, stop.clone());
        let core_count = config.thread_count() as usize;
        let cannot_listen = |address| move |error| StartError::Listen { address, error };
        let listeners =
            listener::bind_all(config.listen, core_count).map_err(cannot_listen(config.listen))?;
        let local_addr = listeners[0].local_addr().map_err(StartError::System)?;
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
        let clock = Clock::start();
        let opening = Opening::read(&config, disk, snapshot_log_bytes, clock_floor())
            .map_err(StartError::Storage)?;
        let audit = match &config.audit_log {
            Some(path) => Some(audit::Writer::start(path, clock, failure.watch()).map_err(
                |error| {
                    let path = path.clone();
                    StartError::Audit { path, error }
                },
            )?),
            None => None,
        };
        let mut settings = engine_settings(&config, clock);
        let posts: Arc<[Post]> = (0..core_count).map(|_| Post::new()).collect();
        let mut alarm = None;
        let (mut storage, mut found, mut recovery) = (None, None, Recovery::default());
        let mut keys = SessionKeys::fleeting();
        if let Some(mut opening) = opening {
            settings.floor = opening.floor;
            settings.ceiling = opening.ceiling();
            settings.keys_expected = opening.locks();
            let until = clock.now().plus_ms(opening.grace.as_millis() as u64);
            let until = (!opening.grace.is_zero()).then_some(until);
            std::mem::swap(&mut keys, &mut opening.keys);
            let (opened, recovered, now_unix_ms) = opening
                .start(posts.clone(), settings.shards, clock)
                .map_err(StartError::Storage)?;
            recovery = Recovery::new(until, recovered.horizon_unix_ms);
            storage = Some(Arc::new(opened));
            alarm = Some(Arc::new(Alarm::new(settings.shards)));
            found = Some((recovered, now_unix_ms));
        }
        let audit_events = audit.as_ref().map(audit::Writer::audit);
        let switchboard = Switchboard::new(posts, audit_events, alarm.clone());
        let shared = Arc::new(Shared {
            engine: Engine::new(settings, switchboard),
            clock,
            tokens,
            keys,
            storage,
            recovery,
            redis: OnceLock::new(),
            stocker: OnceLock::new(),
            metrics: Metrics::new(core_count),
            core_count,
            places: Places::new(config.connections_max as usize),
            notices: Notices::default(),
            failure,
            on_admission,
            started_unix_ms: since_epoch().as_millis() as u64,
            stop,
            config,
        });
        let mut restored = Restored::default();
        if let Some((recovered, now_unix_ms)) = found {
            restored =
                storage::restore(&shared, &recovered, now_unix_ms).map_err(StartError::Restore)?;
            if !recovered.sessions.is_empty() {
                tracing::info!(
                    sessions = restored.sessions,
                    locks = restored.locks,
                    over = restored.over,
                    "put back what was held at the last stop"
                );
            }
        }
        if let Some(storage) = &shared.storage {
            storage
                .begin(restored.latest_end)
                .map_err(StartError::Storage)?;
        }
        let redis_addr = redis_listeners.local_addr();
        let redis_unix = redis_listeners.unix_path();
        if redis_addr.is_some() || redis_unix.is_some() {
            shared.open_redis().map_err(StartError::Restore)?;
        }
        let mut server = Server {
            shared: shared.clone(),
            local_addr,
            redis_addr,
            redis_unix,
            threads: Vec::new(),
            http: None,
            keeper: None,
            stocker: None,
            audit,
            is_closed: false,
        };
        if let (Some(storage), Some(alarm)) = (&shared.storage, alarm) {
            let keeper = Keeper::start(shared.clone(), storage.clone(), alarm);
            server.keeper = Some(keeper.map_err(StartError::System)?);
        }
        let stocker = Stocker::start(shared.clone()).map_err(StartError::System)?;
        server.stocker = Some(stocker);
        for (id, listener) in listeners.into_iter().enumerate() {
            let shared = shared.clone();
            let doors = Doors {
                native: listener,
                redis_tcp: redis_listeners.tcp.pop(),
                redis_unix: redis_listeners.unix.pop(),
            };
            let seats = restored.seats.get_mut(id).map(std::mem::take);
            let thread = std::thread::Builder::new()
                .name(format!("core-{id}"))
                .spawn(move || run_core(id, shared, doors, seats.unwrap_or_default()))
                .map_err(StartError::System)?;
            server.threads.push(thread);
        }
        if let Some(listener) = http_listener {
            server.http = Some(Http::start(listener, shared).map_err(StartError::System)?);
        }
        Ok(server)
    }

    /// Where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where clients of Redis connect, if they can.
    pub fn redis_addr(&self) -> Option<SocketAddr> {
        self.redis_addr
    }

    /// Where HTTP is served, if it is.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
    }

    /// How many connections each core has accepted: whether the kernel spreads them well.
    pub fn connections_per_core(&self) -> Vec<u64> {
        (0..self.shared.core_count)
            .map(|core| self.shared.metrics.core(core).connections_opened.get())
            .collect()
    }

    /// Why the server has stopped by itself: the name of the thread that panicked. `None`: it has
    /// not.
    pub fn failure(&self) -> Option<&str> {
        self.shared.failure.thread()
    }

    /// Stops: no new connections, what is in flight is answered, waiters are told, everything is written. Returns when it
    /// is done, after the grace period of the settings at the latest.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.shared.stop.cancel();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a core ended with a panic");
            }
        }
        if let Some(path) = self.redis_unix.take()
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!("cannot remove the socket {}: {error}", path.display());
        }
        // Until here it has told whoever asked that the server stops.
        self.http = None;
        self.keeper = None;
        self.stocker = None;
        // And now nobody is left who could do anything worth writing down.
        self.audit = None;
        if let Some(storage) = &self.shared.storage
            && !self.is_closed
        {
            self.is_closed = true;
            if let Some(thread) = self.failure() {
                // What is in memory may be wrong. The next start goes by the log, as after a crash.
                return tracing::error!(
                    thread,
                    "the server had stopped because a thread panicked: the log is not closed in good order"
                );
            }
            if let Err(error) = storage.close(&self.shared) {
                tracing::error!("the log was not closed in good order: {error}");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a server until it is told to stop by SIGTERM or SIGINT. A second signal ends it at once.
pub fn run(config: Config) -> Result<(), StartError> {
    run_with(Server::builder().config(config))
}

/// As [`run`], for a server that was put together in another way.
pub fn run_with(builder: Builder) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::System)?;
    let entered = runtime.enter();
    let mut signals = Signals::catch().map_err(StartError::System)?;
    drop(entered);
    let notifier = Notifier::from_environment();
    panics::end_process_on_panic();
    open_files::raise();
    let server = builder.on_panic(OnPanic::EndProcess).start()?;
    if let Some(address) = server.http_addr() {
        tracing::info!(%address, "metrics, health and locks over HTTP");
    }
    if let Some(address) = server.redis_addr() {
        tracing::info!(%address, "clients of Redis");
    }
    if let Some(path) = &server.redis_unix {
        tracing::info!(path = %path.display(), "clients of Redis over a Unix socket");
    }
    tracing::info!(address = %server.local_addr(), cores = server.shared.core_count, "ready");
    notifier.ready();
    runtime.block_on(signals.next());
    tracing::info!("stopping; a second signal ends it at once");
    notifier.stopping();
    runtime.spawn(async move {
        signals.next().await;
        std::process::exit(EXIT_AT_SECOND_SIGNAL);
    });
    // On another thread, so that this one can hear the second signal.
    let stopped = runtime.spawn_blocking(move || server.shutdown());
    if runtime.block_on(stopped).is_err() {
        tracing::error!("the shutdown ended with a panic");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Where one core lets clients in.
struct Doors {
    native: std::net::TcpListener,
    redis_tcp: Option<std::net::TcpListener>,
    redis_unix: Option<std::os::unix::net::UnixListener>,
}

fn run_core(id: usize, shared: Arc<Shared>, doors: Doors, seats: HashMap<SessionId, Seat>) {
    let _watch = shared.failure.watch();
    if shared.config.pin
        && let Err(error) = pinning::pin(id)
    {
        tracing::warn!("core {id} goes where the system puts it: {error}");
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!("core {id} has no runtime: {error}"),
    };
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let core = Core::new(id, shared.clone(), seats);
        spawn_watched(&shared, core.clone().take_mail());
        spawn_watched(&shared, core.clone().turn_wheels());
        if !shared.config.spin.is_zero() {
            spawn_watched(&shared, core.clone().stay_awake());
        }
        if let Some(listener) = doors.redis_tcp {
            let accepting = redis::accept_tcp(core.clone(), listener);
            spawn_accepting(&shared, id, accepting);
        }
        if let Some(listener) = doors.redis_unix {
            let accepting = redis::accept_unix(core.clone(), listener);
            spawn_accepting(&shared, id, accepting);
        }
        tokio::select! {
            result = listener::accept(core.clone(), doors.native) => {
                if let Err(error) = result {
                    tracing::error!("core {id} cannot accept connections: {error}");
                }
            }
            () = shared.stop.cancelled() => {}
        }
        stopping::drain(&core).await;
    });
}

/// Runs a task of a core that must not end by a panic unnoticed.
fn spawn_watched(shared: &Arc<Shared>, task: impl Future<Output = ()> + 'static) {
    let watch = shared.failure.watch();
    tokio::task::spawn_local(async move {
        let _watch = watch;
        task.await;
    });
}

/// Lets clients of Redis in until the server stops.
fn spawn_accepting(
    shared: &Arc<Shared>,
    core: usize,
    accepting: impl Future<Output = io::Result<()>> + 'static,
) {
    let stop = shared.stop.clone();
    spawn_watched(shared, async move {
        if let Some(Err(error)) = stop.run_until_cancelled(accepting).await {
            tracing::error!("core {core} cannot accept clients of Redis: {error}");
        }
    });
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Where fences begin when nothing is on disk: they stay monotonic by the clock. A million a second, for two hundred years.
/// Not only whole seconds count, or a server that is back within one would issue the same fences again.
fn clock_floor() -> Fence {
    let floor = (since_epoch().as_nanos() << 20) / 1_000_000_000;
    Fence::new(floor as u64).unwrap_or(Fence::ZERO)
}

fn engine_settings(config: &Config, clock: Clock) -> Settings {
    Settings {
        shards: config.shard_count() as usize,
        keys_max: config.keys_max,
        keys_expected: 0,
        sessions_max: config.sessions_max,
        waiters_per_key_max: config.waiters_per_key_max,
        waiters_max: config.waiters_max,
        shared_holders_max: config.shared_holders_max,
        bytes_max: config.bytes_max,
        idle_ms: config.idle.as_millis() as u64,
        // A core that paused would keep the holder's release waiting, too.
        pauses_before_refusal: 0,
        floor: clock_floor(),
        ceiling: Fence::MAX,
        hash_seed: None,
        now: clock.now(),
    }
}
