//! A panic under the real server: the process ends at once with a clear line and a code of its own,
//! whichever thread it was.

use crash_tests::panics::{THREAD, THREAD_VARIABLE, VARIABLE};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A core without its wheels or its mail once served on as if nothing had happened.
#[test]
fn a_panic_in_a_core_ends_the_process() {
    ends_the_process(VARIABLE, "core-");
}

/// Threads of the server tell it when they panic. Another one cannot, and the process ends all the
/// same.
#[test]
fn a_panic_in_a_thread_that_is_not_watched_ends_the_process() {
    ends_the_process(THREAD_VARIABLE, THREAD);
}

/// Has the third connection bring about a panic, as the variable says, in a thread of this name.
fn ends_the_process(variable: &str, thread_begins: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crash-tests"))
        .arg("serve")
        .env("FENCEPOST_LISTEN", "127.0.0.1:0")
        .env("FENCEPOST_HTTP", "off")
        .env("FENCEPOST_LOG_FORMAT", "json")
        .env("FENCEPOST_DATA_DIR", directory.path())
        .env(variable, "3")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The child ends when this is closed, which `wait` would do.
    let _stdin = child.stdin.take();
    let log = BufReader::new(child.stderr.take().unwrap());
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    // The lines until one says this.
    let hear = |message: &str| loop {
        let line = lines.recv_timeout(PATIENCE).expect("the line comes");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(said) = event["message"].as_str()
            && said.contains(message)
        {
            return event;
        }
    };
    let ready = hear("ready");
    let address = ready["address"].as_str().unwrap().to_owned();
    let _connections: Vec<_> = (0..3).map(|_| TcpStream::connect(&address)).collect();
    let last = hear("panicked");
    assert_eq!(last["level"], "ERROR", "{last}");
    let thread = last["thread"].as_str().unwrap_or_default();
    assert!(thread.starts_with(thread_begins), "{last}");
    assert_eq!(child.wait().unwrap().code(), Some(server::EXIT_PANIC));
}
