//! The end: every client is told, and nothing that was answered is lost on the way.

use crate::common::{
    LONG_MS, OwnedPush, Peer, acquire, encode, granted, release, start, start_with, until,
};
use protocol::{ErrorCode, Reply, UnavailableReason};
use server::{Server, StartError};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Stops a server and asserts that it ends by itself.
fn shut_down(server: Server) {
    let stopping = std::thread::spawn(move || server.shutdown());
    until("the server has stopped", || stopping.is_finished());
    stopping.join().expect("it stops in order");
}

#[test]
fn waiters_and_connections_are_told_that_the_server_goes() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut observer = Peer::connect(address, "observer");
    holder.acquire("k", LONG_MS);
    let mut waiters: Vec<(Peer, u64)> = (0..10)
        .map(|ahead| {
            let mut waiter = Peer::connect(address, "waiter");
            let id = waiter.stand_in_line("k", ahead, &mut observer);
            (waiter, id)
        })
        .collect();
    shut_down(server);
    for (waiter, id) in &mut waiters {
        waiter.is_closed_with(ErrorCode::SHUTTING_DOWN);
        waiter.reply(*id, |reply| match reply {
            Reply::Unavailable { reason, .. } => {
                assert_eq!(reason, UnavailableReason::SHUTTING_DOWN)
            }
            other => panic!("not told but {other:?}"),
        });
        assert_eq!(waiter.pushes, [OwnedPush::Shutdown]);
    }
    holder.is_closed_with(ErrorCode::SHUTTING_DOWN);
    assert_eq!(holder.pushes, [OwnedPush::Shutdown]);
}

#[test]
fn a_server_that_is_dropped_stops_as_well() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    peer.acquire("k", LONG_MS);
    drop(server);
    peer.is_closed_with(ErrorCode::SHUTTING_DOWN);
    assert_eq!(peer.pushes, [OwnedPush::Shutdown]);
    assert!(
        std::net::TcpStream::connect(peer.address).is_err(),
        "no listener is left"
    );
}

#[test]
fn a_server_does_not_wait_for_those_who_have_not_said_hello() {
    let server = start_with(|builder| {
        builder.with(|config| {
            config.hello_timeout = Duration::from_secs(3_600);
            config.shutdown_grace = Duration::from_secs(3_600);
        })
    });
    let address = server.local_addr();
    let mut silent: Vec<Peer> = (0..8).map(|_| Peer::silent(address)).collect();
    until("the server has met them all", || {
        server.connections_per_core().iter().sum::<u64>() == 8
    });
    shut_down(server);
    for peer in &mut silent {
        peer.is_closed_with(ErrorCode::SHUTTING_DOWN);
    }
}

#[test]
fn a_peer_that_does_not_read_delays_the_end_by_the_grace_period_at_most() {
    let server = start_with(|builder| {
        builder.with(|config| {
            config.write_stall_timeout = Duration::from_secs(3_600);
            config.shutdown_grace = Duration::from_millis(300);
        })
    });
    let mut deaf = Peer::connect(server.local_addr(), "deaf");
    let mut observer = Peer::connect(server.local_addr(), "observer");
    let before = observer.stat("bytes_in_total");
    let mut requests = Vec::new();
    for id in 2..6_000 {
        requests.extend(encode(id, &protocol::Request::Stats));
    }
    deaf.send_bytes(&requests);
    until("the server has begun to answer", || {
        observer.stat("bytes_in_total") > before + 10_000
    });
    shut_down(server);
    while deaf.next_reply(|_, _| ()).is_some() {}
}

#[test]
fn a_second_server_on_the_same_port_is_refused_and_one_that_comes_after_is_not() {
    let first = start();
    let address = first.local_addr();
    let mut peer = Peer::connect(address, "a");
    let fence = peer.acquire("k", LONG_MS);
    // Two servers on one port would each have half of the clients, and grant the same locks.
    for threads in [1, 2, 4] {
        let second = Server::builder().threads(threads).listen(address).start();
        match second {
            Err(StartError::Listen { error, .. }) => {
                assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse)
            }
            Err(error) => panic!("refused for another reason: {error}"),
            Ok(_) => panic!("two servers on one port"),
        }
    }
    assert!(peer.is_held_under("k", fence), "the first one goes on");
    shut_down(first);
    let second = start_with(|builder| builder.listen(address));
    assert_eq!(second.local_addr(), address);
    let mut peer = Peer::connect(address, "a");
    assert!(
        peer.acquire("k", LONG_MS) > fence,
        "fences rise across a restart, however soon it comes"
    );
}

