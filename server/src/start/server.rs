//! Starting and stopping: one thread per core, each with its own runtime, listener, mail and
//! wheels.

use super::builder::Builder;
use super::cores::{Doors, RedisDoors, run_core};
use super::prefault::Prefaulter;
use super::preflight::{Purpose, preflight};
use super::start_error::StartError;
use crate::config::{Config, Durability};
use crate::conn::auth::TokenChange;
use crate::core::shared::Shared;
use crate::observe::audit;
use crate::observe::http::Http;
use crate::storage::{Keeper, Upkeep};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

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
    prefaulter: Option<Prefaulter>,
    audit: Option<audit::Writer>,
    /// The log has been closed, or there is none.
    is_closed: bool,
}

impl Builder {
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
    /// An embedded server with the default settings, except that it takes a free port, serves no
    /// HTTP and writes nothing to disk.
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
        let mut ready = preflight(builder, Purpose::Start)?;
        let local_addr = ready.listeners[0].local_addr();
        let local_addr = local_addr.map_err(StartError::System)?;
        // The first write. What still fails from here on is the disk itself.
        ready.open_storage()?;
        let restored = &ready.restored;
        if restored.sessions > 0 {
            tracing::info!(
                sessions = restored.sessions,
                locks = restored.locks,
                over = restored.over,
                "put back what was held at the last stop"
            );
        }
        let shared = Arc::new(ready.shared);
        let threads = ready.threads;
        let mut server = Server {
            shared: shared.clone(),
            local_addr,
            redis_addr: ready.redis_listeners.local_addr(),
            redis_unix: ready.redis_listeners.unix_path(),
            threads: Vec::new(),
            http: None,
            keeper: None,
            upkeep: None,
            prefaulter: Some(Prefaulter::start(threads.prefaulter, shared.clone())),
            audit: ready.audit,
            is_closed: false,
        };
        if let Some(audit) = &mut server.audit {
            audit.begin(shared.failure.watch());
        }
        if let Some(storage) = &shared.storage {
            if let (Some(standby), Some(alarm)) = (threads.keeper, ready.alarm) {
                server.keeper = Some(Keeper::start(
                    standby,
                    shared.clone(),
                    storage.clone(),
                    alarm,
                ));
            }
            if let Some(standby) = threads.upkeep {
                server.upkeep = Some(Upkeep::start(standby, shared.clone(), storage.clone()));
            }
        }
        let mut redis_listeners = ready.redis_listeners;
        let cores = ready.listeners.into_iter().zip(threads.cores);
        for (id, (native, (standby, runtime))) in cores.enumerate() {
            let shared = shared.clone();
            let redis = ready.port.clone().map(|port| RedisDoors {
                port,
                tcp: redis_listeners.tcp.pop(),
                unix: redis_listeners.unix.pop(),
            });
            let doors = Doors { native, redis };
            let seats = ready.restored.seats.get_mut(id).map(std::mem::take);
            let seats = seats.unwrap_or_default();
            let thread = standby.begin(move || run_core(id, &runtime, shared, doors, seats));
            server.threads.push(thread);
        }
        if let (Some(thread), Some(listener)) = (threads.http, ready.http_listener) {
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

    /// The Unix socket where clients of Redis connect, if there is one.
    pub(super) fn redis_unix(&self) -> Option<&Path> {
        self.redis_unix.as_deref()
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

    /// Stops: no new connections, what is in flight is answered, waiters are told, everything is
    /// written. Returns when it is done, after the grace period of the settings at the latest.
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
        // Until here it has told every client that asked that the server stops.
        self.http = None;
        self.keeper = None;
        self.upkeep = None;
        self.prefaulter = None;
        // No thread is left that could do anything worth writing down.
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
