//! What the log says of peers that find no place.

use crate::program::{Server, await_condition};
use fencepost::Client;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Of each protocol.
const REFUSED: usize = 20;

/// Each of them once had a line of its own: 2,000 lines for a crowd.
#[test]
fn peers_that_find_no_place_are_one_line() {
    let arguments = ["--connections-max=1", "--redis-listen=127.0.0.1:0"];
    let server = Server::start(&arguments);
    let connect = || {
        let client = Client::builder().address(&*server.address);
        client.name("crowd").connections(1).connect_blocking()
    };
    let _client = connect().expect("there is a place");
    for _ in 0..REFUSED {
        assert!(connect().is_err(), "there is no place");
    }
    let mut log = server.log().into_iter();
    let redis = log.find(|line| line["message"] == "clients of Redis");
    let redis = redis.expect("it says where")["address"].clone();
    for _ in 0..REFUSED {
        let mut peer = TcpStream::connect(redis.as_str().unwrap()).unwrap();
        peer.write_all(b"PING\r\n").unwrap();
        let mut heard = String::new();
        peer.read_to_string(&mut heard).unwrap();
        assert!(heard.contains("max number of clients"), "{heard}");
    }
    // This line comes behind all others.
    server.send(Signal::HUP);
    let count = |what: &str| {
        let lines = server.log().into_iter();
        let said =
            lines.filter(|line| line["message"].as_str().is_some_and(|it| it.contains(what)));
        said.count()
    };
    await_condition(|| count("nothing to reload") == 1);
    assert_eq!(count("refused"), 1, "{:?}", server.log());
}
