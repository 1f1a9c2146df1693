//! The server as a child process: started, watched until it is ready, killed.
//!
//! What is started is this very program with the argument `serve`, which then does what `fencepost
//! serve` does: read the settings, run the server's library. So a clean clone needs nothing but
//! cargo, and what is killed is always what was just built. Any other program that takes its
//! settings from the environment can be named instead, like an installed `fencepost`.

use crate::checker::Kept;
use crate::{disk, panics};
use rustix::process::{Pid, Signal, kill_process};
use server::config::Sources;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longer than any start takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many of a server's last lines are shown when something is wrong.
const LINES_KEPT: usize = 20;

/// How often a port that is taken is tried again. It is ours; but a connection of the last life may
/// linger for a moment.
const LISTEN_ATTEMPTS: usize = 50;

/// What is run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Its arguments. Settings are given in the environment.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This crate's own binary at `path`, as a server.
    pub fn own(path: impl Into<PathBuf>) -> Self {
        Program {
            path: path.into(),
            arguments: vec!["serve".into()],
        }
    }
}

/// How much log there is between two snapshots of the child process.
pub const SNAPSHOT_EVERY: &str = "CRASH_TESTS_SNAPSHOT_EVERY";

/// How long the files are in which the child process keeps its log.
pub const SEGMENTS_OF: &str = "CRASH_TESTS_SEGMENTS_OF";

/// After how many entries the nodes of a cluster compare their ledgers.
pub const COMPARE_EVERY: &str = "CRASH_TESTS_COMPARE_EVERY";

/// Which format of the log a node says that it reads, so that one build can pose as several.
pub const READS_FORMAT: &str = "CRASH_TESTS_READS_FORMAT";

/// Has a node's ledger differ from those of the other nodes.
pub const DIFFERS: &str = "CRASH_TESTS_LEDGER_DIFFERS";

/// How far the wall clock of the child process is ahead, in milliseconds. A line on its standard
/// input sets it anew.
const CLOCK_AHEAD: &str = "CRASH_TESTS_CLOCK_AHEAD_MS";

/// So little that some kills hit a snapshot that is being written.
pub const SNAPSHOT_LOG_BYTES: &str = "16384";

