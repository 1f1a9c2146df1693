//! The two servers that are compared: a real Redis in a temporary directory, and ours.

use crate::peer::{Address, PATIENCE, Peer};
use server::{Builder, Server};
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A real Redis, reached over a socket in its own directory only. Ends with its owner.
pub(crate) struct Redis {
    process: Child,
    dir: TempDir,
}

impl Redis {
    /// Starts one. `None`: there is none on this machine, and a complaint has been printed.
    pub(crate) fn start() -> Option<Redis> {
        let dir = TempDir::new().expect("a temporary directory");
        let log = fs::File::create(dir.path().join("log")).expect("a file there");
        let spawned = Command::new("redis-server")
            .current_dir(dir.path())
            .args(["--port", "0", "--unixsocket", "socket"])
            .args(["--save", "", "--appendonly", "no", "--databases", "16"])
            .stdin(Stdio::null())
            .stdout(log)
            .spawn();
        let Ok(process) = spawned else {
            say_that_it_is_missing();
            return None;
        };
        let mut redis = Redis { process, dir };
        redis.wait_until_it_answers();
        Some(redis)
    }

    pub(crate) fn address(&self) -> Address {
        Address::Unix(self.dir.path().join("socket"))
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Peer::try_connect(&self.address()).is_none() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            let ended = self.process.try_wait().expect("it is ours");
            assert!(ended.is_none(), "redis-server ended: {ended:?}\n{log}");
            assert!(Instant::now() < deadline, "redis-server is silent\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It keeps no data, so it is simply killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say_that_it_is_missing() {
    let complaint = "\n\
        ###########################################################################\n\
        # NOT TESTED: there is no redis-server on this machine. The Redis port    #\n\
        # was not compared with Redis. Install it to test that too:               #\n\
        #     apt-get install redis-server                                        #\n\
        ###########################################################################\n";
    // Past the capture of the test harness, which would hide it while the test passes. Appended, so
    // that a file behind standard error is not cut off.
    let stderr = fs::OpenOptions::new().append(true).open("/dev/stderr");
    if stderr
        .and_then(|mut stderr| stderr.write_all(complaint.as_bytes()))
        .is_err()
    {
        eprintln!("{complaint}");
    }
}

/// Ours, with its Redis port open.
pub(crate) struct Fencepost {
    pub(crate) server: Server,
}

impl Fencepost {
    pub(crate) fn start() -> Fencepost {
        Fencepost::start_with(|builder| builder)
    }

    pub(crate) fn start_with(change: impl FnOnce(Builder) -> Builder) -> Fencepost {
        let builder = Server::builder().threads(2).with(|config| {
            config.redis_listen = Some(([127, 0, 0, 1], 0).into());
            // Some peers connect long before their first command.
            config.hello_timeout = 3 * PATIENCE;
        });
        Fencepost {
            server: change(builder).start().expect("the server starts"),
        }
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(self.server.redis_addr().expect("the port is open"))
    }
}
