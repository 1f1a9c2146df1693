//! Hostile peers. Each gets Redis's own error where Redis has one, and no other client is
//! disturbed.

use crate::peer::{Peer, encode};
use crate::reply::{Reply, error, ok};
use crate::servers::Fencepost;

/// More than any one command may have.
const FLOOD_BYTES: usize = 1 << 20;

/// Sends bytes and expects this error, then the end. Another client must be served as before.
fn is_cut_off(server: &Fencepost, bystander: &mut Peer, bytes: &[u8], complaint: &str) {
    let mut peer = Peer::connect(&server.address());
    // The server may cut it off before it has sent everything.
    let _ = peer.try_send(bytes);
    if let Some(reply) = peer.try_receive() {
        assert_eq!(
            reply,
            error(complaint),
            "{}",
            bytes[..bytes.len().min(40)].escape_ascii()
        );
    }
    assert_eq!(peer.try_receive(), None, "{complaint}");
    assert_eq!(bystander.say("GET k"), Reply::Bulk(b"token".to_vec()));
}

#[test]
fn what_is_no_command_ends_its_connection_and_no_other() {
    let server = Fencepost::start();
    let mut bystander = Peer::connect(&server.address());
    assert_eq!(bystander.say("SET k token NX PX 600000"), ok());
    let multibulk = "ERR Protocol error: invalid multibulk length";
    let bulk = "ERR Protocol error: invalid bulk length";
    for (bytes, complaint) in [
        ("*x\r\n", multibulk),
        ("*99999999999999999999\r\n", multibulk),
        ("*1048577\r\n", multibulk),
        ("*1\r\n$-5\r\n", bulk),
        ("*1\r\n$x\r\n", bulk),
        ("*1\r\n$1073741824\r\n", bulk),
        (
            "*2\r\n$3\r\nGET\r\n*1\r\n",
            "ERR Protocol error: expected '$', got '*'",
        ),
        ("*1\r\n:5\r\n", "ERR Protocol error: expected '$', got ':'"),
        (
            "SET \"k v\r\n",
            "ERR Protocol error: unbalanced quotes in request",
        ),
    ] {
        is_cut_off(&server, &mut bystander, bytes.as_bytes(), complaint);
    }
    let endless = vec![b'a'; FLOOD_BYTES];
    is_cut_off(
        &server,
        &mut bystander,
        &endless,
        "ERR Protocol error: too big inline request",
    );
    let digits = [b"*".to_vec(), vec![b'1'; FLOOD_BYTES]].concat();
    is_cut_off(
        &server,
        &mut bystander,
        &digits,
        "ERR Protocol error: too big mbulk count string",
    );
    let digits = [b"*1\r\n$".to_vec(), vec![b'1'; FLOOD_BYTES]].concat();
    is_cut_off(
        &server,
        &mut bystander,
        &digits,
        "ERR Protocol error: too big bulk count string",
    );
}

#[test]
fn a_command_that_is_too_long_altogether_is_refused_before_it_is_kept() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    let argument = vec![b'x'; 60_000];
    let mut bytes = b"*40\r\n$4\r\nMGET\r\n".to_vec();
    for _ in 0..39 {
        bytes.extend(b"$60000\r\n");
        bytes.extend(&argument);
        bytes.extend(b"\r\n");
    }
    let _ = peer.try_send(&bytes);
    if let Some(reply) = peer.try_receive() {
        assert!(reply.is_error(), "{reply:?}");
    }
    assert_eq!(peer.try_receive(), None);
}

#[test]
fn deep_nesting_and_many_arguments_cost_nothing_but_an_error() {
    let server = Fencepost::start();
    let mut bystander = Peer::connect(&server.address());
    assert_eq!(bystander.say("SET k token NX PX 600000"), ok());
    let nested = "*1\r\n".repeat(10_000);
    is_cut_off(
        &server,
        &mut bystander,
        nested.as_bytes(),
        "ERR Protocol error: expected '$', got '*'",
    );
    let mut peer = Peer::connect(&server.address());
    let many = std::iter::once("EXISTS").chain(std::iter::repeat_n("k", 20_000));
    assert_eq!(peer.call(many), Reply::Integer(20_000));
}

#[test]
fn wrong_words_are_refused_one_by_one_and_the_connection_goes_on() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    for (command, complaint) in [
        ("GET", "ERR wrong number of arguments for 'get' command"),
        ("get a b", "ERR wrong number of arguments for 'get' command"),
        ("SET k", "ERR wrong number of arguments for 'set' command"),
        ("SET k v NX XX", "ERR syntax error"),
        ("SET k v EX", "ERR syntax error"),
        ("SET k v EX 1 PX 1", "ERR syntax error"),
        (
            "SET k v EX x",
            "ERR value is not an integer or out of range",
        ),
        ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
        ("SET k v PX -1", "ERR invalid expire time in 'set' command"),
        ("SELECT 16", "ERR DB index is out of range"),
        ("EXEC", "ERR EXEC without MULTI"),
        (
            "WAIT 0 0",
            "ERR unknown command 'WAIT', with args beginning with: '0' '0' ",
        ),
        (
            "CLUSTER NODES",
            "ERR This instance has cluster support disabled",
        ),
        (
            "CLIENT NOPE",
            "ERR unknown subcommand 'NOPE'. Try CLIENT HELP.",
        ),
        (
            "LOCK.ACQUIRE k me 0",
            "ERR invalid expire time in 'lock.acquire' command",
        ),
        ("LOCK.ACQUIRE k me 5 SOON", "ERR syntax error"),
        (
            "LOCK.RELEASE k me FENCE x",
            "ERR value is not an integer or out of range",
        ),
    ] {
        assert_eq!(peer.say(command), error(complaint), "{command}");
    }
    let nothing: Reply = peer.say("GET k");
    assert_eq!(nothing, Reply::NullBulk, "nothing was set on the way");
}

