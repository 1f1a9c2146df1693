//! Published lock scripts, called by their SHA-1 as their libraries do: what they do to locks and
//! fences, to native clients and to listeners. `scripts.rs` compares each answer with Redis's.

use crate::peer::Peer;
use crate::reply::{Reply, bulk, error, ok};
use crate::servers::Fencepost;
use fencepost::blocking::{Acquisition, Client, Guard};

const REDIS_PY_RELEASE: &str = "c3f8721cbb97f72bc19e972846bd7aaf91901658";
const REDIS_PY_EXTEND: &str = "a4e8783852e6b949f9ef3a97212805108459a890";
const REDLOCK_ACQUIRE: &str = "96da70f7716f27d278a5218544df37fd8b0a5e4c";
const REDLOCK_EXTEND: &str = "aed6f382e410db8ba7926d4e5e9aab410bf2a78a";
const REDLOCK_RELEASE: &str = "e4612211c9f8f51c257e26e056b0a654b3187242";
const SESAME_ACQUIRE: &str = "1b77b94aa78451d55dfa97e18819bfbfc596cb5b";
const BSM_OBTAIN: &str = "eb0c00d98f6f33b4262419a509002884540f30be";
const SPRING_OBTAIN: &str = "175897a4e379e99e79a54937be09226f76cdcfe5";
const SPRING_UNLOCK: &str = "7a71e9443a2a41539fb115a5a27d5a748a871aed";
const RUBY_TIME_LEFT: &str = "78d2ca48a6dc9ef6892059792a3a0c5237733d64";
const SIGNAL_UNLOCK: &str = "90da91872223f85eb1376a17e3c4df21ace8c54b";
const SIGNAL_RESET: &str = "afbc8014508f92e446b56567e8ba600e811c1bd5";
const SIGNAL_RESET_ALL: &str = "b121d3548d693116c3851b63befe947e49f28c7c";
const REDISSON_LOCK: &str = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
const REDISSON_UNLOCK: &str = "6866459238a13a701d42f4971f12d9f3a50e2442";
const REDISSON_FORCE: &str = "605e338249a7a1d40df83b04f7658354f883b41b";
const REDISSON_RENEW: &str = "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635";
const REDISSON_FENCED: &str = "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45";

fn start() -> (Fencepost, Peer) {
    let server = Fencepost::start();
    let peer = Peer::connect(&server.address());
    (server, peer)
}

/// Calls a script by its SHA-1: `KEYS , ARGV`, all in one line.
fn run(peer: &mut Peer, sha: &str, call: &str) -> Reply {
    let (keys, args) = call.split_once(',').unwrap_or((call, ""));
    let count = keys.split_whitespace().count();
    peer.say(&format!("EVALSHA {sha} {count} {keys} {args}"))
}

fn fence(peer: &mut Peer, key: &str) -> i64 {
    match peer.say(&format!("LOCK.FENCE {key}")) {
        Reply::Integer(fence) => fence,
        other => panic!("no fence: {other:?}"),
    }
}

/// A lock that a native client holds.
fn take_natively(server: &Fencepost, key: &str) -> (Client, Guard) {
    let client = Client::connect(server.server.local_addr().to_string()).expect("it listens");
    match client.try_acquire(client.lock(key)).expect("it answers") {
        Acquisition::Acquired(guard) => (client, guard),
        Acquisition::Held(contention) => panic!("{contention}"),
    }
}

