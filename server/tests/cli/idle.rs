//! A server with nothing to do does next to nothing.

#![cfg(target_os = "linux")]

use crate::program::{Held, Server, await_condition};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the threads of a server are watched.
const WATCHED: Duration = Duration::from_secs(1);

/// No thread of an idle server wakes up more often than this on average, whatever the machine does.
const BETWEEN_WAKES_MS: u128 = 35;

/// Cores once turned their wheels every millisecond, and the audit log was looked after every
/// twenty: 1.5 to 5 % of a processor with nothing to do.
#[test]
fn a_server_with_nothing_to_do_rests() {
    let directory = tempfile::tempdir().unwrap();
    let audit_log = format!("--audit-log={}", directory.path().join("audit").display());
    let server = Server::start(&[&audit_log, "--durability=fence", "--threads=2"]);
    let _held = Held::key(&server, "k");
    let tasks = format!("/proc/{}/task", server.pid());
    // Nothing is asked of it any more but to keep one session alive. What it did before may need a
    // while to come to an end.
    await_condition(|| {
        let (before, begun) = (wakes(Path::new(&tasks)), Instant::now());
        std::thread::sleep(WATCHED);
        let (after, watched_ms) = (wakes(Path::new(&tasks)), begun.elapsed().as_millis());
        let woken = |thread: &str| after[thread] - before.get(thread).copied().unwrap_or(0);
        let busy = after
            .keys()
            .filter(|thread| woken(thread) * BETWEEN_WAKES_MS > watched_ms);
        let busy: Vec<_> = busy.collect();
        eprintln!("busy within {watched_ms} ms: {busy:?}");
        busy.is_empty()
    });
}

/// How often each thread of a process has waited for something and been woken, by its number and
/// name.
fn wakes(tasks: &Path) -> HashMap<String, u128> {
    let threads = std::fs::read_dir(tasks).unwrap();
    let status = threads.filter_map(|thread| {
        // A thread may have ended meanwhile.
        std::fs::read_to_string(thread.unwrap().path().join("status")).ok()
    });
    let field = |status: &str, name: &str| -> String {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name));
        value.expect("the kernel says it").trim().to_owned()
    };
    let counted = status.map(|status| {
        let thread = format!("{} {}", field(&status, "Pid:"), field(&status, "Name:"));
        let wakes = field(&status, "voluntary_ctxt_switches:");
        (thread, wakes.parse().unwrap())
    });
    counted.collect()
}
