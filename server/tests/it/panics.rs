//! A thread of an embedded server panics: the server stops and says so, and the program that it is
//! part of goes on.

use crate::common::{ASKED_FOR, LONG_MS, Peer, acquire, start_with, until};
use server::Pause;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

#[test]
fn a_server_inside_another_program_stops_and_the_program_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let must_panic = Arc::new(AtomicBool::new(false));
    let server = start_with(|builder| {
        let must_panic = must_panic.clone();
        builder
            .with(|config| {
                config.durability = server::config::Durability::Lease;
                config.data_dir = directory.path().to_owned();
            })
            .on_admission(Arc::new(move || {
                assert!(!must_panic.load(Ordering::Acquire), "{ASKED_FOR}");
            }))
    });
    let address = server.local_addr();
    let mut peer = Peer::connect(address, "before");
    peer.acquire("k", 60_000);
    assert_eq!(server.failure(), None);

    must_panic.store(true, Ordering::Release);
    let _ = TcpStream::connect(address);
    until("the server has noticed", || server.failure().is_some());
    let thread = server.failure().expect("it says so").to_owned();
    assert!(thread.starts_with("core-"), "{thread}");
    assert!(peer.farewell().is_some(), "others are told that it goes");
    until("no client is let in any more", || {
        TcpStream::connect(address).is_err()
    });
    drop(server);

    // Its log says nothing of a clean stop: what was acknowledged is there, as after a crash.
    let server = start_with(|builder| {
        builder.with(|config| {
            config.durability = server::config::Durability::Lease;
            config.data_dir = directory.path().to_owned();
        })
    });
    let mut peer = Peer::connect(server.local_addr(), "after");
    assert_eq!(peer.query("k").0.len(), 1, "it is held");
}

/// Which core had something to write down last, and which one is to panic when it has.
#[derive(Default)]
struct Cores {
    last: Option<ThreadId>,
    must_panic: Option<ThreadId>,
}

/// A lock is handed to a client of a core, and that core panics when it opens its mail. tokio
/// swallowed that, and no client of the core was ever handed a lock again.
#[test]
fn a_core_does_not_go_on_without_its_mail() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cores = Arc::new(Mutex::new(Cores::default()));
    let server = start_with(|builder| {
        let cores = cores.clone();
        let builder = builder.on_pause(move |at| {
            let here = thread::current().id();
            let mut cores = cores.lock().expect("no thread panics with it");
            cores.last = Some(here);
            if at == Pause::BeforeAppend && cores.must_panic == Some(here) {
                cores.must_panic = None;
                drop(cores);
                panic!("{ASKED_FOR}");
            }
        });
        builder.with(|config| {
            config.durability = server::config::Durability::Lease;
            config.data_dir = directory.path().to_owned();
        })
    });
    let core_of = |peer: &mut Peer| {
        let fence = peer.acquire("probe", LONG_MS);
        assert!(peer.release("probe", fence));
        cores.lock().expect("as above").last
    };
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let core = core_of(&mut holder);
    // The system picks the core of a connection.
    let (mut waiter, its_core) = loop {
        let mut peer = Peer::connect(server.local_addr(), "waiter");
        let its_core = core_of(&mut peer);
        if its_core != core {
            break (peer, its_core);
        }
    };
    let fence = holder.acquire("k", LONG_MS);
    waiter.send(&acquire("k", LONG_MS, LONG_MS));
    until("it waits", || holder.query("k").1 == 1);
    cores.lock().expect("as above").must_panic = its_core;
    assert!(holder.release("k", fence));
    until("the server has noticed", || server.failure().is_some());
}