#[test]
fn a_renewal_keeps_the_fence_and_the_next_holder_has_a_higher_one() {
    let (_server, mut peer) = start();
    peer.say("SET k token NX PX 60000");
    let first = fence(&mut peer, "k");
    assert_eq!(
        run(&mut peer, REDIS_PY_EXTEND, "k , token 60000 0"),
        Reply::Integer(1)
    );
    assert_eq!(
        run(&mut peer, REDLOCK_EXTEND, "k , token 60000"),
        Reply::Integer(1)
    );
    assert_eq!(
        run(&mut peer, SPRING_OBTAIN, "k , token 60000"),
        Reply::Integer(1)
    );
    assert_eq!(fence(&mut peer, "k"), first);
    assert_eq!(
        run(&mut peer, REDIS_PY_RELEASE, "k , other"),
        Reply::Integer(0)
    );
    assert_eq!(
        run(&mut peer, REDIS_PY_RELEASE, "k , token"),
        Reply::Integer(1)
    );
    assert_eq!(
        run(&mut peer, SPRING_OBTAIN, "k , token 60000"),
        Reply::Integer(1)
    );
    assert!(fence(&mut peer, "k") > first);
}

#[test]
fn another_value_of_the_same_holder_is_another_grant() {
    let (_server, mut peer) = start();
    assert_eq!(run(&mut peer, BSM_OBTAIN, "a b , token-one 5 60000"), ok());
    let first = fence(&mut peer, "a");
    assert_eq!(run(&mut peer, BSM_OBTAIN, "a b , token-one 5 60000"), ok());
    assert_eq!(fence(&mut peer, "a"), first, "the same value again");
    assert_eq!(run(&mut peer, BSM_OBTAIN, "a b , token-two 5 60000"), ok());
    assert!(fence(&mut peer, "a") > first);
    assert_eq!(peer.say("GET b"), bulk("token-two"));
    assert_eq!(
        run(&mut peer, BSM_OBTAIN, "a b , thief-two 5 60000"),
        Reply::NullBulk
    );
}

#[test]
fn many_keys_are_taken_all_or_none() {
    let (_server, mut peer) = start();
    peer.say("SET c other PX 60000");
    assert_eq!(
        run(&mut peer, REDLOCK_ACQUIRE, "a b c d , token 60000"),
        Reply::Integer(0)
    );
    assert_eq!(peer.say("EXISTS a b d"), Reply::Integer(0));
    peer.say("DEL c");
    assert_eq!(
        run(&mut peer, REDLOCK_ACQUIRE, "a b c d a , token 60000"),
        Reply::Integer(5)
    );
    assert_eq!(
        run(&mut peer, REDLOCK_EXTEND, "a b e , token 60000"),
        Reply::Integer(0)
    );
    assert_eq!(
        run(&mut peer, REDLOCK_RELEASE, "a b c d e a , token"),
        Reply::Integer(4)
    );
    assert_eq!(peer.say("DBSIZE"), Reply::Integer(0));
}

#[test]
fn what_was_granted_is_given_back_when_the_engine_has_no_room_for_the_rest() {
    let server = Fencepost::start_with(|builder| builder.with(|config| config.keys_max = 64));
    let mut peer = Peer::connect(&server.address());
    let keys: Vec<String> = (0..4_096).map(|number| format!("key-{number}")).collect();
    let call = format!("{} , token 60000", keys.join(" "));
    let Reply::Error(refusal) = run(&mut peer, REDLOCK_ACQUIRE, &call) else {
        panic!("so many keys are too many");
    };
    assert!(refusal.starts_with(b"OOM"), "{}", refusal.escape_ascii());
    assert_eq!(peer.say("DBSIZE"), Reply::Integer(0));
    // The first one had room in any case. The hash decides about the others, and it differs from
    // server to server.
    assert_eq!(
        run(&mut peer, REDLOCK_ACQUIRE, "key-0 , token 60000"),
        Reply::Integer(1)
    );
}

#[test]
fn an_end_that_is_now_releases() {
    let (_server, mut peer) = start();
    peer.say("SET k token PX 60000");
    assert_eq!(
        run(&mut peer, REDIS_PY_EXTEND, "k , token 0 1"),
        Reply::Integer(1)
    );
    assert_eq!(peer.say("GET k"), Reply::NullBulk);
    assert_eq!(
        run(&mut peer, REDISSON_LOCK, "h , 60000 me"),
        Reply::NullBulk
    );
    assert_eq!(
        run(&mut peer, REDISSON_LOCK, "h , 60000 me"),
        Reply::NullBulk
    );
    assert_eq!(
        run(&mut peer, REDISSON_RENEW, "h , -1 me"),
        Reply::Array(vec![Reply::Integer(1)])
    );
    assert_eq!(
        peer.say("TYPE h"),
        Reply::Simple("none".into()),
        "however often it was held"
    );
}

