//! Runs the real program: to its end, or as a server on a free port.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine. A wait of this length is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program with these arguments, and with nothing about Fencepost in its environment.
pub(crate) fn fencepost<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"FENCEPOST_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the program to its end.
#[track_caller]
pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    end(&mut fencepost(arguments))
}

/// Runs a command to its end. One that does not end, like a server that should have refused to
/// start, is stopped.
#[track_caller]
pub(crate) fn end(command: &mut Command) -> Ended {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    let (send_output, output) = mpsc::channel();
    std::thread::spawn(move || send_output.send(child.wait_with_output()));
    match output.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap().into(),
        Err(_) => {
            kill_process(pid, Signal::KILL).unwrap();
            panic!("{command:?} did not end within {PATIENCE:?}");
        }
    }
}

impl Ended {
    /// What it printed, if it ended with 0.
    #[track_caller]
    pub(crate) fn printed(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Its one line on standard error, if it ended with this code and printed nothing else.
    #[track_caller]
    pub(crate) fn complained(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let line = self.stderr.strip_suffix('\n').unwrap_or_default();
        assert!(!line.contains('\n'), "{self:?}");
        let complaint = line.strip_prefix("fencepost: ");
        complaint.unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// A server of the test's own. Ends with it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    pub(crate) data: TempDir,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    /// On a free port and, unless the arguments name one, with a directory of its own.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let data_dir = format!("--data-dir={}", data.path().display());
        let always = [
            "serve",
            "--listen=127.0.0.1:0",
            "--http=off",
            "--log-format=json",
        ];
        let always = always.iter().copied().chain([data_dir.as_str()]);
        // What the arguments name, they name instead.
        let is_named = |flag: &str| {
            let name = flag.split('=').next();
            let mut names = arguments.iter().map(|argument| argument.split('=').next());
            names.any(|argument| argument == name)
        };
        let always = always.filter(|flag| !is_named(flag));
        let mut child = fencepost(always.chain(arguments.iter().copied()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (send_address, address) = mpsc::channel();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let write_lines = lines.clone();
        // Reads to the end, so that the server never waits for a reader of its log lines.
        std::thread::spawn(move || {
            for line in log.lines() {
                let Ok(line) = line else { return };
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                write_lines.lock().unwrap().push(event.clone());
                // A node says that it has started: whether it is ready is up to the others.
                let has_begun = ["ready", "started"]
                    .iter()
                    .any(|said| event["message"] == *said);
                match event["address"].as_str() {
                    Some(address) if has_begun => {
                        let _ = send_address.send(address.to_owned());
                    }
                    _ => eprintln!("server: {line}"),
                }
            }
        });
        let address = address.recv_timeout(PATIENCE).expect("the server is ready");
        Self {
            child,
            address,
            data,
            lines,
        }
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn send(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Sends a signal by name and waits until the server has ended.
    pub(crate) fn end_by(mut self, signal: Signal) -> std::process::ExitStatus {
        send(&self.child, signal);
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a program that has not been waited for yet.
pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A lock that another run of the program holds for a shell script.
pub(crate) struct Held {
    child: Child,
    pub(crate) fence: u64,
    stdout: Option<BufReader<ChildStdout>>,
}

/// Prints its fence and works until its standard input ends.
pub(crate) const UNTIL_RELEASED: &str = "echo $FENCEPOST_FENCE; exec cat";

impl Held {
    /// Takes a lock and runs `script`, which must print its fence when it is ready for the test.
    pub(crate) fn new(server: &Server, arguments: &[&str], script: &str) -> Self {
        let mut child = fencepost(["lock", "--server", &server.address, "--wait=30s"])
            .args(arguments)
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        Self {
            child,
            fence: line.trim().parse().expect("the script prints its fence"),
            stdout: Some(stdout),
        }
    }

    /// The plain case: held until released.
    pub(crate) fn key(server: &Server, key: &str) -> Self {
        Self::new(server, &[key], UNTIL_RELEASED)
    }

    /// Lets the script end by itself.
    pub(crate) fn release(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.end()
    }

    /// Sends a signal to the program that holds the lock.
    pub(crate) fn send(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Waits until everything that the script started has ended, and gives the program's exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        let mut stdout = self.stdout.take().expect("there is one end only");
        let (send_end, end) = mpsc::channel();
        // A process that still runs has standard output open.
        std::thread::spawn(move || send_end.send(stdout.read_to_string(&mut String::new())));
        let end = end.recv_timeout(PATIENCE);
        end.expect("everything ends").unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Fails if it has ended already. Its script ends when its standard input does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `condition` holds, by asking again and again.
#[track_caller]
pub(crate) fn await_condition(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "it never came true");
        std::thread::yield_now();
    }
}

/// Runs a command against `server`, with `--json`, and returns what it printed.
#[track_caller]
pub(crate) fn ask(server: &Server, arguments: &[&str]) -> Value {
    let always = ["--json", "--server", &server.address];
    let printed = run(arguments.iter().chain(&always)).printed();
    serde_json::from_str(&printed).unwrap()
}