/// Runs the server with the settings in the environment, until a signal or the end of standard
/// input ends it. For the child process.
pub fn serve() -> ExitCode {
    let sources = Sources {
        flags: Vec::new(),
        config_file: None,
        environment: std::env::vars_os().collect(),
    };
    let clock_ahead = std::env::var(CLOCK_AHEAD).ok();
    server::shift_wall_clock(clock_ahead.and_then(|ms| ms.parse().ok()).unwrap_or(0));
    let compare_every = std::env::var(COMPARE_EVERY).ok();
    if let Some(entries) = compare_every.and_then(|entries| entries.parse().ok()) {
        server::compare_ledgers_every(entries);
    }
    if std::env::var_os(DIFFERS).is_some() {
        server::let_ledger_differ();
    }
    // Standard input ends when the process that started us is gone, however that came about.
    std::thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if let Ok(ahead_ms) = line.parse() {
                server::shift_wall_clock(ahead_ms);
            } else if let Some(order) = disk::Order::parse(&line) {
                order.give();
            }
        }
        std::process::exit(0);
    });
    let loaded = match sources.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    loaded.config.start_logging();
    let mut builder = server::Server::builder().config(loaded.config.clone());
    let snapshot_every = std::env::var(SNAPSHOT_EVERY).ok();
    if let Some(log_bytes) = snapshot_every.and_then(|bytes| bytes.parse().ok()) {
        builder = builder.snapshot_every(log_bytes);
    }
    let segments_of = std::env::var(SEGMENTS_OF).ok();
    if let Some(bytes) = segments_of.and_then(|bytes| bytes.parse().ok()) {
        builder = builder.segments_of(bytes);
    }
    let reads = std::env::var(READS_FORMAT).ok();
    if let Some(version) = reads.and_then(|version| version.parse().ok()) {
        builder = builder.reads_format(version);
    }
    let failure = std::env::var(disk::VARIABLE).ok();
    let failure = failure.as_deref().and_then(disk::Failure::parse);
    if failure.is_some() || std::env::var_os(disk::TAKES_ORDERS).is_some() {
        match disk::FailingDisk::new(&loaded.config.data_dir, failure) {
            Ok(disk) => builder = builder.disk(Arc::new(disk)),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let number_in = |variable| std::env::var(variable).ok()?.parse().ok();
    if let Some(number) = number_in(panics::VARIABLE) {
        builder = builder.on_admission(panics::at_connection(number));
    }
    if let Some(number) = number_in(panics::THREAD_VARIABLE) {
        builder = builder.on_admission(panics::in_a_thread_at_connection(number));
    }
    match server::run_with(builder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Where and how a server is run, life after life.
#[derive(Clone, Debug)]
pub struct Site {
    /// What is run.
    pub program: Program,
    /// In which mode.
    pub mode: Kept,
    /// Where its log is.
    pub data_dir: PathBuf,
    /// Where native clients connect.
    pub address: String,
    /// The Redis port.
    pub redis_address: String,
    /// How far the server's wall clock is ahead of ours.
    pub clock_ahead_ms: i64,
    /// Variables of its environment besides, and instead of those that a site sets itself.
    pub more: Vec<(&'static str, OsString)>,
    /// Where the lines of all its lives are kept.
    pub log_file: Option<PathBuf>,
}

impl Site {
    /// Starts a life.
    pub fn start(&self) -> Result<Server, String> {
        let mut command = Command::new(&self.program.path);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FENCEPOST_") {
                command.env_remove(name);
            }
        }
        command
            .args(&self.program.arguments)
            .env("FENCEPOST_LISTEN", &self.address)
            .env("FENCEPOST_REDIS_LISTEN", &self.redis_address)
            .env(CLOCK_AHEAD, self.clock_ahead_ms.to_string())
            .env("FENCEPOST_HTTP", "off")
            .env("FENCEPOST_THREADS", "2")
            .env("FENCEPOST_LOG_FORMAT", "json")
            .env("FENCEPOST_SHUTDOWN_GRACE", "200ms")
            .env(SNAPSHOT_EVERY, SNAPSHOT_LOG_BYTES);
        for (name, value) in settings(self.mode, &self.data_dir) {
            command.env(name, value);
        }
        for (name, value) in &self.more {
            command.env(name, value);
        }
        let mut kept = match &self.log_file {
            None => None,
            Some(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                Some(opened.map_err(|error| format!("cannot keep its lines: {error}"))?)
            }
        };
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(|error| {
            let path = self.program.path.display();
            format!("cannot start {path}: {error}")
        })?;
        let log = child.stderr.take().expect("it was asked for");
        let (send, lines) = mpsc::channel();
        // Reads to the end, so that the server never waits for its lines to be taken.
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if let Some(kept) = &mut kept {
                    // A line that is missing hurts no promise.
                    let _ = writeln!(kept, "{line}");
                }
                // It fails after the end of a life.
                let _ = send.send(line);
            }
        });
        Ok(Server {
            child,
            lines,
            last_lines: VecDeque::new(),
        })
    }

    /// Starts a life and waits until it is ready.
    pub fn start_ready(&self) -> Result<Server, String> {
        let mut attempts = 0;
        loop {
            let mut server = self.start()?;
            match server.wait_ready() {
                Ok(()) => return Ok(server),
                Err(why) => {
                    attempts += 1;
                    if attempts == LISTEN_ATTEMPTS || !why.contains("cannot listen on") {
                        return Err(why);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
}

/// The settings that a mode stands for.
fn settings(mode: Kept, data_dir: &Path) -> Vec<(&'static str, OsString)> {
    let durability = match mode {
        Kept::None => return vec![("FENCEPOST_DURABILITY", "none".into())],
        Kept::Fence | Kept::FenceWithoutGrace => "fence",
        Kept::Lease => "lease",
    };
    let grace = match mode {
        Kept::FenceWithoutGrace => "off",
        _ => "on",
    };
    vec![
        ("FENCEPOST_DURABILITY", durability.into()),
        ("FENCEPOST_DATA_DIR", data_dir.into()),
        ("FENCEPOST_GRACE", grace.into()),
    ]
}

/// One life of the server. Dropping it kills it.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    last_lines: VecDeque<String>,
}

impl Server {
    fn wait_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline - Instant::now()) {
                Ok(line) => {
                    // A node of a cluster says that it has started.
                    let is_ready = message_of(&line)
                        .is_some_and(|message| ["ready", "started"].contains(&&*message));
                    self.keep(line);
                    if is_ready {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.complain("is not ready")),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.complain("ended before it was ready"));
                }
            }
            if Instant::now() >= deadline {
                return Err(self.complain("is not ready"));
            }
        }
    }

    fn keep(&mut self, line: String) {
        if self.last_lines.len() == LINES_KEPT {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line);
    }

    /// What is wrong, and what the server had to say.
    pub fn complain(&mut self, what: &str) -> String {
        let more: Vec<String> = self.lines.try_iter().collect();
        more.into_iter().for_each(|line| self.keep(line));
        let mut text = format!("the server {what}; its last lines:");
        for line in &self.last_lines {
            text.push_str("\n    ");
            text.push_str(line);
        }
        text
    }

    /// Whether it is gone without having been told to.
    pub fn has_ended(&mut self) -> bool {
        // While it lives its lines are taken, so that they do not pile up.
        let more: Vec<String> = self.lines.try_iter().collect();
        more.into_iter().for_each(|line| self.keep(line));
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The exit code that it has ended with, if it is gone, and by no signal.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok()??.code()
    }

    /// Stops all its threads, until [`Server::go_on`].
    pub fn pause(&mut self) -> Result<(), String> {
        self.signal(Signal::STOP)
    }

    pub fn go_on(&mut self) -> Result<(), String> {
        self.signal(Signal::CONT)
    }

    /// Sets its wall clock.
    pub fn set_clock(&mut self, ahead_ms: i64) -> Result<(), String> {
        self.tell(&ahead_ms.to_string())
    }

    /// Tells its disk what to do.
    pub fn order_disk(&mut self, order: disk::Order) -> Result<(), String> {
        self.tell(&order.show())
    }

    fn tell(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.child.stdin.as_mut().expect("it was asked for");
        let written = writeln!(stdin, "{line}");
        written.map_err(|error| format!("the server hears nothing: {error}"))
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL, and returns when it is gone.
    pub fn kill(mut self) -> Result<(), String> {
        self.end_by(Signal::KILL).map(|_| ())
    }

    /// Ends it with SIGTERM, and returns when it is gone.
    pub fn stop(mut self) -> Result<(), String> {
        match self.end_by(Signal::TERM)? {
            Some(0) => Ok(()),
            code => Err(self.complain(&format!("was told to stop and ended with {code:?}"))),
        }
    }

    fn end_by(&mut self, signal: Signal) -> Result<Option<i32>, String> {
        self.signal(signal)?;
        // `wait` would close it, and its end ends the server at once, before it has stopped in good
        // order.
        let stdin = self.child.stdin.take();
        let status = self.child.wait();
        drop(stdin);
        let status = status.map_err(|error| format!("cannot wait for the server: {error}"))?;
        Ok(status.code())
    }
}

impl Server {
    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(self.complain(&format!("ended by itself: {status}")));
        }
        send(&self.child, signal)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when it has ended already, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a child that must not have ended.
pub fn signal(child: &mut Child, signal: Signal) -> Result<(), String> {
    match child.try_wait() {
        Ok(Some(status)) => Err(format!("a child process ended by itself: {status}")),
        _ => send(child, signal),
    }
}

fn send(child: &Child, signal: Signal) -> Result<(), String> {
    // It has not been waited for, so the number is still its own.
    let sent = kill_process(Pid::from_child(child), signal);
    sent.map_err(|error| format!("cannot send a signal: {error}"))
}

fn message_of(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(event["message"].as_str()?.to_owned())
}

/// A port for all lives of a server, below the range that the system takes from for outgoing
/// connections: while the server is down, a client that tries to connect might get the very port it
/// tries to reach, and meet itself.
pub fn free_address(random: &mut fastrand::Rng) -> Result<String, String> {
    for _ in 0..1000 {
        let address = format!("127.0.0.1:{}", random.u16(10_000..32_000));
        if std::net::TcpListener::bind(&address).is_ok() {
            return Ok(address);
        }
    }
    Err("there is no free port".to_owned())
}
