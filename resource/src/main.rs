//! The program `resource`: flags to settings to a running service.

use clap::{Parser, ValueEnum};
use fencepost_resource::limits::{
    BYTES_DEFAULT, CONNECTIONS_DEFAULT, KEYS_DEFAULT, VALUE_BYTES_CAP, VALUE_BYTES_DEFAULT,
    WRITES_DEFAULT,
};
use fencepost_resource::{Enforcement, Policy, Store, StoreSettings, http, serve};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// As a shell reports a program that an interrupt ended.
const EXIT_AT_SECOND_SIGNAL: i32 = 130;

/// A small key-value service that accepts a write only with a fence, and refuses fences that run
/// backwards.
///
/// PUT /r/{key} with the header X-Fence-Token writes, GET /r/{key} reads, /metrics counts. It asks
/// for no credentials: keep it on a network you trust.
#[derive(Parser)]
#[command(name = "resource", version)]
struct Flags {
    /// Where to listen; port 0 takes a free one. The address is printed once connections are taken.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7402")]
    listen: SocketAddr,

    /// Whether to refuse fences that run backwards. Off shows what a lock alone is worth: such
    /// writes are accepted and counted.
    #[arg(long, value_name = "on|off", default_value = "on")]
    fence: Switch,

    /// Which fences to refuse: those at or below the highest seen (first-use), or only those below
    /// (at-least).
    #[arg(long, value_name = "POLICY", default_value = "first-use")]
    policy: PolicyFlag,

    /// Where to keep values and fences. Each write is on the disk before it is answered. Without
    /// it, all is gone at the end.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// How many keys there may be.
    #[arg(long, value_name = "COUNT", default_value_t = KEYS_DEFAULT)]
    keys_max: usize,

    /// How many bytes a value may have.
    #[arg(long, value_name = "BYTES", default_value_t = VALUE_BYTES_DEFAULT)]
    value_bytes_max: usize,

    /// How many bytes all keys and values may have together.
    #[arg(long, value_name = "BYTES", default_value_t = BYTES_DEFAULT)]
    bytes_max: u64,

    /// How many writes may be under way or waiting.
    #[arg(long, value_name = "COUNT", default_value_t = WRITES_DEFAULT)]
    writes_max: usize,

    /// How many connections there may be; more wait.
    #[arg(long, value_name = "COUNT", default_value_t = CONNECTIONS_DEFAULT)]
    connections_max: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum PolicyFlag {
    FirstUse,
    AtLeast,
}

impl Flags {
    fn store_settings(&self) -> StoreSettings {
        let policy = match self.policy {
            PolicyFlag::FirstUse => Policy::FirstUse,
            PolicyFlag::AtLeast => Policy::AtLeast,
        };
        StoreSettings {
            enforcement: match self.fence {
                Switch::On => Enforcement::On(policy),
                Switch::Off => Enforcement::Off,
            },
            keys_max: self.keys_max,
            bytes_max: self.bytes_max,
            writes_max: self.writes_max,
            data_dir: self.data_dir.clone(),
            ..StoreSettings::default()
        }
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resource: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(flags: &Flags) -> Result<(), Box<dyn Error>> {
    if flags.value_bytes_max > VALUE_BYTES_CAP {
        return Err(format!("--value-bytes-max must be {VALUE_BYTES_CAP} at most").into());
    }
    // Before the address is printed: its reader may stop us at once.
    let mut signals = Signals::catch()?;
    let store = Store::open(&flags.store_settings())?;
    let cannot_listen = |error| format!("cannot listen on {}: {error}", flags.listen);
    let listener = TcpListener::bind(flags.listen)
        .await
        .map_err(cannot_listen)?;
    let address = listener.local_addr()?;
    if store.enforcement() == Enforcement::Off {
        eprintln!("resource: fences are not enforced. Stale writes will be accepted, and counted");
    }
    if !address.ip().is_loopback() {
        eprintln!(
            "resource: {address} can be reached from other machines, and asks for no credentials"
        );
    }
    println!("listening on http://{address}");
    std::io::stdout().flush()?;

    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            signals.next().await;
            stop.cancel();
            signals.next().await;
            std::process::exit(EXIT_AT_SECOND_SIGNAL);
        }
    });
    serve(
        listener,
        http::routes(store, flags.value_bytes_max),
        flags.connections_max,
        stop,
    )
    .await;
    Ok(())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
