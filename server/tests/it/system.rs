//! The server and the system around it: readiness for systemd, threads on their cores.

use crate::common::{PATIENCE, Peer, start_with, until};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A program that does not outlive its test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn systemd_hears_when_the_program_is_ready_reloads_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut buffer = [0; 256];
        let heard_bytes = socket.recv(&mut buffer).expect("the program speaks");
        String::from_utf8(buffer[..heard_bytes].to_vec()).unwrap()
    };
    let mut program = Program(
        Command::new(env!("CARGO_BIN_EXE_fencepost"))
            .args(["serve", "--listen", "127.0.0.1:0", "--http", "off"])
            .current_dir(directory.path())
            .env("NOTIFY_SOCKET", &path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let ready = hear();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    kill_process(Pid::from_child(&program.0), Signal::HUP).unwrap();
    let reloading = hear();
    assert!(reloading.starts_with("RELOADING=1\n"), "{reloading}");
    let ready = hear();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    kill_process(Pid::from_child(&program.0), Signal::TERM).unwrap();
    let stopping = hear();
    assert!(
        stopping.lines().any(|line| line == "STOPPING=1"),
        "{stopping}"
    );
    assert!(program.0.wait().unwrap().success());
}

/// SIGHUP ended the program at once, without a word, as a stop without notice.
#[test]
fn a_hang_up_is_no_end_but_has_the_audit_log_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut program = Program(
        Command::new(env!("CARGO_BIN_EXE_fencepost"))
            .args(["serve", "--listen", "127.0.0.1:0", "--http", "off"])
            .args(["--durability", "none", "--audit-log", "audit.log"])
            .current_dir(directory.path())
            .env("NOTIFY_SOCKET", &path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    socket.recv(&mut [0; 256]).expect("the program is ready");
    let audit = directory.path().join("audit.log");
    for round in 1..=2 {
        let rotated = directory.path().join(format!("audit.log.{round}"));
        std::fs::rename(&audit, rotated).unwrap();
        kill_process(Pid::from_child(&program.0), Signal::HUP).unwrap();
        until("the file is there again", || audit.exists());
    }
    kill_process(Pid::from_child(&program.0), Signal::TERM).unwrap();
    assert!(program.0.wait().unwrap().success());
}

/// How many I/O threads of this process are bound to one core.
#[cfg(target_os = "linux")]
fn pinned_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let pinned = tasks.flatten().filter(|task| {
        // A thread that ended since it was listed has no files any more.
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let cpus = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let is_one = cpus.is_some_and(|cpus| cpus.trim().parse::<u32>().is_ok());
        read("comm").starts_with("core-") && is_one
    });
    pinned.count()
}

#[cfg(target_os = "linux")]
#[test]
fn pinned_threads_have_a_core_each_and_serve() {
    let server = start_with(|builder| builder.with(|config| config.pin = true));
    let began = Instant::now();
    while pinned_threads() < 2 {
        assert!(began.elapsed() < PATIENCE, "no thread was pinned");
        std::thread::yield_now();
    }
    let mut a = Peer::connect(server.local_addr(), "a");
    let fence = a.acquire("k", 10_000);
    assert!(a.release("k", fence));
}
