//! Peers that are this very program, started again under a hidden command: Fencepost and the echo
//! server. So a run needs nothing that cargo has not built, and their processor time is still told
//! apart from the generator's.

use super::child::{Process, die_with_parent};
use super::fencepost::TOKEN;
use super::{Started, echo};
use server::config::Durability;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The first word of the line that says where it listens; anything else says why it does not.
pub(crate) const READY: &str = "ready ";

/// The server behind TLS. Its certificate is in its directory.
pub(super) const FENCEPOST_TLS: &str = "fencepost-tls";

/// The names of the authority that signed it and of its own certificate, from which their files are
/// named.
pub(super) const AUTHORITY: &str = "ca";
pub(super) const OWN: &str = "server";

/// Servers for `bench restart`.
pub(crate) const RESTART_LEASE: &str = "restart-lease";
pub(crate) const RESTART_FENCE: &str = "restart-fence";

/// Starts one of them.
pub(super) fn start(name: &str, directory: &Path) -> io::Result<Started> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["serve", name])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut process = Process::spawn(command)?;
    let stdout = process.take_stdout().expect("it is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let line = line.trim();
    let Some(address) = line.strip_prefix(READY) else {
        return Err(io::Error::other(line.to_owned()));
    };
    let address = address.parse().map_err(io::Error::other)?;
    Ok((vec![address], vec![process]))
}

/// What the hidden command `serve` does, until it is killed.
pub(crate) fn serve(name: &str, directory: PathBuf) -> ExitCode {
    let done = die_with_parent().and_then(|()| match name {
        "echo" => echo::serve(announce),
        "fencepost" => fencepost(directory, server::Config::default().durability),
        FENCEPOST_TLS => fencepost_tls(directory),
        "fencepost-rights" => fencepost_with_rights(directory, ""),
        "fencepost-quotas" => fencepost_with_rights(directory, QUOTAS),
        "fencepost-none" => fencepost(directory, Durability::None),
        "fencepost-lease" => fencepost(directory, Durability::Lease),
        RESTART_LEASE => restartable(directory, Durability::Lease),
        RESTART_FENCE => restartable(directory, Durability::Fence),
        other => Err(io::Error::other(format!("there is no {other}"))),
    });
    if let Err(error) = done {
        println!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The server as `fencepost serve` runs it, on a free port and with its files in a directory of its
/// own.
fn fencepost(directory: PathBuf, durability: Durability) -> io::Result<()> {
    run(|config| {
        config.data_dir = directory;
        config.durability = durability;
    })
}

/// The same behind TLS.
fn fencepost_tls(directory: PathBuf) -> io::Result<()> {
    run(|config| {
        config.tls_cert_file = Some(directory.join(format!("{AUTHORITY}-{OWN}.pem")));
        config.tls_key_file = Some(directory.join(format!("{AUTHORITY}-{OWN}.key")));
        config.data_dir = directory;
    })
}

/// Beyond what any workload needs: what is measured is the counting.
const QUOTAS: &str =
    "held_max = 100000000\nwaiters_max = 100000000\noperations_per_second = 1000000000\n";

/// The same with a file of rights, in which the bench has a token with one role, three prefixes, of
/// which the last is that of its keys, and these quotas.
fn fencepost_with_rights(directory: PathBuf, quotas: &str) -> io::Result<()> {
    let sha256 = server::hash_token(TOKEN).map_err(io::Error::other)?;
    let rights = directory.join("rights.toml");
    std::fs::write(
        &rights,
        format!(
            "[[token]]\nname = \"bench\"\nsha256 = \"{sha256}\"\nroles = [\"lock\"]\n\
             prefixes = [\"billing/\", \"stock/\", \"orders/\"]\n{quotas}"
        ),
    )?;
    run(|config| {
        config.auth_file = Some(rights);
        config.data_dir = directory;
    })
}

/// Until it is killed. As durable as a server that is told nothing, unless `set` says otherwise.
fn run(set: impl FnOnce(&mut server::Config)) -> io::Result<()> {
    let server = server::Server::builder().with(|config| {
        config.durability = server::Config::default().durability;
        set(config);
    });
    let server = server.start().map_err(io::Error::other)?;
    announce(server.local_addr())?;
    loop {
        std::thread::park();
    }
}

/// One whose sessions wait for it while it is away, and which stops in good order at the end of its
/// standard input.
fn restartable(directory: PathBuf, durability: Durability) -> io::Result<()> {
    let server = server::Server::builder().with(|config| {
        config.data_dir = directory;
        config.durability = durability;
        config.session_ttl = Duration::from_secs(3_600);
        config.shutdown_grace = Duration::ZERO;
    });
    let server = server.start().map_err(io::Error::other)?;
    announce(server.local_addr())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown();
    Ok(())
}

fn announce(address: std::net::SocketAddr) -> io::Result<()> {
    println!("{READY}{address}");
    io::stdout().flush()
}