#[test]
fn a_mistake_among_the_numbers_changes_nothing() {
    let (_server, mut peer) = start();
    let not_a_number = error("ERR value is not an integer or out of range");
    assert_eq!(
        run(&mut peer, BSM_OBTAIN, "a b , token 5 soon"),
        not_a_number
    );
    assert_eq!(peer.say("DBSIZE"), Reply::Integer(0));
    peer.say("SET lock:a token");
    assert_eq!(
        run(
            &mut peer,
            SIGNAL_UNLOCK,
            "lock:a lock-signal:a , token soon"
        ),
        not_a_number
    );
    assert_eq!(peer.say("EXISTS lock:a lock-signal:a"), Reply::Integer(1));
}

#[test]
fn a_lock_of_a_native_client_is_held_for_every_script_and_released_by_none() {
    let (server, mut peer) = start();
    let (_client, guard) = take_natively(&server, "k");
    let Reply::Bulk(shown) = peer.say("GET k") else {
        panic!("something is shown");
    };
    let shown = String::from_utf8(shown).unwrap();
    for sha in [REDIS_PY_RELEASE, REDLOCK_RELEASE] {
        assert_eq!(
            run(&mut peer, sha, &format!("k , {shown}")),
            Reply::Integer(0)
        );
    }
    assert_eq!(
        run(&mut peer, REDLOCK_ACQUIRE, "k , token 60000"),
        Reply::Integer(0)
    );
    assert_eq!(
        run(&mut peer, SPRING_OBTAIN, "k , token 60000"),
        Reply::NullBulk
    );
    assert_eq!(
        run(&mut peer, BSM_OBTAIN, "k , token 0 60000"),
        Reply::NullBulk
    );
    let Reply::Integer(left_ms) = run(&mut peer, REDISSON_LOCK, "k , 60000 me") else {
        panic!("Redisson is told how long to wait");
    };
    assert!(left_ms > 0);
    assert_eq!(
        run(
            &mut peer,
            REDISSON_UNLOCK,
            "k ch latch , 0 1000 me publish 1000"
        ),
        Reply::NullBulk
    );
    assert!(guard.is_valid());
    guard.release().unwrap();
    assert_eq!(
        run(&mut peer, REDISSON_LOCK, "k , 60000 me"),
        Reply::NullBulk
    );
}

#[test]
fn a_lock_that_is_given_back_leaves_a_signal_for_one_who_waits() {
    let (server, mut peer) = start();
    let mut waiter = Peer::connect(&server.address());
    peer.say("SET lock:a token");
    waiter.send_command(["BLPOP", "lock-signal:a", "20"]);
    assert_eq!(
        run(
            &mut peer,
            SIGNAL_UNLOCK,
            "lock:a lock-signal:a , token 60000"
        ),
        Reply::Integer(0)
    );
    assert_eq!(
        waiter.receive(),
        Reply::Array(vec![bulk("lock-signal:a"), bulk("1")])
    );
    assert_eq!(
        run(
            &mut peer,
            SIGNAL_UNLOCK,
            "lock:a lock-signal:a , token 60000"
        ),
        Reply::Integer(1)
    );
    assert_eq!(
        peer.say("LLEN lock-signal:a"),
        Reply::Integer(0),
        "nothing was given back"
    );
}

