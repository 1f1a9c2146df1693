//! The Rust driver for Redis, which knows nothing of Fencepost.

use crate::peer::Address;
use crate::servers::Fencepost;
use redis::{Client, Connection, RedisResult, Script, Value, cmd, pipe};

fn connect(server: &Fencepost, parameters: &str) -> Connection {
    let Address::Tcp(address) = server.address() else {
        panic!("it listens on TCP");
    };
    let client = Client::open(format!("redis://{address}/{parameters}")).expect("a URL");
    client.get_connection().expect("it listens")
}

#[test]
fn a_lock_is_taken_refused_extended_and_given_back() {
    let server = Fencepost::start();
    for parameters in ["", "?protocol=resp3"] {
        let mut connection = connect(&server, parameters);
        let mut set = |token: &str| -> Option<String> {
            cmd("SET")
                .arg("k")
                .arg(token)
                .arg("NX")
                .arg("PX")
                .arg(60_000)
                .query(&mut connection)
                .expect("an answer")
        };
        assert_eq!(set("mine").as_deref(), Some("OK"));
        assert_eq!(set("theirs"), None);
        // Compare-and-delete, in a usual spelling.
        let release = Script::new(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        );
        let mut give_back = |token: &str| -> i64 {
            release
                .key("k")
                .arg(token)
                .invoke(&mut connection)
                .expect("an answer")
        };
        assert_eq!(give_back("theirs"), 0);
        assert_eq!(give_back("mine"), 1);
        let left: Option<String> = cmd("GET")
            .arg("k")
            .query(&mut connection)
            .expect("an answer");
        assert_eq!(left, None);
    }
}

#[test]
fn a_pipeline_is_answered_in_order_and_a_transaction_whole() {
    let server = Fencepost::start();
    let mut connection = connect(&server, "1");
    let (set, fence, value): (String, i64, String) = pipe()
        .cmd("SET")
        .arg("k")
        .arg("token")
        .arg("NX")
        .cmd("LOCK.FENCE")
        .arg("k")
        .cmd("GET")
        .arg("k")
        .query(&mut connection)
        .expect("answers");
    assert_eq!((&*set, &*value), ("OK", "token"));
    assert!(fence > 0);
    let (deleted, count): (i64, i64) = pipe()
        .atomic()
        .cmd("DEL")
        .arg("k")
        .cmd("EXISTS")
        .arg("k")
        .query(&mut connection)
        .expect("answers");
    assert_eq!((deleted, count), (1, 0));
}

#[test]
fn our_own_commands_are_there_for_any_driver() {
    let server = Fencepost::start();
    let mut connection = connect(&server, "");
    let acquire = |connection: &mut Connection, owner: &str| -> Option<(i64, i64)> {
        cmd("LOCK.ACQUIRE")
            .arg("k")
            .arg(owner)
            .arg(60_000)
            .query(connection)
            .expect("an answer")
    };
    let (fence, ttl_ms) = acquire(&mut connection, "me").expect("it was free");
    assert!(fence > 0 && ttl_ms > 0);
    assert_eq!(acquire(&mut connection, "you"), None);
    let released: i64 = cmd("LOCK.RELEASE")
        .arg("k")
        .arg("me")
        .arg("FENCE")
        .arg(fence)
        .query(&mut connection)
        .expect("an answer");
    assert_eq!(released, 1);
    let unknown: RedisResult<Value> = cmd("EVAL").arg("return 1").arg(0).query(&mut connection);
    let refusal = unknown.expect_err("it runs no Lua").to_string();
    assert!(refusal.contains("unknown script"), "{refusal}");
}
