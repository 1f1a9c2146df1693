//! How many files the system lets the server open. The server raises the limit as far as it may,
//! and says so where that is too few.

use crate::program::PATIENCE;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// A server under limits that a shell has set. Ends with its owner.
struct Started {
    child: Child,
    /// What it logged until it was ready.
    said: Vec<String>,
}

impl Started {
    fn under(limits: &str) -> Started {
        let program = env!("CARGO_BIN_EXE_fencepost");
        let script = format!(
            "{limits}; exec {program} serve --listen=127.0.0.1:0 --http=off --durability=none \
             --threads=2 --connections-max=1000"
        );
        let child = Command::new("sh")
            .args(["-c", &script])
            .env_clear()
            .env("FENCEPOST_LOG_FORMAT", "json")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Vec::new();
        let mut started = Started { child, said };
        started.wait_until_ready();
        started
    }

    fn wait_until_ready(&mut self) {
        let log = BufReader::new(self.child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        loop {
            let line = lines.recv_timeout(PATIENCE).expect("the server is ready");
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"] == "ready" {
                return;
            }
            self.said.push(line);
        }
    }
}

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
