//! A disk that fails under the real server: the process ends at once with a clear message, and
//! everything it has acknowledged until then is there when it is started again.

use crash_tests::disk::{self, Failure, Operation};
use crash_tests::{SNAPSHOT_EVERY, SNAPSHOT_LOG_BYTES};
use fencepost::Client;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use tokio::runtime::Runtime;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server as a child process.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    fn start(data_dir: &Path, durability: &str, failure: Option<Failure>) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crash-tests"));
        command
            .arg("serve")
            .env("FENCEPOST_LISTEN", "127.0.0.1:0")
            .env("FENCEPOST_HTTP", "off")
            .env("FENCEPOST_LOG_FORMAT", "json")
            .env("FENCEPOST_SESSION_TTL", "60s")
            .env("FENCEPOST_DURABILITY", durability)
            .env("FENCEPOST_DATA_DIR", data_dir)
            .env(SNAPSHOT_EVERY, SNAPSHOT_LOG_BYTES)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(failure) = failure {
            command.env(disk::VARIABLE, failure.show());
        }
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Server { child, lines }
    }

    /// Waits for a line that says this; `None` if the server ends without.
    fn hear(&self, message: &str) -> Option<serde_json::Value> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).ok()?;
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"]
                .as_str()
                .is_some_and(|said| said.contains(message))
            {
                return Some(event);
            }
        }
    }

    fn address(&self) -> Option<String> {
        let ready = self.hear("ready")?;
        Some(ready["address"].as_str().unwrap().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes locks until the server is gone. Returns those that were granted. None of them is given
/// back.
async fn take_locks(address: &str) -> (Client, Vec<(String, u64)>) {
    let client = Client::connect(address).await.unwrap();
    let mut taken = Vec::new();
    for number in 0..10_000 {
        let key = format!("k{number}");
        let lock = client
            .lock(&key)
            .ttl(PATIENCE)
            .wait(Duration::from_secs(1))
            .acquire();
        match tokio::time::timeout(Duration::from_secs(2), lock).await {
            Ok(Ok(guard)) => {
                taken.push((key, guard.fence().get()));
                std::mem::forget(guard);
            }
            Ok(Err(_)) | Err(_) => return (client, taken),
        }
    }
    panic!("the disk never failed");
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().unwrap()
}

fn fails(durability: &str, failure: Failure) {
    let runtime = runtime();
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), durability, Some(failure));
    let address = server.address().expect("it starts");
    let (client, taken) = runtime.block_on(take_locks(&address));
    assert!(!taken.is_empty(), "nothing was granted before the failure");
    server
        .hear("the log cannot be written")
        .expect("it says why it ends");
    assert_eq!(server.child.wait().unwrap().code(), Some(server::EXIT_DISK));
    std::mem::forget(client);

    finds(&runtime, directory.path(), durability, &taken);
}

/// Starts a server, which must know all of these.
fn finds(runtime: &Runtime, data_dir: &Path, durability: &str, taken: &[(String, u64)]) {
    let server = Server::start(data_dir, durability, None);
    let address = server.address().expect("it starts again");
    runtime.block_on(async {
        let other = Client::connect(&address).await.unwrap();
        for (key, fence) in taken {
            let holder = other.query(key).await.unwrap();
            let fences: Vec<u64> = holder
                .holders
                .iter()
                .map(|holder| holder.fence.get())
                .collect();
            assert_eq!(fences, [*fence], "{key} was acknowledged");
        }
    });
}

#[test]
fn a_sync_that_fails_is_the_last() {
    let error = EIO;
    for number in [14, 25, 60] {
        fails(
            "lease",
            Failure {
                of: Operation::Sync,
                number,
                error,
            },
        );
    }
}

#[test]
fn a_full_disk_ends_the_server_and_loses_nothing() {
    let error = ENOSPC;
    for number in [30, 80] {
        fails(
            "lease",
            Failure {
                of: Operation::Write,
                number,
                error,
            },
        );
    }
}

/// What a snapshot asks of the disk, once there is one: its file is the fourth that is made, its
/// name the third that is given, and the unlink is that of the snapshot before.
#[test]
fn whatever_fails_of_a_snapshot_ends_the_server_and_loses_nothing() {
    let error = EIO;
    for (of, number) in [
        (Operation::Create, 4),
        (Operation::SnapshotSync, 1),
        (Operation::Rename, 3),
        (Operation::SyncDir, 4),
        (Operation::Remove, 1),
    ] {
        fails("lease", Failure { of, number, error });
    }
}

/// Opens, renames, unlinks and syncs of a start.
#[test]
fn a_start_that_meets_a_disk_error_ends_and_loses_nothing() {
    let runtime = runtime();
    let directory = tempfile::tempdir().unwrap();
    let failure = Failure {
        of: Operation::Sync,
        number: 60,
        error: EIO,
    };
    let mut server = Server::start(directory.path(), "lease", Some(failure));
    let address = server.address().expect("it starts");
    let (client, taken) = runtime.block_on(take_locks(&address));
    server.child.wait().unwrap();
    std::mem::forget(client);
    let error = EIO;
    for (of, number) in [
        (Operation::Open, 1),
        (Operation::Open, 2),
        (Operation::Open, 3),
        (Operation::Open, 4),
        (Operation::SyncDir, 1),
        (Operation::Write, 1),
        (Operation::Sync, 1),
    ] {
        let failure = Failure { of, number, error };
        let mut server = Server::start(directory.path(), "lease", Some(failure));
        assert!(
            server.address().is_none(),
            "started in spite of {failure:?}"
        );
        assert!(!server.child.wait().unwrap().success());
    }
    finds(&runtime, directory.path(), "lease", &taken);
}

#[test]
fn with_fence_a_failed_sync_ends_the_server_too() {
    let failure = Failure {
        of: Operation::Sync,
        number: 9,
        error: EIO,
    };
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), "fence", Some(failure));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let taken = match server.address() {
        Some(address) => runtime.block_on(async {
            let client = Client::connect(&address).await.unwrap();
            let mut last = 0;
            // The horizon is pushed as long as there are new leases.
            while let Ok(Ok(guard)) = tokio::time::timeout(
                Duration::from_secs(2),
                client
                    .lock("k")
                    .ttl(Duration::from_secs(1))
                    .wait(Duration::from_secs(1))
                    .acquire(),
            )
            .await
            {
                assert!(guard.fence().get() > last);
                last = guard.fence().get();
                if guard.release().await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            last
        }),
        None => 0,
    };
    assert_eq!(server.child.wait().unwrap().code(), Some(server::EXIT_DISK));
    let directory_again = directory.path();
    let server = Server::start(directory_again, "fence", None);
    let address = server.address().expect("it starts again");
    runtime.block_on(async {
        let client = Client::connect(&address).await.unwrap();
        let guard = client
            .lock("k")
            .ttl(Duration::from_secs(1))
            .wait(Duration::from_secs(60))
            .acquire()
            .await
            .unwrap();
        assert!(guard.fence().get() > taken);
    });
}
