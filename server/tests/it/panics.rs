//! A thread of an embedded server panics: the server stops and says so, and the program that it is
//! part of goes on.

use crate::common::{ASKED_FOR, Peer, start_with, until};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
