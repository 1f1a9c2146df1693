//! The wall clock is set under the real server, of which nothing is asked meanwhile: its log says
//! so all the same.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wal::{Options, Scope};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

const HOUR_MS: i64 = 3_600_000;

/// The server as a child process. Ends with its owner.
struct Server(Child);

impl Server {
    fn start(data_dir: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crash-tests"))
            .arg("serve")
            .env("FENCEPOST_LISTEN", "127.0.0.1:0")
            .env("FENCEPOST_HTTP", "off")
            .env("FENCEPOST_DURABILITY", "lease")
            .env("FENCEPOST_DATA_DIR", data_dir)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (send, ready) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                if line.contains("ready") {
                    let _ = send.send(());
                }
            }
        });
        let server = Server(child);
        ready.recv_timeout(PATIENCE).expect("the server is ready");
        server
    }

    /// Sets its wall clock so far ahead of ours.
    fn set_clock(&mut self, ahead_ms: i64) {
        let stdin = self.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{ahead_ms}").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How far the wall clock is ahead, as the next server would find it after a kill at this moment.
/// `None`: the files cannot be copied while they come and go.
fn ahead_ms(data_dir: &Path) -> Option<i64> {
    let copy: TempDir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(data_dir).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name()?)).ok()?;
    }
    let (_, recovered) = wal::open(copy.path(), &Options::new(Scope::Leases, 1)).ok()?;
    Some(recovered.wall_ahead_ms)
}

/// A server that was asked nothing for a while learned of a step too late, or never: leases ended
/// early after a crash, or late.
#[test]
fn a_server_of_which_nothing_is_asked_follows_the_wall_clock() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    for step_ms in [HOUR_MS, -HOUR_MS] {
        server.set_clock(step_ms);
        let begun = Instant::now();
        let is_near = |ahead_ms: i64| (ahead_ms - step_ms).abs() < HOUR_MS / 2;
        while !ahead_ms(directory.path()).is_some_and(is_near) {
            assert!(begun.elapsed() < PATIENCE, "a step of {step_ms} ms");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
