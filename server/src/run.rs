//! The program: a server that runs until a signal stops it.

use crate::config::Config;
use crate::node::NodeServer;
use crate::start::notify::Notifier;
use crate::start::open_files;
use crate::start::signals::{Signals, Wish};
use crate::start::{Builder, Server, StartError};
use crate::system::panics::{self, OnPanic};
use std::net::SocketAddr;

/// As a shell reports a program that an interrupt ended.
const EXIT_AT_SECOND_SIGNAL: i32 = 130;

/// Whether a server could start now with these settings: ports, tokens, audit log, data directory,
/// limits and room on the disk. Nothing is changed.
pub fn check(config: Config) -> Result<(), StartError> {
    let is_node = config.is_node();
    let builder = Server::builder().config(config);
    match is_node {
        true => NodeServer::check(builder),
        false => builder.check(),
    }
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
    let builder = builder.on_panic(OnPanic::EndProcess);
    let server = match builder.config.is_node() {
        true => Running::Node(Box::new(NodeServer::start(builder)?)),
        false => Running::Alone(Box::new(builder.start()?)),
    };
    if let Some(address) = server.http_addr() {
        tracing::info!(%address, "metrics, health and locks over HTTP");
    }
    if let Some(address) = server.redis_addr() {
        tracing::info!(%address, "clients of Redis");
    }
    if let Running::Alone(server) = &server
        && let Some(path) = server.redis_unix()
    {
        tracing::info!(path = %path.display(), "clients of Redis over a Unix socket");
    }
    if let Running::Node(node) = &server {
        tracing::info!(address = %node.peer_addr(), "other nodes of the cluster");
    }
    let said = match &server {
        Running::Alone(_) => "ready",
        // `/readyz` and the lines of the election say when it is.
        Running::Node(_) => "started",
    };
    tracing::info!(address = %server.local_addr(), cores = server.core_count(), "{said}");
    notifier.ready();
    while runtime.block_on(signals.next()) == Wish::Reload {
        notifier.reloading();
        server.reload();
        notifier.ready();
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

/// What this process is.
enum Running {
    /// A server by itself.
    Alone(Box<Server>),
    /// A node of a cluster.
    Node(Box<NodeServer>),
}

impl Running {
    fn local_addr(&self) -> SocketAddr {
        match self {
            Running::Alone(server) => server.local_addr(),
            Running::Node(node) => node.local_addr(),
        }
    }

    fn redis_addr(&self) -> Option<SocketAddr> {
        match self {
            Running::Alone(server) => server.redis_addr(),
            Running::Node(node) => node.redis_addr(),
        }
    }

    fn http_addr(&self) -> Option<SocketAddr> {
        match self {
            Running::Alone(server) => server.http_addr(),
            Running::Node(node) => node.http_addr(),
        }
    }

    fn core_count(&self) -> usize {
        match self {
            Running::Alone(server) => server.shared.core_count,
            Running::Node(node) => node.core_count(),
        }
    }

    fn reload(&self) {
        match self {
            Running::Alone(server) => server.reload(),
            Running::Node(node) => node.reload(),
        }
    }

    fn shutdown(self) {
        match self {
            Running::Alone(server) => server.shutdown(),
            Running::Node(node) => node.shutdown(),
        }
    }
}
