//! What Redis has since 8.4, and Valkey: comparisons in the command itself. The Redis in these
//! tests is older, so they are tested against their documentation.

use crate::peer::Peer;
use crate::reply::{Reply, bulk, ok};
use crate::servers::Fencepost;

#[test]
fn values_are_set_and_deleted_if_they_are_what_they_should_be() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    let integer = Reply::Integer;
    let steps: [(&str, Reply); 24] = [
        ("SET k v IFEQ v", Reply::NullBulk),
        ("EXISTS k", integer(0)),
        ("SET k v IFNE x", ok()),
        ("SET k w IFEQ x", Reply::NullBulk),
        ("SET k w IFEQ v PX 60000", ok()),
        ("GET k", bulk("w")),
        ("SET k x IFNE w", Reply::NullBulk),
        ("SET k x IFNE v GET", bulk("w")),
        ("SET k y IFEQ no GET", bulk("x")),
        ("GET k", bulk("x")),
        ("SET k y ifeq x ex 60 get", bulk("x")),
        ("TTL k", integer(60)),
        ("SET k y IFEQ y KEEPTTL", ok()),
        ("TTL k", integer(60)),
        ("DELEX k IFEQ x", integer(0)),
        ("DELEX k IFNE y", integer(0)),
        ("DELEX k IFNE x", integer(1)),
        ("DELEX k IFNE x", integer(0)),
        ("DELEX k", integer(0)),
        ("SET k v", ok()),
        ("DELEX k", integer(1)),
        ("SET k v NX", ok()),
        ("DELIFEQ k w", integer(0)),
        ("DELIFEQ k v", integer(1)),
    ];
    for (command, reply) in steps {
        assert_eq!(peer.say(command), reply, "{command}");
    }
    assert_eq!(peer.say("LPUSH list x"), integer(1));
    for command in ["SET list v IFEQ x", "DELEX list IFEQ x", "DELIFEQ list x"] {
        assert!(peer.say(command).is_error(), "{command}");
    }
    for command in [
        "SET k v IFEQ a IFNE b",
        "SET k v NX IFEQ a",
        "DELEX k IFEQ",
        "DELEX k NOPE a",
    ] {
        assert!(peer.say(command).is_error(), "{command}");
    }
}

#[test]
fn hello_and_info_say_what_clients_choose_by() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    let hello = peer.say("HELLO 3 SETNAME billing");
    assert_eq!(hello.field("version"), &bulk("8.4.0"));
    assert_eq!(hello.field("proto"), &Reply::Integer(3));
    assert_eq!(hello.field("mode"), &bulk("standalone"));
    assert_eq!(peer.say("CLIENT GETNAME"), bulk("billing"));
    let Reply::Verbatim(info) = peer.say("INFO") else {
        panic!("INFO is a text");
    };
    let info = String::from_utf8(info).expect("a text");
    for line in [
        "redis_version:8.4.0\r\n",
        "redis_mode:standalone\r\n",
        "loading:0\r\n",
        "role:master\r\n",
        "cluster_enabled:0\r\n",
    ] {
        assert!(info.contains(line), "{line:?} in {info}");
    }
    assert!(peer.say("HELLO 4").is_error());
    assert_eq!(peer.say("PING"), Reply::Simple(b"PONG".to_vec()));
}