/// What one client was answered, in its own order.
#[derive(Default)]
struct Answers {
    granted: Vec<(usize, u64)>,
    released: Vec<(usize, u64)>,
    was_told: bool,
}

const KEYS: [&str; 3] = ["hot", "warm", "cool"];

/// Takes and releases locks until the server closes, with several acquires in flight. Returns all
/// that was answered.
fn hammer(address: std::net::SocketAddr, number: usize, busy: &AtomicUsize) -> Answers {
    let mut peer = Peer::connect(address, "hammer");
    let mut answers = Answers::default();
    let mut asked = BTreeMap::new();
    let mut releasing = BTreeMap::new();
    for (place, key) in KEYS.iter().enumerate() {
        let id = peer.send(&acquire(key, LONG_MS, LONG_MS));
        asked.insert(id, place);
    }
    let mut round = number;
    loop {
        enum Answer {
            Granted(u64),
            Released,
            GoingAway,
        }
        let answer = peer.next_reply(|id, reply| match reply {
            Reply::Granted { fence, .. } => (id, Answer::Granted(fence.get())),
            Reply::Released { remaining_count: 0 } => (id, Answer::Released),
            Reply::Unavailable { reason, .. } => {
                assert_eq!(reason, UnavailableReason::SHUTTING_DOWN);
                (id, Answer::GoingAway)
            }
            Reply::Error { code, .. } if id == 0 => {
                assert_eq!(code, ErrorCode::SHUTTING_DOWN);
                (id, Answer::GoingAway)
            }
            other => panic!("an answer to nothing that was asked: {other:?}"),
        });
        let Some((id, answer)) = answer else {
            return answers;
        };
        match answer {
            Answer::Granted(fence) => {
                let place = asked.remove(&id).expect("asked for, and answered once");
                answers.granted.push((place, fence));
                if let Some(id) = peer.try_send(&release(KEYS[place], fence)) {
                    releasing.insert(id, (place, fence));
                }
                if answers.granted.len() == 20 {
                    busy.fetch_add(1, Ordering::Release);
                }
            }
            Answer::Released => {
                let given_back = releasing.remove(&id).expect("sent, and answered once");
                answers.released.push(given_back);
                round += 1;
                let place = round % KEYS.len();
                if let Some(id) = peer.try_send(&acquire(KEYS[place], LONG_MS, LONG_MS)) {
                    asked.insert(id, place);
                }
            }
            Answer::GoingAway if id == 0 => answers.was_told = true,
            Answer::GoingAway => {
                asked.remove(&id).expect("asked for, and answered once");
            }
        }
    }
}

/// What the server has decided, a client was told. Fences make that visible: those of a key are
/// dense, so a grant whose answer was lost leaves a gap; and a lock goes on only after a release,
/// so a fence that is followed by another must have been released in the eyes of its holder.
#[test]
fn a_shutdown_under_load_loses_no_answer() {
    for _ in 0..5 {
        let server = start_with(|builder| {
            builder.with(|config| config.shutdown_grace = Duration::from_secs(1))
        });
        let address = server.local_addr();
        let busy = AtomicUsize::new(0);
        let clients = 12;
        let answers: Vec<Answers> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..clients)
                .map(|number| {
                    let busy = &busy;
                    scope.spawn(move || hammer(address, number, busy))
                })
                .collect();
            until("all are at it", || busy.load(Ordering::Acquire) == clients);
            shut_down(server);
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a client that was answered well"))
                .collect()
        });
        assert!(answers.iter().all(|one| one.was_told));
        for (place, key) in KEYS.iter().enumerate() {
            let of_key = |list: &[(usize, u64)]| -> Vec<u64> {
                let fences = list.iter().filter(|(other, _)| *other == place);
                fences.map(|(_, fence)| *fence).collect()
            };
            let mut granted: Vec<u64> = answers
                .iter()
                .flat_map(|one| of_key(&one.granted))
                .collect();
            let mut released: Vec<u64> = answers
                .iter()
                .flat_map(|one| of_key(&one.released))
                .collect();
            granted.sort_unstable();
            released.sort_unstable();
            let first = granted[0];
            for (position, fence) in granted.iter().enumerate() {
                assert_eq!(
                    *fence,
                    first + position as u64,
                    "{key}: a grant was made and its answer lost, or made twice"
                );
            }
            let must_be_released = &granted[..granted.len() - 1];
            assert!(
                released == must_be_released || released == granted,
                "{key}: {} granted, {} released",
                granted.len(),
                released.len()
            );
        }
    }
}

