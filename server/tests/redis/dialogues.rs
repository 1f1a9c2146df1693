//! Whole conversations with a real Redis and with ours, line by line: how connections open and end,
//! messages that no command asked for, and input that is no command.

use crate::peer::{Address, Peer, encode};
use crate::reply::Reply;
use crate::servers::{Fencepost, Redis};

/// Commands of one connection, each in one line. `>` in front waits for one more message than the
/// reply.
const DIALOGUES: &[&[&str]] = &[
    &["HELLO 4", "HELLO x", "HELLO 1", "PING"],
    &["HELLO 3 SETNAME", "HELLO 3 FOO", "HELLO 3 AUTH a"],
    &["HELLO 2 SETNAME me", "CLIENT GETNAME"],
    &[
        "CLIENT GETNAME",
        "CLIENT SETNAME me",
        "CLIENT GETNAME",
        "RESET",
        "CLIENT GETNAME",
    ],
    &[
        "CLIENT",
        "CLIENT SETNAME",
        "CLIENT GETNAME x",
        "CLIENT ID x",
    ],
    &[
        "SELECT 5", "SET k v", "RESET", "GET k", "SELECT 5", "GET k", "FLUSHALL", "GET k",
    ],
    &["AUTH secret", "AUTH default secret", "AUTH a b c", "AUTH"],
    &[
        "SUBSCRIBE a",
        ">SUBSCRIBE b c",
        "PING",
        "PING x",
        ">UNSUBSCRIBE a c",
        // Only one is left. Redis names several in the order of its hash table, which differs from
        // run to run.
        "UNSUBSCRIBE",
        "PING",
    ],
    &[
        "PSUBSCRIBE a*",
        "PUNSUBSCRIBE x*",
        "PUNSUBSCRIBE",
        "PUNSUBSCRIBE",
        "UNSUBSCRIBE",
    ],
    &["SUBSCRIBE a", "RESET", "GET k"],
    &[
        "SUBSCRIBE",
        "PSUBSCRIBE",
        "PUBLISH a",
        "PUBLISH a b c",
        "PUBLISH a b",
    ],
    &[
        "MULTI", "MULTI", "GET k", "DISCARD", "DISCARD", "EXEC", "EXEC",
    ],
    &["MULTI", "GET", "SET k v", "EXEC", "GET k"],
    &[
        "MULTI", "FOO", "DISCARD", "MULTI", "WATCH k", "SET k v", "EXEC", "GET k", "DEL k",
    ],
    &[
        "MULTI",
        "LPUSH k v",
        "GET k",
        "DEL k",
        "SET k v",
        "BLPOP l 0",
        "EXEC",
        "DEL k",
    ],
    &[
        "MULTI", "SELECT 3", "SET k v", "EXEC", "GET k", "DEL k", "SELECT 0", "GET k",
    ],
    &["MULTI", "RESET", "EXEC", "UNWATCH", "WATCH", "UNWATCH x"],
    &[
        "SCRIPT",
        "SCRIPT LOAD",
        "SCRIPT EXISTS",
        "SCRIPT FLUSH NOW",
        "SCRIPT FOO",
    ],
    &["SCRIPT EXISTS 0000000000000000000000000000000000000000 x"],
    &[
        "EVALSHA 0000000000000000000000000000000000000000 0",
        "EVALSHA x 0",
        "EVAL x",
    ],
    &["EVALSHA x -1", "EVALSHA x 1", "EVALSHA x y k"],
    &[
        "EVALSHA 0000000000000000000000000000000000000000 -1 k",
        "EVALSHA 0000000000000000000000000000000000000000 2 k",
    ],
    &[
        "SCAN",
        "SCAN x",
        "SCAN 0 COUNT",
        "SCAN 0 COUNT x",
        "SCAN 0 COUNT 0",
        "SCAN 0 FOO 1",
    ],
    &[
        "KEYS",
        "KEYS a b",
        "DBSIZE x",
        "FLUSHDB FOO",
        "FLUSHALL ASYNC",
        "FLUSHDB SYNC",
        "DBSIZE",
    ],
    &[
        "CONFIG GET",
        "CONFIG FOO",
        "TIME x",
        "ROLE x",
        "ECHO",
        "ECHO a b",
        "PING a b",
    ],
    &["COMMAND FOO", "QUIT", "PING"],
    &[
        "TYPE k",
        "SADD k a b a",
        "TYPE k",
        "LPUSH k v",
        "LLEN k",
        "BLPOP k 1",
        "GET k",
        "DEL k",
    ],
    &[
        "HGET k",
        "HGET k f",
        "HEXISTS k f",
        "SET k v",
        "HGET k f",
        "HEXISTS k f",
        "DEL k",
    ],
];

