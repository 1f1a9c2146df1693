//! Connections that have not introduced themselves, and the places that are kept for operators.

use crate::common::{Peer, hello, start_with, until};
use protocol::ErrorCode;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

/// So long that no test sees the end of it.
const NEVER: Duration = Duration::from_secs(3_600);

/// A core bears as many strangers as there are places.
const PLACES: u32 = 20;

#[test]
fn mute_connections_take_no_place() {
    let server = start_with(|builder| {
        builder.with(|config| {
            config.connections_max = 1;
            config.hello_timeout = NEVER;
        })
    });
    let address = server.local_addr();
    let mute: Vec<Peer> = (0..5).map(|_| Peer::silent(address)).collect();
    let mut client = Peer::connect(address, "client");
    client.ping();
    let refused = Peer::knock(address, hello("one too many")).err();
    assert_eq!(refused.expect("not let in").code, ErrorCode::AT_CAPACITY);
    drop(mute);
}

#[test]
fn of_too_many_mute_connections_the_oldest_gives_way() {
    let server = start_with(|builder| {
        builder.threads(1).with(|config| {
            config.hello_timeout = NEVER;
            config.connections_max = PLACES;
        })
    });
    let address = server.local_addr();
    let mut mute: Vec<TcpStream> = (0..PLACES)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    let mut client = Peer::connect(address, "client");
    client.ping();
    let oldest = &mut mute[0];
    oldest
        .set_read_timeout(Some(crate::common::PATIENCE))
        .expect("a socket option");
    assert_eq!(oldest.read(&mut [0; 16]).expect("its end"), 0);
    // The second oldest was not asked to go, and can still introduce itself.
    let second = mute.remove(1);
    let mut second = Peer::on(second, address);
    assert!(second.introduce(hello("late")).is_ok());
    second.ping();
}

#[test]
fn operators_are_let_in_when_all_places_are_taken() {
    let server = start_with(|builder| builder.with(|config| config.connections_max = 2));
    let address = server.local_addr();
    let _clients = [Peer::connect(address, "a"), Peer::connect(address, "b")];
    let refused = Peer::knock(address, hello("c")).err();
    assert_eq!(refused.expect("not let in").code, ErrorCode::AT_CAPACITY);
    // The command line of this program, on the server's own machine.
    let mut operators: Vec<Peer> = Vec::new();
    while let Ok(operator) = Peer::knock(address, hello("fencepost")) {
        operators.push(operator);
        assert!(operators.len() <= 4, "these places are few");
    }
    assert_eq!(operators.len(), 4);
    operators[0].ping();
    drop(operators);
    until("their places are free again", || {
        Peer::knock(address, hello("fencepost")).is_ok()
    });
}