/// The audit log is the server's own account of what it granted. It grants nothing new from the
/// moment it is told to stop, so what a client hears are grants, then that there are none to be
/// had, each in its turn, and then the end.
#[test]
fn the_client_of_a_server_that_stops_hears_of_every_grant_even_if_it_does_not_stop_asking() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..5 {
        let path = directory.path().join(format!("audit-{round}"));
        let audit_log = Some(path.clone());
        let server = start_with(|builder| {
            builder.with(|config| {
                config.audit_log = audit_log;
                config.shutdown_grace = Duration::from_secs(1);
            })
        });
        let mut peer = Peer::connect(server.local_addr(), "a");
        let first = peer.next_id();
        let mut requests = Vec::new();
        for id in first..first + 20_000 {
            requests.extend(encode(id, &acquire(&format!("k/{id}"), LONG_MS, 0)));
        }
        let mut writer = peer.stream.try_clone().expect("a second handle");
        let granted = std::thread::scope(|scope| {
            scope.spawn(move || {
                // Fails when the server closes before all is sent.
                let _ = writer.write_all(&requests);
            });
            peer.reply(first, granted);
            let stopping = scope.spawn(|| shut_down(server));
            let mut next = first + 1;
            let mut granted = 1;
            let mut was_told = false;
            while let Some(id) = peer.next_reply(|id, reply| {
                match reply {
                    Reply::Granted { .. } => {
                        assert_eq!(granted, id - first, "no grant after the first no");
                        granted += 1;
                    }
                    Reply::Unavailable { reason, .. } => {
                        assert_eq!(reason, UnavailableReason::SHUTTING_DOWN)
                    }
                    Reply::Error { code, .. } => {
                        assert_eq!(code, ErrorCode::SHUTTING_DOWN);
                        was_told = true;
                    }
                    other => panic!("something else was asked for: {other:?}"),
                }
                id
            }) {
                if id != 0 {
                    assert_eq!(id, next, "every answer in its turn");
                    next += 1;
                }
            }
            stopping.join().expect("it stops in order");
            assert!(was_told, "why it ends");
            granted
        });
        let account = std::fs::read_to_string(&path).expect("an audit log");
        let written = account
            .lines()
            .filter(|line| line.contains(r#""event":"grant""#));
        assert_eq!(written.count() as u64, granted, "no answer was lost");
    }
}

#[test]
fn what_is_under_way_when_the_server_stops_is_answered() {
    let server = start();
    let address = server.local_addr();
    let mut peers: Vec<(Peer, u64)> = (0..20)
        .map(|number| {
            let mut peer = Peer::connect(address, "holder");
            let fence = peer.acquire(&format!("k/{number}"), LONG_MS);
            (peer, fence)
        })
        .collect();
    // Sent before the server is told to stop, so it is answered, whether the server has read it by
    // then or not.
    let releases: Vec<u64> = (0..)
        .zip(&mut peers)
        .map(|(number, (peer, fence))| peer.send(&release(&format!("k/{number}"), *fence)))
        .collect();
    shut_down(server);
    for ((peer, _), id) in peers.iter_mut().zip(releases) {
        peer.reply(id, |reply| {
            assert_eq!(reply, Reply::Released { remaining_count: 0 })
        });
        peer.is_closed_with(ErrorCode::SHUTTING_DOWN);
        assert_eq!(peer.pushes, [OwnedPush::Shutdown]);
    }
}