#[test]
fn conversations_go_as_with_redis() {
    let Some(redis) = Redis::start() else { return };
    let ours = Fencepost::start();
    let mut differences = Vec::new();
    for dialogue in DIALOGUES {
        for hello in ["HELLO 2", "HELLO 3"] {
            let lines = [&[hello], *dialogue].concat();
            let [redis, ours] =
                [redis.address(), ours.address()].map(|address| talk(&address, &lines));
            if redis != ours {
                differences.push(format!("Redis: {redis:#?}\n ours: {ours:#?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What is answered, line by line.
fn talk(address: &Address, lines: &[&str]) -> Vec<String> {
    let mut peer = Peer::connect(address);
    let mut heard = Vec::new();
    for line in lines {
        let (count, command) = match line.strip_prefix('>') {
            Some(command) => (2, command),
            None => (1, *line),
        };
        // After QUIT the connection may be closed already.
        let _ = peer.try_send(&encode(command.split_whitespace()));
        for _ in 0..count {
            heard.push(match peer.try_receive() {
                None => format!("{line}: the end"),
                Some(reply) if command.starts_with("HELLO") && !reply.is_error() => {
                    // The server's name and version differ.
                    let fields = ["proto", "mode", "role", "modules"];
                    format!("{line}: {:?}", fields.map(|field| reply.field(field)))
                }
                Some(reply) => format!("{line}: {reply:?}"),
            });
        }
    }
    heard
}

/// Bytes on a new connection. After an error the server closes it. The others end with QUIT.
const STREAMS: &[&str] = &[
    "*1\r\n$4\r\nPING\r\nPING\r\n\r\n*0\r\n*-1\r\nping\r\n",
    "PING\nECHO 'a b'\nECHO \"a\\x41\\n\"\n",
    "  PING  \r\n\t\r\n",
    "ECHO \"\"\r\nECHO ''\r\nECHO a\"b\"\r\n",
    "ECHO \"a\r\n",
    "ECHO 'a\r\n",
    "ECHO \"a\"b\r\n",
    "*x\r\n",
    "*+1\r\n",
    "*01\r\n",
    "*\r\n",
    "*2147483648\r\n",
    "*9223372036854775808\r\n",
    "*1\r\n$-1\r\n",
    "*1\r\n$-5\r\n",
    "*1\r\n$x\r\n",
    "*1\r\n$\r\n",
    "*1\r\n$99999999999\r\n",
    "*1\r\n+PING\r\n",
    "*1\r\n*1\r\n$4\r\nPING\r\n",
    "*1\r\n\r\n",
    "*2\r\n$4\r\nECHO\r\n:5\r\n",
    "*2\r\n$4\r\nECHO\r\n$1\r\nab\r\n",
    "*1\r\n$0\r\n\r\n",
    "*1\r\n$4\r\nPINGxx",
    "+PING\r\n",
    "$4\r\nPING\r\n",
    "GET / HTTP/1.1\r\n",
];

#[test]
fn what_is_no_command_is_answered_as_by_redis() {
    let Some(redis) = Redis::start() else { return };
    let ours = Fencepost::start();
    let mut differences = Vec::new();
    for stream in STREAMS {
        let [redis, ours] = [redis.address(), ours.address()].map(|address| {
            let mut peer = Peer::connect(&address);
            peer.send(format!("{stream}QUIT\r\n").as_bytes());
            let mut heard: Vec<Reply> = Vec::new();
            while let Some(reply) = peer.try_receive() {
                heard.push(reply);
            }
            heard
        });
        if redis != ours {
            let stream = stream.escape_debug();
            differences.push(format!("{stream}\n  Redis: {redis:?}\n   ours: {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
