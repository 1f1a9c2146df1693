//! A start that cannot be, and one on a disk that fills up: what they leave behind, and what goes
//! on.

use crate::common::{LONG_MS, Peer, acquire, hello, hello_for, start_with, until};
use crate::http::{free_port, get};
use protocol::{ErrorCode, Hello, Reply, Token};
use server::config::{Config, Durability};
use server::{Server, StartError};
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wal::{DirDisk, Disk, DiskFile};

fn with_log(directory: &Path, durability: Durability) -> impl FnOnce(&mut Config) {
    let data_dir = directory.to_owned();
    move |config| {
        config.data_dir = data_dir;
        config.durability = durability;
    }
}

/// Every file with its bytes.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap();
    let files = entries.map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, std::fs::read(entry.path()).unwrap())
    });
    files.collect()
}

/// A start that failed for a wrong audit log, a port that was taken or too small a limit had
/// already written that a server was running. The next start found a stop without notice, had
/// forgotten every lease, and granted nothing for a while.
#[test]
fn a_start_that_fails_leaves_the_log_as_it_was() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    type Spoil = Box<dyn Fn(&mut Config)>;
    let spoils: [(&str, Spoil); 5] = [
        (
            "audit log",
            Box::new(|config| config.audit_log = Some("/proc/none/audit".into())),
        ),
        ("port", Box::new(move |config| config.listen = taken)),
        (
            "HTTP port",
            Box::new(move |config| config.http = Some(taken)),
        ),
        (
            "Redis port",
            Box::new(move |config| config.redis_listen = Some(taken)),
        ),
        (
            "tokens",
            Box::new(|config| config.auth_token_file = Some("/proc/none".into())),
        ),
    ];
    for durability in [Durability::Fence, Durability::Lease] {
        let directory = tempfile::tempdir().unwrap();
        let server = start_with(|builder| builder.with(with_log(directory.path(), durability)));
        let mut holder = Peer::open(server.local_addr(), hello_for("holder", LONG_MS));
        holder.acquire("k", LONG_MS);
        let _second = Peer::open(server.local_addr(), hello_for("another session", LONG_MS));
        server.shutdown();
        let before = files(directory.path());
        for (what, spoil) in &spoils {
            let builder = || {
                let builder = Server::builder().threads(2);
                let builder = builder.with(with_log(directory.path(), durability));
                builder.with(|config| spoil(config))
            };
            let started = builder().start().err().map(|error| error.to_string());
            assert!(started.is_some(), "{what}");
            assert!(files(directory.path()) == before, "{what}");
            // What a check finds is what a start finds.
            let checked = builder().check().err().map(|error| error.to_string());
            assert_eq!(checked, started, "{what}");
        }
        let server = start_with(|builder| builder.with(with_log(directory.path(), durability)));
        let mut other = Peer::connect(server.local_addr(), "other");
        other.ask(&acquire("k", 100, 0), |reply| {
            assert!(
                matches!(reply, Reply::Refused(_)),
                "{durability:?}: {reply:?}"
            );
        });
    }
}

#[test]
fn a_check_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || {
        Server::builder().with(|config| {
            config.data_dir = directory.path().join("not/yet/there");
            config.durability = Durability::Fence;
            config.audit_log = Some(directory.path().join("audit.log"));
            config.redis_unix = Some(directory.path().join("redis.sock"));
            config.http = Some(free_port());
        })
    };
    builder().check().unwrap();
    assert!(files(directory.path()).is_empty());
    // A server may be started where a check was made, and then there is no room for another.
    let server = builder().start().unwrap();
    let refused = builder().check().unwrap_err();
    assert!(
        matches!(refused, StartError::ListenUnix { .. }),
        "{refused}"
    );
    server.shutdown();
    builder().check().unwrap();
}

#[test]
fn a_check_says_where_nothing_can_be_made() {
    let checked = |change: fn(&mut Config)| {
        let builder = Server::builder().with(|config| config.durability = Durability::Fence);
        builder.with(change).check().unwrap_err()
    };
    let refused = checked(|config| config.data_dir = "/proc/none/data".into());
    assert!(matches!(refused, StartError::Storage(_)), "{refused}");
    let refused = checked(|config| {
        config.durability = Durability::None;
        config.audit_log = Some("/proc/none/audit.log".into());
    });
    assert!(matches!(refused, StartError::Audit { .. }), "{refused}");
}

/// A directory on a file system that can be filled.
struct FullDisk {
    disk: DirDisk,
    is_full: Arc<AtomicBool>,
}