#[test]
fn a_reset_finds_all_locks_of_its_database() {
    let (_server, mut peer) = start();
    for command in [
        "SET lock:a 1",
        "SET lock:b 2 PX 60000",
        "SET other 3",
        "SELECT 3",
        "SET lock:c 4",
    ] {
        assert_eq!(peer.say(command), ok());
    }
    assert_eq!(run(&mut peer, SIGNAL_RESET_ALL, ""), Reply::Integer(1));
    assert_eq!(peer.say("EXISTS lock:c"), Reply::Integer(0));
    peer.say("SELECT 0");
    assert_eq!(peer.say("EXISTS lock:a lock:b other"), Reply::Integer(3));
    assert_eq!(run(&mut peer, SIGNAL_RESET_ALL, ""), Reply::Integer(2));
    assert_eq!(peer.say("EXISTS lock:a lock:b other"), Reply::Integer(1));
    assert_eq!(peer.say("LLEN lock-signal:a"), Reply::Integer(1));
}

#[test]
fn redisson_counts_under_one_fence_and_tells_those_who_wait_when_it_is_free() {
    let (server, mut peer) = start();
    let mut listener = Peer::connect(&server.address());
    listener.say("SUBSCRIBE ch");
    assert_eq!(
        run(&mut peer, REDISSON_LOCK, "k , 60000 me"),
        Reply::NullBulk
    );
    let first = fence(&mut peer, "k");
    assert_eq!(
        run(&mut peer, REDISSON_LOCK, "k , 60000 me"),
        Reply::NullBulk
    );
    assert_eq!(fence(&mut peer, "k"), first);
    assert_eq!(peer.say("HGET k me"), bulk("2"));
    assert!(matches!(
        run(&mut peer, REDISSON_LOCK, "k , 60000 you"),
        Reply::Integer(1..)
    ));

    let unlock = |peer: &mut Peer, latch: &str, who: &str| {
        run(
            peer,
            REDISSON_UNLOCK,
            &format!("k ch {latch} , bye 60000 {who} publish 60000"),
        )
    };
    assert_eq!(unlock(&mut peer, "latch-1", "you"), Reply::NullBulk);
    assert_eq!(unlock(&mut peer, "latch-1", "me"), Reply::Integer(0));
    assert_eq!(
        unlock(&mut peer, "latch-1", "me"),
        Reply::Integer(0),
        "asked again, not done again"
    );
    assert_eq!(peer.say("HGET k me"), bulk("1"));
    assert_eq!(unlock(&mut peer, "latch-2", "me"), Reply::Integer(1));
    assert_eq!(
        unlock(&mut peer, "latch-2", "me"),
        Reply::Integer(1),
        "asked again"
    );
    assert_eq!(peer.say("EXISTS k"), Reply::Integer(0));
    assert_eq!(
        listener.receive(),
        Reply::Array(vec![bulk("message"), bulk("ch"), bulk("bye")])
    );
}

#[test]
fn the_token_of_a_fenced_lock_is_its_fence() {
    let (_server, mut peer) = start();
    let key = "redisson_lock_token:{k}";
    assert_eq!(peer.say(&format!("GET {key}")), Reply::NullBulk);
    let Reply::Array(granted) = run(&mut peer, REDISSON_FENCED, &format!("k {key} , 60000 me"))
    else {
        panic!("two numbers");
    };
    let token = fence(&mut peer, "k");
    assert_eq!(granted, [Reply::Integer(-1), Reply::Integer(token)]);
    assert_eq!(peer.say(&format!("GET {key}")), bulk(token.to_string()));
    assert_eq!(
        run(&mut peer, REDISSON_FENCED, &format!("k {key} , 60000 me")),
        Reply::Array(granted),
        "held once more, under the same fence"
    );
}

#[test]
fn a_channel_hears_of_a_lock_that_was_given_back() {
    let (server, mut peer) = start();
    let mut listener = Peer::connect(&server.address());
    listener.say("PSUBSCRIBE registry-*");
    assert_eq!(
        run(&mut peer, SPRING_OBTAIN, "k , me 60000"),
        Reply::Integer(1)
    );
    assert_eq!(
        run(&mut peer, SPRING_UNLOCK, "k , you registry-1"),
        Reply::NullBulk
    );
    assert_eq!(
        run(&mut peer, SPRING_UNLOCK, "k , me registry-1"),
        Reply::Integer(1)
    );
    let heard = ["pmessage", "registry-*", "registry-1", "k"].map(bulk);
    assert_eq!(listener.receive(), Reply::Array(heard.to_vec()));
}

