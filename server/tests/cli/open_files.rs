//! How many files the system lets the server open. The server raises the limit as far as it may,
//! says so where that is too few, and does not repeat itself when there are none left.

use crate::program::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A server under limits that a shell has set. Ends with its owner.
struct Started {
    child: Child,
    address: String,
    /// What it logged until it was ready.
    said: Vec<String>,
    /// What it logs from then on.
    lines: Receiver<String>,
}

impl Started {
    fn under(limits: &str) -> Started {
        let program = env!("CARGO_BIN_EXE_fencepost");
        let script = format!(
            "{limits}; exec {program} serve --listen=127.0.0.1:0 --http=off --durability=none \
             --threads=2 --connections-max=1000"
        );
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .env_clear()
            .env("FENCEPOST_LOG_FORMAT", "json")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut started = Started {
            child,
            address: String::new(),
            said: Vec::new(),
            lines,
        };
        while started.address.is_empty() {
            let line = started.lines.recv_timeout(PATIENCE);
            let line = line.expect("the server is ready");
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            match event["address"].as_str() {
                Some(address) if event["message"] == "ready" => {
                    address.clone_into(&mut started.address)
                }
                _ => started.said.push(line),
            }
        }
        started
    }

    /// How many lines say this until one does, and for a moment after that.
    fn count_lines(&self, what: &str) -> usize {
        let mut lines = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok());
        assert!(lines.any(|line| line.contains(what)), "it never said so");
        let over = Instant::now() + MOMENT;
        let left = || over.saturating_duration_since(Instant::now());
        let more = std::iter::from_fn(|| self.lines.recv_timeout(left()).ok());
        1 + more.filter(|line| line.contains(what)).count()
    }
}

/// That nothing is said within it is right however long it is.
const MOMENT: Duration = Duration::from_millis(500);

impl Drop for Started {
    fn drop(&mut self) {
        // Fails if it has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The limits of a process in the kernel: the current one, and how far it may be raised.
#[cfg(target_os = "linux")]
fn limits_of(child: &Child) -> [String; 2] {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("it is one of them");
    let mut words = line.split_whitespace().map(str::to_owned);
    [words.next().unwrap(), words.next().unwrap()]
}

#[cfg(target_os = "linux")]
#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let server = Started::under("ulimit -Sn 64");
    let [soft, hard] = limits_of(&server.child);
    assert_eq!(soft, hard);
}

#[test]
fn a_limit_that_is_too_low_for_the_settings_is_said_at_the_start() {
    let server = Started::under("ulimit -Sn 256; ulimit -Hn 256");
    let warning = server.said.iter().find(|line| line.contains("open files"));
    let warning = warning.unwrap_or_else(|| panic!("nothing about it in {:?}", server.said));
    assert!(warning.contains("connections_max is 1000"), "{warning}");
    assert!(warning.contains("256"), "{warning}");
}

/// A server without a file left for a connection tried again twenty times a second on each core,
/// and said so each time: 2,000 lines.
#[test]
fn accepts_that_fail_are_one_line() {
    let server = Started::under("ulimit -Sn 64; ulimit -Hn 64");
    let connect = |_| TcpStream::connect(&server.address).expect("it listens");
    let _crowd: Vec<TcpStream> = (0..100).map(connect).collect();
    assert_eq!(server.count_lines("accept failed"), 1);
}
