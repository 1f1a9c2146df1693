//! Redis as it is run to be there always: a master, a replica, and three Sentinels that make the
//! replica the master when the master is gone. The master answers before the replica has anything.
//!
//! The replica follows through a link that can be made to stand still, as a network or a busy
//! machine does for a moment. How far a replica is behind is decided by luck otherwise: on one
//! machine next to nothing, most of the time.

use super::daemon::{Daemon, RedisSettings};
use super::link::Link;
use crate::load::peers::resp;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

const SENTINELS: usize = 3;

/// What the Sentinels call the master.
const NAME: &str = "locks";

/// How long the master may be silent before a Sentinel takes it for dead. Redis's default is 30 s;
/// the leases of the experiments are shorter by as much.
const DOWN_AFTER_MS: u32 = 500;

/// Longer than any experiment, so that no Sentinel tries a second time, or has the replica follow
/// the master by another address than the link's.
const FAILOVER_TIMEOUT_MS: u32 = 120_000;

/// How long replicas and Sentinels may take to find each other, or to agree on a new master.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOK: Duration = Duration::from_millis(20);

/// All of them. Dropping it kills them.
pub(crate) struct Watched {
    /// `None` once it was killed.
    master: Option<Daemon>,
    replica: Daemon,
    sentinels: Vec<Daemon>,
    link: Link,
}

impl Watched {
    /// Starts them, and waits until they know each other.
    pub(crate) fn start(directory: &Path) -> Result<Watched, String> {
        let own = |name: &str| {
            let own = directory.join(name);
            std::fs::create_dir(&own).map_err(|error| error.to_string())?;
            Ok::<_, String>(own)
        };
        let settings = |others| RedisSettings {
            others,
            ..RedisSettings::default()
        };
        // Without this a master waits for more replicas before it sends them anything.
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let master = Daemon::redis(&own("master")?, settings(&at_once))?;
        let link = Link::start(master.address)?;
        let port = link.address.port().to_string();
        let follows = ["--replicaof", "127.0.0.1", port.as_str()];
        let replica = Daemon::redis(&own("replica")?, settings(&follows))?;
        wait_until("the replica does not follow", || {
            info(replica.address, "replication").contains("master_link_status:up")
        })?;
        let sentinels = (1..=SENTINELS)
            .map(|number| {
                let directory = own(&format!("sentinel-{number}"))?;
                let file = directory.join("sentinel.conf");
                let text = sentinel_settings(&directory, master.address);
                std::fs::write(&file, text).map_err(|error| error.to_string())?;
                Daemon::sentinel(&file)
            })
            .collect::<Result<Vec<_>, String>>()?;
        for sentinel in &sentinels {
            wait_until("the Sentinels do not find each other", || {
                let found = format!("slaves=1,sentinels={SENTINELS}");
                info(sentinel.address, "sentinel").contains(&found)
            })?;
        }
        Ok(Watched {
            master: Some(master),
            replica,
            sentinels,
            link,
        })
    }

    /// The master, as a Sentinel tells it to clients.
    pub(crate) fn master(&self) -> Result<SocketAddr, String> {
        let words = ["SENTINEL", "get-master-addr-by-name", NAME].map(str::as_bytes);
        // An array of the host and the port.
        let port = TcpStream::connect(self.sentinels[0].address)
            .and_then(|mut stream| resp::call(&mut stream, &words, 3))
            .map_err(|error| format!("sentinel: {error}"))?;
        let port: u16 = port
            .parse()
            .map_err(|_| format!("sentinel: {port:?} is no port"))?;
        Ok(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Waits until the replica has everything, and from then on lets nothing through to it.
    pub(crate) fn stall_replication(&self) -> Result<(), String> {
        let master = self.master.as_ref().ok_or("the master is gone")?;
        let words = ["WAIT", "1", "5000"].map(str::as_bytes);
        let replicas = TcpStream::connect(master.address)
            .and_then(|mut stream| resp::call(&mut stream, &words, 1))
            .map_err(|error| format!("redis: {error}"))?;
        if replicas != "1" {
            return Err("redis: the replica is far behind".to_owned());
        }
        self.link.stand_still();
        Ok(())
    }

    /// Ends the master with SIGKILL.
    pub(crate) fn kill_master(&mut self) -> Result<(), String> {
        self.master.take().ok_or("the master is gone")?.kill()
    }

    /// Waits until the Sentinels tell clients to go to the replica.
    pub(crate) fn promoted(&self) -> Result<SocketAddr, String> {
        wait_until("the replica was not made the master", || {
            self.master() == Ok(self.replica.address)
        })?;
        Ok(self.replica.address)
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("redis: {what} within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What a server says about itself; nothing if it does not answer.
fn info(address: SocketAddr, section: &str) -> String {
    TcpStream::connect(address)
        .and_then(|mut stream| resp::call(&mut stream, &[b"INFO", section.as_bytes()], 1))
        .unwrap_or_default()
}

/// Without the port, which is given when it is started.
fn sentinel_settings(directory: &Path, master: SocketAddr) -> String {
    let quorum = SENTINELS / 2 + 1;
    format!(
        "bind 127.0.0.1\ndir {}\nsentinel monitor {NAME} {} {} {quorum}\n\
         sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
         sentinel failover-timeout {NAME} {FAILOVER_TIMEOUT_MS}\n",
        directory.display(),
        master.ip(),
        master.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_three_sentinels_decide() {
        let text = sentinel_settings(Path::new("/d"), "127.0.0.1:7000".parse().unwrap());
        assert!(
            text.contains("sentinel monitor locks 127.0.0.1 7000 2\n"),
            "{text}"
        );
        assert!(text.contains("dir /d\n"), "{text}");
    }
}