#[test]
fn a_script_may_name_its_database() {
    let (_server, mut peer) = start();
    assert_eq!(
        run(&mut peer, SESAME_ACQUIRE, "k , 5 token 60000"),
        Reply::Integer(1)
    );
    assert_eq!(peer.say("GET k"), Reply::NullBulk);
    peer.say("SELECT 5");
    assert_eq!(peer.say("GET k"), bulk("token"));
    assert_eq!(
        run(&mut peer, SESAME_ACQUIRE, "k , 99 token 60000"),
        Reply::Integer(0)
    );
}

#[test]
fn where_only_owners_may_release_scripts_must_show_that_they_are() {
    let server = Fencepost::start_with(|builder| builder.with(|config| config.redis_strict = true));
    let mut peer = Peer::connect(&server.address());
    peer.say("SET lock:a token");
    run(&mut peer, REDISSON_LOCK, "h , 60000 me");
    for (sha, call) in [
        (SIGNAL_RESET, "lock:a lock-signal:a , x 1000"),
        (SIGNAL_RESET_ALL, ""),
        (REDISSON_FORCE, "h ch , 0 publish"),
        (SIGNAL_UNLOCK, "lock:a h , token 1000"),
    ] {
        let Reply::Error(refusal) = run(&mut peer, sha, call) else {
            panic!("{sha} was carried out");
        };
        assert!(refusal.starts_with(b"NOPERM"), "{}", refusal.escape_ascii());
    }
    assert_eq!(peer.say("EXISTS lock:a h lock-signal:a"), Reply::Integer(2));
    assert_eq!(
        run(
            &mut peer,
            SIGNAL_UNLOCK,
            "lock:a lock-signal:a , token 1000"
        ),
        Reply::Integer(0)
    );
    assert_eq!(
        run(
            &mut peer,
            REDISSON_UNLOCK,
            "h ch latch , 0 1000 me publish 1000"
        ),
        Reply::Integer(1)
    );
}

#[test]
fn scripts_that_only_look_may_be_sent_as_such() {
    let (_server, mut peer) = start();
    peer.say("SET k token");
    assert_eq!(
        peer.say(&format!("EVALSHA_RO {RUBY_TIME_LEFT} 1 k")),
        Reply::Array(vec![bulk("token"), Reply::Integer(-1)])
    );
    assert!(
        peer.say(&format!("EVALSHA_RO {REDIS_PY_RELEASE} 1 k token"))
            .is_error()
    );
    assert_eq!(peer.say("GET k"), bulk("token"));
}

#[test]
fn a_text_of_ones_own_is_known_by_its_meaning_and_then_by_its_sha() {
    let (_server, mut peer) = start();
    let text = "-- mine, so gone\nlocal t = redis.call(\"Get\", KEYS[1])\nif t == ARGV[1] then redis.call(\"Del\", KEYS[1]); return 1 end\nreturn 0";
    let Reply::Bulk(sha) = peer.call(["SCRIPT", "LOAD", text]) else {
        panic!("it is known");
    };
    let sha = String::from_utf8(sha).unwrap();
    peer.say("SET k token");
    assert_eq!(run(&mut peer, &sha, "k , other"), Reply::Integer(0));
    assert_eq!(run(&mut peer, &sha, "k , token"), Reply::Integer(1));

    let unknown = "return redis.call('incr', KEYS[1])";
    let Reply::Error(refusal) = peer.call(["EVAL", unknown, "1", "k"]) else {
        panic!("no Lua here");
    };
    let refusal = String::from_utf8(refusal).unwrap();
    assert!(refusal.contains("docs/redis.md"), "{refusal}");
    assert_eq!(peer.say("EXISTS k"), Reply::Integer(0));
}
