//! Connections that have not introduced themselves: they have no place, a short life, and keep no
//! client out.

use crate::peer::{PATIENCE, Peer};
use crate::reply::{Reply, bulk, error, ok, simple};
use crate::servers::Fencepost;
use fencepost::Client;
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;
use tempfile::NamedTempFile;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Short enough to wait for.
const HELLO_TIMEOUT: Duration = Duration::from_millis(200);

fn token_file() -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    writeln!(file, "{TOKEN}").expect("it takes a line");
    file
}

fn start(connections_max: u32, tokens: Option<&NamedTempFile>) -> Fencepost {
    Fencepost::start_with(|builder| {
        builder.with(|config| {
            config.connections_max = connections_max;
            config.hello_timeout = HELLO_TIMEOUT;
            config.auth_token_file = tokens.map(|file| file.path().to_owned());
        })
    })
}

/// Twenty mute connections once took all places for ever, at a limit of twenty, and a client with a
/// valid token was refused.
#[test]
fn mute_connections_take_no_place_and_are_closed_in_time() {
    let tokens = token_file();
    let server = start(2, Some(&tokens));
    let mut mute: Vec<Peer> = (0..6).map(|_| Peer::connect(&server.address())).collect();
    let mut introduced = Peer::connect(&server.address());
    assert_eq!(introduced.call(["AUTH", TOKEN]), ok());
    let native = Client::builder()
        .address(server.server.local_addr().to_string())
        .connections(1)
        .token(TOKEN)
        .connect_blocking();
    assert!(native.is_ok(), "there is a place: {:?}", native.err());
    let mut wrong = Peer::connect(&server.address());
    assert!(wrong.call(["AUTH", "not this one"]).is_error());
    assert_eq!(wrong.say("PING"), error("NOAUTH Authentication required."));
    for peer in mute.iter_mut().chain([&mut wrong]) {
        assert_eq!(peer.try_receive(), None, "it is closed");
    }
    assert_eq!(
        introduced.say("PING"),
        simple("PONG"),
        "and this one is not"
    );
}

#[test]
fn of_too_many_mute_connections_the_oldest_gives_way() {
    /// A core bears as many strangers as there are places.
    const PLACES: u32 = 16;
    // None of them is too late before the test is over.
    let server = Fencepost::start_with(|builder| {
        let builder = builder.threads(1);
        builder.with(|config| config.connections_max = PLACES)
    });
    let connect = |_| Peer::connect(&server.address());
    let mut mute: Vec<Peer> = (0..=PLACES).map(connect).collect();
    assert_eq!(mute[0].try_receive(), None, "it is closed");
    assert_eq!(mute[1].say("PING"), simple("PONG"), "and this one is not");
}

#[test]
fn without_tokens_the_first_command_introduces_a_client() {
    let server = start(2, None);
    let mut first = Peer::connect(&server.address());
    assert_eq!(first.say("SET k token NX"), ok());
    let mut mute = Peer::connect(&server.address());
    assert_eq!(mute.try_receive(), None, "it is closed");
    assert_eq!(first.say("GET k"), bulk("token"), "and this one is not");
}

#[test]
fn a_client_beyond_the_limit_is_told_and_nothing_that_it_sends_is_done() {
    let tokens = token_file();
    for tokens in [None, Some(&tokens)] {
        let server = start(1, tokens);
        let enter = |peer: &mut Peer| match tokens {
            None => simple("PONG") == peer.say("PING"),
            Some(_) => ok() == peer.call(["AUTH", TOKEN]),
        };
        let mut first = Peer::connect(&server.address());
        assert!(enter(&mut first));
        let mut second = Peer::connect(&server.address());
        let refusal = error("ERR max number of clients reached");
        match tokens {
            None => assert_eq!(second.say("SET k theirs NX"), refusal),
            Some(_) => assert_eq!(second.call(["AUTH", TOKEN]), refusal),
        }
        assert_eq!(second.try_receive(), None);
        assert_eq!(first.say("EXISTS k"), Reply::Integer(0));
        assert_eq!(first.say("QUIT"), ok());
        drop(first);
        let deadline = std::time::Instant::now() + PATIENCE;
        while !enter(&mut Peer::connect(&server.address())) {
            assert!(
                std::time::Instant::now() < deadline,
                "its place is free again"
            );
        }
    }
}

/// Redis clients are not told that the server stops, and some ask again as soon as they have an
/// answer. A stop once took half of the grace period then, however long that was.
#[test]
fn a_stop_does_not_wait_for_clients_that_never_stop_asking() {
    let server = Fencepost::start_with(|builder| {
        builder.with(|config| config.shutdown_grace = Duration::from_secs(3_600))
    });
    let (send, begun) = mpsc::channel();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut peer = Peer::connect(&server.address());
            let send = send.clone();
            std::thread::spawn(move || {
                let ask = crate::peer::encode(["SET", "k", "token", "NX", "PX", "1000"]);
                while peer.try_send(&ask).is_ok() && peer.try_receive().is_some() {
                    let _ = send.send(());
                }
            })
        })
        .collect();
    for _ in 0..8 {
        begun.recv().expect("they ask");
    }
    let (send, stopped) = mpsc::channel();
    std::thread::spawn(move || {
        server.server.shutdown();
        send.send(())
    });
    stopped.recv_timeout(PATIENCE).expect("the server stops");
    for client in clients {
        client.join().expect("it was answered or cut off");
    }
}
