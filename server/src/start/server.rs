//! Starting and stopping: one thread per core, each with its own runtime, listener, mail and
//! wheels.

use super::builder::Builder;
use super::cores::{Doors, RedisDoors, run_core};
use super::prefault::Prefaulter;
use super::preflight::{Purpose, preflight};
use super::start_error::StartError;
use crate::config::{Config, Durability};
use crate::conn::secure::Certificates;
use crate::core::shared::Shared;
use crate::durability::{Keeper, Upkeep};
use crate::observe::audit;
use crate::report::http::Http;
use crate::rights::{Change, Rights};
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
        if let Some(certificates) = &ready.shared.certificates {
            certificates.announce();
        }
        ready.shared.serves_since = ready.shared.clock.now();
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
            let restored = std::mem::take(&mut ready.restored.told);
            audit.begin(shared.failure.watch(), ready.told, restored);
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
            server.http = Some(Http::start(thread, listener, shared.into()));
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
    pub(crate) fn redis_unix(&self) -> Option<&Path> {
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

    /// Reads the files of tokens and rights and the certificates again and opens the audit log
    /// again, under the names they had at the start; all other settings stay. Logs what changed.
    /// What cannot be read or opened stays as it was.
    ///
    /// A token that is gone opens no new connection. Those it opened before go on with what its
    /// name may do now: a rotation of tokens is no reason to lose locks. A name that is gone from
    /// `auth_file` may do nothing any more, and its connections are closed.
    pub fn reload(&self) {
        let shared = &self.shared;
        let certificates = shared.certificates.as_deref();
        let audit = self.audit.as_ref();
        reload(&shared.rights, &shared.config, certificates, audit);
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

/// Reads tokens and opens the audit log again: see [`Server::reload`].
pub(crate) fn reload(
    rights: &Rights,
    config: &Config,
    certificates: Option<&Certificates>,
    audit: Option<&audit::Writer>,
) {
    match rights.reload(config) {
        Ok(Some(Change {
            added,
            removed,
            count,
            altered,
        })) => tracing::info!(
            added,
            removed,
            count,
            altered,
            "tokens and rights read again; connections that are open go on with what their name may do now"
        ),
        Ok(None) => {}
        Err(error) => tracing::error!("the tokens and rights stay as they were: {error}"),
    }
    if let Some(certificates) = certificates {
        match certificates.reload() {
            Ok(()) => {
                tracing::info!("certificates read again; connections that are open go on");
                certificates.announce();
            }
            Err(error) => tracing::error!("the certificates stay as they were: {error}"),
        }
    }
    if let Some(audit) = audit {
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
    if !rights.is_required() && certificates.is_none() && audit.is_none() {
        tracing::info!(
            "nothing to reload: there is no auth_file, auth_token_file, tls_cert_file or audit_log; other settings need a restart"
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
