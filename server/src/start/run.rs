//! The program: a server that runs until a signal stops it.

use super::builder::Builder;
use super::notify::Notifier;
use super::open_files;
use super::server::Server;
use super::signals::{Signals, Wish};
use super::start_error::StartError;
use crate::config::Config;
use crate::system::panics::{self, OnPanic};

/// As a shell reports a program that an interrupt ended.
const EXIT_AT_SECOND_SIGNAL: i32 = 130;

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
    if let Some(path) = server.redis_unix() {
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
