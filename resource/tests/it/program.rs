//! The program itself: flags, the address it prints, signals, and what is left after `kill -9`.

use crate::support::{get, metric, put, try_send};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_resource");

/// A process that does not outlive its test.
struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    fn start(flags: &[&str]) -> Program {
        let mut command = Command::new(PROGRAM);
        command.args(["--listen", "127.0.0.1:0"]).args(flags);
        Self::run(command)
    }

    fn run(mut command: Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim_end().strip_prefix("listening on http://");
        let address = address
            .unwrap_or_else(|| panic!("it said {line:?}"))
            .parse()
            .unwrap();
        Program { child, address }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn it_serves_until_a_signal_ends_it() {
    let mut program = Program::start(&["--fence", "off", "--policy", "at-least"]);
    assert_eq!(put(program.address, "/r/k", 2, b"v").await.status, 200);
    assert_eq!(put(program.address, "/r/k", 1, b"late").await.status, 200);
    assert_eq!(
        metric(program.address, "resource_fence_violations_total").await,
        1
    );
    program.signal(Signal::TERM);
    assert!(program.wait().success());
}

#[test]
fn what_it_cannot_use_it_says() {
    let dir = TempDir::new().unwrap();
    std::fs::write(
        dir.path().join("fences.log"),
        "no log of ours, but longer than a header",
    )
    .unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["--fence", "maybe"], "possible values: on, off"),
        (&["--value-bytes-max", "99999999"], "at most"),
        (
            &["--listen", "203.0.113.1:1"],
            "cannot listen on 203.0.113.1:1",
        ),
        (&["--data-dir", text(dir.path())], "is not a log of fences"),
    ];
    for (flags, complaint) in cases {
        let output = Command::new(PROGRAM).args(flags).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(complaint),
            "{flags:?}: {said}"
        );
    }
}

/// Everything that was answered with 200 is there after `kill -9`, under load, several times over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kill_9() {
    let dir = TempDir::new().unwrap();
    let flags = ["--data-dir", text(dir.path())];
    let mut acknowledged = HashMap::<u64, u64>::new();
    for round in 0..4_u64 {
        let mut program = Program::start(&flags);
        let at = program.address;
        for (writer, fence) in &acknowledged {
            let state = get(at, &format!("/r/{writer}")).await.json();
            assert!(
                state["max_fence"].as_u64().unwrap() >= *fence,
                "{writer} had {fence}: {state}"
            );
            assert_eq!(
                state["value"],
                state["max_fence"].to_string(),
                "value and fence change together"
            );
            assert_eq!(
                put(at, &format!("/r/{writer}"), *fence, b"late")
                    .await
                    .status,
                409
            );
        }
        let (enough, mut is_enough) = tokio::sync::mpsc::channel(1);
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let enough = enough.clone();
                tokio::spawn(async move {
                    let mut last = None;
                    for fence in 1 + round * 1_000_000.. {
                        let (headers, value) =
                            (format!("X-Fence-Token: {fence}\r\n"), fence.to_string());
                        let path = format!("/r/{writer}");
                        match try_send(at, "PUT", &path, &headers, value.as_bytes()).await {
                            Some(reply) if reply.status == 200 => last = Some(fence),
                            Some(reply) => panic!("{reply:?}"),
                            // Killed. This one may be there or not.
                            None => break,
                        }
                        if fence == 25 + round * 1_000_000 {
                            let _ = enough.try_send(());
                        }
                    }
                    (writer, last)
                })
            })
            .collect();
        is_enough.recv().await;
        program.signal(Signal::KILL);
        program.wait();
        for writer in writers {
            let (writer, last) = writer.await.unwrap();
            acknowledged.extend(last.map(|fence| (writer, fence)));
        }
        assert!(!acknowledged.is_empty());
    }
}

/// A file that may not grow any further stands for a full disk.
#[tokio::test]
async fn a_log_that_cannot_be_written_refuses_everything_and_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let mut command = Command::new("sh");
    // Blocks of 512 or 1024 bytes, depending on the shell. The signal for a file grown too long
    // would end the process.
    command.args([
        "-c",
        "trap '' XFSZ; ulimit -f 8; exec \"$@\"",
        "sh",
        PROGRAM,
    ]);
    command.args(["--listen", "127.0.0.1:0", "--data-dir", text(dir.path())]);
    let program = Program::run(command);
    let at = program.address;
    let value = [b'v'; 500];
    let mut last = 0;
    let refused = loop {
        let reply = put(at, "/r/k", last + 1, &value).await;
        if reply.status != 200 {
            break reply;
        }
        last += 1;
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("until a restart"), "{refused:?}");
    assert!(last > 0);
    // What was refused has no effect, and nothing is accepted any more, however small.
    assert_eq!(get(at, "/r/k").await.json()["max_fence"], last);
    assert_eq!(put(at, "/r/other", 1, b"").await.status, 503);
    assert!(metric(at, "resource_log_failure_rejections_total").await >= 2);
    drop(program);

    let program = Program::start(&["--data-dir", text(dir.path())]);
    assert_eq!(get(program.address, "/r/k").await.json()["max_fence"], last);
    assert_eq!(
        put(program.address, "/r/k", last + 1, b"").await.status,
        200
    );
}
