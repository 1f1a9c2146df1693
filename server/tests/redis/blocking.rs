//! Commands that make their connection wait, and what wakes it: lists, channels, transactions.

use crate::peer::Peer;
use crate::reply::{Reply, bulk, ok};
use crate::servers::Fencepost;

fn integer(value: i64) -> Reply {
    Reply::Integer(value)
}

fn pair(key: &str, element: &str) -> Reply {
    Reply::Array(vec![bulk(key), bulk(element)])
}

/// Waits until a peer is queued for `key`. Then that peer takes a signal, and not the test.
fn until_waiting(observer: &mut Peer, key: &str) {
    loop {
        observer.say(&format!("LPUSH {key} probe"));
        if observer.say(&format!("BLPOP {key} 0.01")) == Reply::NullArray {
            return;
        }
    }
}

#[test]
fn elements_go_to_those_who_wait_in_order_of_arrival() {
    let server = Fencepost::start();
    let mut pushes = Peer::connect(&server.address());
    let mut first = Peer::connect(&server.address());
    first.send_command(["BLPOP", "list", "0"]);
    until_waiting(&mut pushes, "list");
    assert_eq!(first.receive(), pair("list", "probe"));
    first.send_command(["BLPOP", "other", "list", "0"]);
    until_waiting(&mut pushes, "list");
    assert_eq!(first.receive(), pair("list", "probe"));
    assert_eq!(pushes.say("LLEN list"), integer(0));
    assert_eq!(pushes.say("EXISTS list"), integer(0));
}

#[test]
fn waiting_for_a_list_ends_with_its_time() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    assert_eq!(peer.say("BLPOP list 0.01"), Reply::NullArray);
    let mut peer = Peer::connect_v3(&server.address());
    assert_eq!(peer.say("BLPOP list 0.01"), Reply::Null);
    assert_eq!(
        peer.say("PING"),
        Reply::Simple(b"PONG".to_vec()),
        "and goes on"
    );
}

#[test]
fn what_comes_behind_a_command_that_waits_is_answered_behind_it() {
    let server = Fencepost::start();
    let mut pushes = Peer::connect(&server.address());
    let mut waits = Peer::connect(&server.address());
    waits.send(b"BLPOP list 0\r\nECHO behind\r\n");
    until_waiting(&mut pushes, "list");
    assert_eq!(waits.receive(), pair("list", "probe"));
    assert_eq!(waits.receive(), bulk("behind"));
}

#[test]
fn messages_reach_those_who_listen_in_the_words_of_their_version() {
    let server = Fencepost::start();
    let mut speaks = Peer::connect(&server.address());
    let mut old = Peer::connect(&server.address());
    let mut new = Peer::connect_v3(&server.address());
    let told = |word: &str, name: &str, count: i64| vec![bulk(word), bulk(name), integer(count)];
    assert_eq!(
        old.say("SUBSCRIBE news"),
        Reply::Array(told("subscribe", "news", 1))
    );
    assert_eq!(
        new.say("PSUBSCRIBE n*"),
        Reply::Push(told("psubscribe", "n*", 1))
    );
    assert_eq!(speaks.say("PUBLISH news free"), integer(2));
    assert_eq!(
        old.receive(),
        Reply::Array(vec![bulk("message"), bulk("news"), bulk("free")])
    );
    let heard = vec![bulk("pmessage"), bulk("n*"), bulk("news"), bulk("free")];
    assert_eq!(new.receive(), Reply::Push(heard));
    assert!(
        old.say("GET k").is_error(),
        "only listening, in the old version"
    );
    assert_eq!(new.say("GET k"), Reply::Null);
    assert_eq!(
        old.say("SUBSCRIBE weather"),
        Reply::Array(told("subscribe", "weather", 2))
    );
    assert_eq!(
        old.say("UNSUBSCRIBE"),
        Reply::Array(told("unsubscribe", "news", 1)),
        "all, one by one"
    );
    assert_eq!(
        old.receive(),
        Reply::Array(told("unsubscribe", "weather", 0))
    );
    assert_eq!(old.say("GET k"), Reply::NullBulk);
    assert_eq!(new.say("RESET"), Reply::Simple(b"RESET".to_vec()));
    assert_eq!(speaks.say("PUBLISH news free"), integer(0));
}

#[test]
fn a_transaction_is_carried_out_whole_unless_what_it_watches_has_changed() {
    let server = Fencepost::start();
    let mut one = Peer::connect(&server.address());
    let mut other = Peer::connect(&server.address());
    assert_eq!(one.say("SET k mine NX PX 60000"), ok());
    assert_eq!(one.say("WATCH k"), ok());
    assert_eq!(one.say("MULTI"), ok());
    assert_eq!(one.say("DEL k"), Reply::Simple(b"QUEUED".to_vec()));
    assert_eq!(
        one.say("SET k again NX PX 60000"),
        Reply::Simple(b"QUEUED".to_vec())
    );
    assert_eq!(one.say("EXEC"), Reply::Array(vec![integer(1), ok()]));
    for change in ["SET k theirs", "PEXPIRE k 50000", "DEL k", "LPUSH k x"] {
        assert_eq!(one.say("WATCH k"), ok());
        assert!(!other.say(change).is_error());
        assert_eq!(one.say("MULTI"), ok());
        one.say("SET k mine");
        assert_eq!(one.say("EXEC"), Reply::NullArray, "{change}");
    }
    assert_eq!(one.say("MULTI"), ok());
    assert!(one.say("NOPE").is_error());
    assert!(
        one.say("EXEC").is_error(),
        "what could not be queued spoils it"
    );
}
