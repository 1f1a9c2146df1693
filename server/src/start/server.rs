//! Starting and stopping: one thread per core, each with its own runtime, listener, mail and wheels.

use crate::config::{Config, Durability};
use crate::conn::auth::TokenChange;
use crate::conn::listener;
use crate::conn::stopping::{self, Signals, Wish};
use crate::core::Core;
use crate::core::pauses::{Pause, PauseHook};
use crate::core::shared::{AdmissionHook, Shared};
use crate::core::wakeup::{SyncHook, Wakeup};
use crate::native;
use crate::observe::audit;
use crate::observe::http::Http;
use crate::redis;
use crate::start::notify::Notifier;
use crate::start::open_files;
use crate::start::pinning;
use crate::start::prefault::Stocker;
use crate::start::preflight::{Preflight, Purpose, preflight};
use crate::start::start_error::StartError;
use crate::storage::{Keeper, Upkeep};
use crate::system::panics::{self, OnPanic};
use engine::{Seat, SessionId};
use hashbrown::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use wal::Disk;

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
    upkeep: Option<Upkeep>,
    stocker: Option<Stocker>,
    audit: Option<audit::Writer>,
    /// The log has been closed, or there is none.
    is_closed: bool,
}

/// Puts the settings of an embedded server together.
#[derive(Clone, Default)]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) disk: Option<Arc<dyn Disk>>,
    pub(crate) snapshot_log_bytes: Option<u64>,
    pub(crate) late_acks: Option<SyncHook>,
    pub(crate) on_panic: OnPanic,
    pub(crate) on_admission: Option<AdmissionHook>,
    pub(crate) on_pause: Option<PauseHook>,
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

    /// For tests of what two cores do at once: called by a core's thread between two of its steps.
    #[doc(hidden)]
    pub fn on_pause(mut self, hook: impl Fn(Pause) + Send + Sync + 'static) -> Self {
        self.on_pause = Some(Arc::new(hook));
        self
    }

    /// Calls this between a sync of the log and the cores that hear of it, so that replies leave late. For tests.
    #[doc(hidden)]
    pub fn late_acks(mut self, wait: impl Fn() + Send + Sync + 'static) -> Self {
        self.late_acks = Some(Arc::new(wait));
        self
    }

    /// Changes any other setting.
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts the server. When this returns, clients can connect. When it fails, the data directory
    /// is as it was, unless the disk itself failed.
    pub fn start(self) -> Result<Server, StartError> {
        Server::start(self)
    }

    /// Does everything that a start does up to its first write, and lets go of it all: whether a
    /// server could start now.
    pub fn check(self) -> Result<(), StartError> {
        preflight(self, Purpose::Check).map(drop)
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
        let Preflight {
            mut shared,
            posts,
            opening,
            alarm,
            mut restored,
            audit,
            listeners,
            mut redis_listeners,
            http_listener,
            threads,
            late_acks,
        } = preflight(builder, Purpose::Start)?;
        let local_addr = listeners[0].local_addr().map_err(StartError::System)?;
        // The first write. What still fails from here on is the disk itself.
        if let Some(opening) = opening {
            let shards = shared.engine.shard_count();
            let storage = opening
                .start(Wakeup { posts, late_acks }, shards, restored.latest_end)
                .map_err(StartError::Storage)?;
            shared.storage = Some(Arc::new(storage));
            shared.record_lasting();
        }
        if restored.sessions > 0 {
            tracing::info!(
                sessions = restored.sessions,
                locks = restored.locks,
                over = restored.over,
                "put back what was held at the last stop"
            );
        }
        let shared = Arc::new(shared);
        let mut server = Server {
            shared: shared.clone(),
            local_addr,
            redis_addr: redis_listeners.local_addr(),
            redis_unix: redis_listeners.unix_path(),
            threads: Vec::new(),
            http: None,
            keeper: None,
            upkeep: None,
            stocker: Some(Stocker::start(threads.stocker, shared.clone())),
            audit,
            is_closed: false,
        };
        if let Some(audit) = &mut server.audit {
            audit.begin(shared.failure.watch());
        }
        if let (Some(standby), Some(storage), Some(alarm)) =
            (threads.keeper, &shared.storage, alarm)
        {
            let keeper = Keeper::start(standby, shared.clone(), storage.clone(), alarm);
            server.keeper = Some(keeper);
        }
        if let (Some(standby), Some(storage)) = (threads.upkeep, &shared.storage) {
            let upkeep = Upkeep::start(standby, shared.clone(), storage.clone());
            server.upkeep = Some(upkeep);
        }
        let cores = listeners.into_iter().zip(threads.cores);
        for (id, (listener, (standby, runtime))) in cores.enumerate() {
            let shared = shared.clone();
            let doors = Doors {
                native: listener,
                redis_tcp: redis_listeners.tcp.pop(),
                redis_unix: redis_listeners.unix.pop(),
            };
            let seats = restored.seats.get_mut(id).map(std::mem::take);
            let seats = seats.unwrap_or_default();
            let thread = standby.begin(move || run_core(id, &runtime, shared, doors, seats));
            server.threads.push(thread);
        }
        if let (Some(thread), Some(listener)) = (threads.http, http_listener) {
            server.http = Some(Http::start(thread, listener, shared));
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

    /// Reads the file of tokens again and opens the audit log again, under the names they had at
    /// the start; all other settings stay. Logs what changed. What cannot be read or opened stays
    /// as it was.
    ///
    /// A token that is gone opens no new connection. Those it opened before go on until they close:
    /// a rotation of tokens is no reason to lose locks.
    pub fn reload(&self) {
        let tokens = self.shared.config.auth_token_file.as_deref();
        if let Some(path) = tokens {
            let file = path.display();
            match self.shared.tokens.reload(path) {
                Ok(TokenChange {
                    added,
                    removed,
                    count,
                }) => tracing::info!(
                    added,
                    removed,
                    count,
                    "tokens read again from {file}; connections that are open go on"
                ),
                Err(error) => {
                    tracing::error!("the tokens stay as they were: {error}");
                }
            }
        }
        if let Some(audit) = &self.audit {
            match audit.reopen() {
                Ok(path) => tracing::info!("audit log opened again: {}", path.display()),
                Err(error) => {
                    let path = audit.path().display();
                    tracing::error!(
                        "the audit log goes on in the file it has: cannot open {path} again: {error}"
                    );
                }
            }
        }
        if tokens.is_none() && self.audit.is_none() {
            tracing::info!(
                "nothing to reload: there is neither auth_token_file nor audit_log; other settings need a restart"
            );
        }
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
        self.upkeep = None;
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

/// Whether a server could start now with these settings: ports, tokens, audit log, data directory,
/// limits and room on the disk. Nothing is changed.
pub fn check(config: Config) -> Result<(), StartError> {
    Server::builder().config(config).check()
}

/// Runs a server until it is told to stop by SIGTERM or SIGINT. A second signal ends it at once.
/// SIGHUP has it [reload](Server::reload).
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
    while runtime.block_on(signals.next()) == Wish::Reload {
        server.reload();
    }
    tracing::info!("stopping; a second signal ends it at once");
    notifier.stopping();
    runtime.spawn(async move {
        // A server that stops has nothing to reload.
        while signals.next().await == Wish::Reload {}
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

fn run_core(
    id: usize,
    runtime: &Runtime,
    shared: Arc<Shared>,
    doors: Doors,
    seats: HashMap<SessionId, Seat>,
) {
    let _watch = shared.failure.watch();
    if shared.config.pin
        && let Err(error) = pinning::pin(id)
    {
        tracing::warn!("core {id} goes where the system puts it: {error}");
    }
    let local = LocalSet::new();
    local.block_on(runtime, async move {
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
            result = listener::accept(core.clone(), doors.native, native::serve) => {
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