#[test]
fn keys_and_values_beyond_their_limits_are_refused_with_what_they_may_be() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    let long_key = vec![b'k'; 257];
    let reply = peer.call([&b"SET"[..], &long_key, b"v", b"NX"]);
    assert!(
        format!("{reply:?}").contains("a key has 1 to 256 bytes"),
        "{reply:?}"
    );
    let reply = peer.call([&b"SET"[..], b"", b"v"]);
    assert!(
        format!("{reply:?}").contains("a key has 1 to 256 bytes"),
        "{reply:?}"
    );
    let long_value = vec![b'v'; 1_021];
    let reply = peer.call([&b"SET"[..], b"k", &long_value, b"NX"]);
    assert!(
        format!("{reply:?}").contains("at most 1020 bytes"),
        "{reply:?}"
    );
    assert_eq!(
        peer.call([&b"SET"[..], b"k", &long_value[1..], b"NX"]),
        ok()
    );
    assert_eq!(peer.say("GET k"), Reply::Bulk(long_value[1..].to_vec()));
}

#[test]
fn a_command_in_pieces_is_one_command() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    for byte in encode(["SET", "k", "token", "NX", "PX", "60000"]) {
        peer.send(&[byte]);
    }
    assert_eq!(peer.receive(), ok());
    peer.send(b"\r\n\r\nget k\r\nPING\r\n*0\r\n*-1\r\nECHO \"a\\x41 b\"\r\n");
    assert_eq!(peer.receive(), Reply::Bulk(b"token".to_vec()));
    assert_eq!(peer.receive(), Reply::Simple(b"PONG".to_vec()));
    assert_eq!(peer.receive(), Reply::Bulk(b"aA b".to_vec()));
}

#[test]
fn who_leaves_in_the_middle_of_anything_leaves_nothing_behind() {
    let server = Fencepost::start();
    for beginning in [
        &b"*3\r\n$3\r\nSET\r\n$1\r\nk"[..],
        b"*2\r\n$5\r\nBLPOP",
        b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
        b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n",
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n",
    ] {
        Peer::connect(&server.address()).send(beginning);
    }
    let mut peer = Peer::connect(&server.address());
    assert_eq!(peer.say("SET k token NX PX 60000"), ok());
    assert_eq!(peer.say("DEL k"), Reply::Integer(1));
    assert_eq!(peer.say("LPUSH k signal"), Reply::Integer(1));
    let mut heard = Reply::Integer(1);
    while heard != Reply::Integer(0) {
        heard = peer.say("PUBLISH c anybody");
    }
}

#[test]
fn what_would_be_kept_or_compared_for_others_has_a_limit_that_is_named() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    let long = vec![b'x'; 60_000];
    let long_pattern = [&b"["[..], &long].concat();
    let commands: [(&[&[u8]], &str); 7] = [
        (
            &[b"PUBLISH", b"c", &long],
            "a message has at most 4096 bytes",
        ),
        (&[b"PUBLISH", &long, b"m"], "at most 1024 bytes"),
        (&[b"SUBSCRIBE", b"c", &long], "at most 1024 bytes"),
        (
            &[b"PSUBSCRIBE", &long_pattern],
            "a pattern has at most 1024 bytes",
        ),
        (
            &[b"KEYS", &long_pattern],
            "a pattern has at most 1024 bytes",
        ),
        (
            &[b"SCAN", b"0", b"MATCH", &long_pattern],
            "a pattern has at most 1024 bytes",
        ),
        (
            &[b"CONFIG", b"GET", &long_pattern],
            "a pattern has at most 1024 bytes",
        ),
    ];
    for (command, complaint) in commands {
        let reply = peer.call(command);
        assert!(reply.is_error(), "{reply:?}");
        assert!(format!("{reply:?}").contains(complaint), "{reply:?}");
    }
    let lists = (0..65).map(|number| format!("l{number}"));
    let many: Vec<String> = [String::from("BLPOP")]
        .into_iter()
        .chain(lists)
        .chain([String::from("1")])
        .collect();
    let reply = peer.call(&many);
    assert!(
        format!("{reply:?}").contains("at most 64 lists"),
        "{reply:?}"
    );

    // Empty arguments are kept too, and count.
    assert_eq!(peer.say("MULTI"), ok());
    let empty: Vec<&[u8]> = [&b"EXISTS"[..]]
        .into_iter()
        .chain(std::iter::repeat_n(&b""[..], 70_000))
        .collect();
    let reply = peer.call(&empty);
    assert!(
        format!("{reply:?}").contains("a transaction has at most"),
        "{reply:?}"
    );
    assert!(peer.say("EXEC").is_error());
    assert_eq!(peer.say("PING"), Reply::Simple(b"PONG".to_vec()));
}