impl Disk for FullDisk {
    fn dir(&self) -> &Path {
        self.disk.dir()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_read(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_write(name)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.disk.create(name, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

/// A server whose disk was full said "ready" and was gone within a tenth of a second: the keeper
/// could make no spare segment.
#[test]
fn a_server_goes_on_when_there_is_no_room_for_a_spare_segment_or_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let change = || with_log(directory.path(), Durability::Lease);
    // The first segment is made while there is room, and the spare that came with it is taken away.
    drop(start_with(|builder| builder.with(change())));
    for name in files(directory.path()).into_keys() {
        if name.starts_with("spare-") {
            std::fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    let is_full = Arc::new(AtomicBool::new(true));
    let disk = FullDisk {
        disk: DirDisk::open(directory.path()).unwrap(),
        is_full: is_full.clone(),
    };
    let server = start_with(|builder| {
        builder
            .with(change())
            .disk(Arc::new(disk))
            .snapshot_every(1)
            .http(free_port())
    });
    let no_room = || {
        let page = get(&server, "/metrics").body;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("fencepost_log_no_room_total "));
        line.expect("it is on the page").parse::<u64>().unwrap()
    };
    let mut peer = Peer::connect(server.local_addr(), "peer");
    // One for the spare, one for a snapshot.
    until("both were tried in vain", || no_room() >= 2);
    let fence = peer.acquire("k", LONG_MS);
    assert!(peer.release("k", fence));
    is_full.store(false, Ordering::Relaxed);
    assert!(peer.acquire("k", LONG_MS) > fence);
    server.shutdown();
    let server = start_with(|builder| builder.with(change()));
    let mut other = Peer::connect(server.local_addr(), "other");
    other.ask(&acquire("k", 100, 0), |reply| {
        assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    });
}

fn with_token(token: &'static str) -> Hello<'static> {
    Hello {
        token: Token::new(token.as_bytes()).expect("a short token"),
        ..hello("a")
    }
}

#[test]
fn tokens_are_read_again_and_open_connections_go_on() {
    let (old, new) = ("the old token of 2024", "the new token of 2025");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, old).unwrap();
    let file = path.clone();
    let server = start_with(|builder| builder.with(|config| config.auth_token_file = Some(file)));
    let address = server.local_addr();
    let mut early = Peer::open(address, with_token(old));
    let fence = early.acquire("k", LONG_MS);

    std::fs::write(&path, new).unwrap();
    server.reload();
    let refused = Peer::knock(address, with_token(old)).err().unwrap();
    assert_eq!(refused.code, ErrorCode::UNAUTHENTICATED);
    Peer::open(address, with_token(new)).ping();
    assert!(early.release("k", fence), "it was let in and goes on");

    // What cannot be read changes nothing.
    for bad in ["", "short"] {
        std::fs::write(&path, bad).unwrap();
        server.reload();
        Peer::open(address, with_token(new)).ping();
        assert!(Peer::knock(address, hello("no token")).is_err());
    }
}

#[test]
fn the_audit_log_is_opened_again_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let rotated = directory.path().join("audit.log.1");
    let file = path.clone();
    let server = start_with(|builder| builder.with(|config| config.audit_log = Some(file)));
    let says = |path: &Path, word: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.contains(word)
    };
    let mut peer = Peer::connect(server.local_addr(), "peer");
    peer.acquire("before", LONG_MS);
    until("it is written", || says(&path, "\"before\""));
    std::fs::rename(&path, &rotated).unwrap();
    server.reload();
    peer.acquire("after", LONG_MS);
    until("it is written to the new file", || says(&path, "\"after\""));
    assert!(!says(&rotated, "\"after\""));

    // Where it cannot be opened, it goes on in the file it has.
    std::fs::rename(&path, &rotated).unwrap();
    std::fs::create_dir(&path).unwrap();
    server.reload();
    peer.acquire("later", LONG_MS);
    until("it is written to the old file", || {
        says(&rotated, "\"later\"")
    });
}

#[test]
fn leases_and_sessions_are_no_longer_than_the_bound() {
    use crate::common::{granted, wire_fence, wire_key};
    use protocol::{Lease, Request};
    use std::time::Duration;
    let server = start_with(|builder| {
        builder.with(|config| {
            config.lease_max = Duration::from_secs(30);
            config.session_ttl = Duration::from_secs(20);
        })
    });
    let mut peer = Peer::connect(server.local_addr(), "peer");
    let fence = peer.ask(&acquire("k", 30_000, 0), granted);
    let names_the_bound = |reply: Reply<'_>| {
        let Reply::Error { code, message, .. } = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(code, ErrorCode::MALFORMED);
        let sentence = message.as_str();
        assert!(sentence.contains("at most 30000") && sentence.contains("lease_max"));
    };
    peer.ask(&acquire("other", 30_001, 0), names_the_bound);
    peer.ask(&acquire("k", 30_001, LONG_MS), names_the_bound);
    let renew = |ttl_ms| Request::Renew {
        key: wire_key("k"),
        fence: wire_fence(fence),
        lease: Lease::Ttl { ttl_ms },
    };
    peer.ask(&renew(30_001), names_the_bound);
    peer.ask(&renew(30_000), |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    });
    assert!(peer.release("k", fence), "the connection goes on");
    let refused = Peer::knock(server.local_addr(), hello_for("long", 30_001));
    let sentence = refused.err().unwrap().message;
    assert!(sentence.contains("at most 30000"), "{sentence}");
    Peer::open(server.local_addr(), hello_for("short", 30_000)).ping();
}
