//! Transactions with commands whose keys depend on the commands in front of them: `SELECT`, `SCRIPT
//! LOAD`, and a script that looks for its keys by itself.
//!
//! Such a transaction once named its keys again while it held them, and the core waited for itself
//! for ever. Another one came to keys that it had not named, and panicked. Besides those stories
//! there is a property that needs no Redis: a transaction answers and leaves what its commands do
//! one by one.

use crate::command::{Arg, Command, to_bytes, transactions};
use crate::compare::{difference, name};
use crate::peer::{PATIENCE, Peer};
use crate::reply::{Reply, bulk, error, ok, simple};
use crate::scripts::settle;
use crate::servers::Fencepost;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestRunner};
use std::time::{Duration, Instant};

const RESET_ALL: &str = "b121d3548d693116c3851b63befe947e49f28c7c";

/// A spelling of compare-and-delete that no library has published, and its SHA-1.
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1]   then return redis.call('del',KEYS[1]) else return 0 end -- mine";
const RELEASE_SHA: &str = "fec5365bcc1dbe542dbfc84484b500a349ecc04d";

const SEQUENCES: u32 = 150;

/// The same sequences every time.
const SEED: u64 = 7400;

/// A list that a script leaves for a second must not end on one of two servers only.
const BRIEF_ENOUGH: Duration = Duration::from_millis(500);

fn queue(peer: &mut Peer, commands: &[&[&str]]) {
    assert_eq!(peer.say("MULTI"), ok());
    for command in commands {
        assert_eq!(peer.call(*command), simple("QUEUED"), "{command:?}");
    }
}

#[test]
fn a_transaction_that_resets_all_locks_is_answered_and_stops_no_core() {
    let server = Fencepost::start();
    let mut others: Vec<Peer> = (0..8).map(|_| Peer::connect(&server.address())).collect();
    let mut peer = Peer::connect(&server.address());
    assert_eq!(peer.say("SET lock:a token NX"), ok());
    queue(
        &mut peer,
        &[&["EVALSHA", RESET_ALL, "0"], &["SET", "x", "1"]],
    );
    assert_eq!(
        peer.say("EXEC"),
        Reply::Array(vec![Reply::Integer(1), ok()])
    );
    for other in &mut others {
        assert_eq!(other.say("EXISTS lock:a x"), Reply::Integer(1));
    }
    server.server.shutdown();
}

#[test]
fn all_locks_are_those_that_the_transaction_itself_has_taken_as_well() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    queue(
        &mut peer,
        &[
            &["SELECT", "3"],
            &["SET", "lock:mine", "token", "NX"],
            &["EVALSHA", RESET_ALL, "0"],
            &["EXISTS", "lock:mine"],
            &["LLEN", "lock-signal:mine"],
        ],
    );
    let replies = [
        ok(),
        ok(),
        Reply::Integer(1),
        Reply::Integer(0),
        Reply::Integer(1),
    ];
    assert_eq!(peer.say("EXEC"), Reply::Array(replies.to_vec()));
}

#[test]
fn a_database_that_is_not_there_is_an_error_inside_a_transaction_and_costs_no_place() {
    const PLACES: u32 = 4;
    let server =
        Fencepost::start_with(|builder| builder.with(|config| config.connections_max = PLACES));
    for number in 0..3 * PLACES {
        // An earlier connection's place is free a moment after it has closed.
        let deadline = Instant::now() + PATIENCE;
        let mut peer = loop {
            assert!(Instant::now() < deadline, "places are lost");
            let mut peer = Peer::connect(&server.address());
            if peer.say("PING") == simple("PONG") {
                break peer;
            }
        };
        let key = format!("k{number}");
        let set = |key| ["SET", key, "1"];
        let commands: [&[&str]; 4] = [&["SELECT", "99"], &set(&key), &set("l"), &set("m")];
        queue(&mut peer, &commands);
        let refused = error("ERR DB index is out of range");
        assert_eq!(
            peer.say("EXEC"),
            Reply::Array(vec![refused, ok(), ok(), ok()])
        );
        let value = peer.call(["GET", &key]);
        assert_eq!(value, bulk("1"), "the database is the old one");
    }
}

#[test]
fn a_script_that_the_transaction_has_loaded_finds_its_keys() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    let call = ["EVALSHA", RELEASE_SHA, "1", "absent", "token"];
    queue(&mut peer, &[&["SCRIPT", "LOAD", RELEASE], &call]);
    assert_eq!(
        peer.say("EXEC"),
        Reply::Array(vec![bulk(RELEASE_SHA), Reply::Integer(0)])
    );
    // After SCRIPT FLUSH in the same transaction, EVALSHA finds nothing, and EVAL works.
    let whole = ["EVAL", RELEASE, "1", "absent", "token"];
    queue(&mut peer, &[&["SCRIPT", "FLUSH"], &call, &whole, &call]);
    let none = error("NOSCRIPT No matching script. Please use EVAL.");
    assert_eq!(
        peer.say("EXEC"),
        Reply::Array(vec![ok(), none, Reply::Integer(0), Reply::Integer(0)])
    );
}

#[test]
fn what_looks_at_all_keys_is_refused_in_a_transaction_and_locks_nothing() {
    let server = Fencepost::start();
    let mut peer = Peer::connect(&server.address());
    assert_eq!(peer.say("LPUSH list 1"), Reply::Integer(1));
    queue(
        &mut peer,
        &[
            &["SET", "k", "1"],
            &["KEYS", "*"],
            &["DBSIZE"],
            &["FLUSHALL"],
            &["SCAN", "0"],
        ],
    );
    let Reply::Array(replies) = peer.say("EXEC") else {
        panic!("no answer to EXEC");
    };
    assert_eq!(replies[0], ok());
    assert!(replies[1..4].iter().all(Reply::is_error), "{replies:?}");
    assert!(!replies[4].is_error(), "{replies:?}");
    assert_eq!(peer.say("DBSIZE"), Reply::Integer(2));
    assert_eq!(peer.say("FLUSHDB"), ok());
    assert_eq!(peer.say("DBSIZE"), Reply::Integer(0));
}

#[test]
fn a_transaction_answers_and_leaves_what_its_commands_do_one_by_one() {
    let config = Config {
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        rng_seed: match Config::default().rng_seed {
            RngSeed::Random => RngSeed::Fixed(SEED),
            given => given,
        },
        ..Config::with_cases(SEQUENCES)
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&transactions(), |sequence| {
        // Each sequence has servers of its own: a script that was flushed never comes back.
        let servers = [Fencepost::start(), Fencepost::start()];
        let [mut whole, mut single] = servers
            .each_ref()
            .map(|server| Peer::connect(&server.address()));
        for commands in &sequence {
            let began = Instant::now();
            let verdict = compare(&mut whole, &mut single, commands);
            if began.elapsed() > BRIEF_ENOUGH {
                return Err(TestCaseError::reject("the machine is too slow to compare"));
            }
            verdict?;
            settle(&mut whole, &mut single);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Carries out some commands as a transaction and one by one, then compares all keys.
fn compare(whole: &mut Peer, single: &mut Peer, commands: &[Command]) -> Result<(), TestCaseError> {
    prop_assert_eq!(whole.say("MULTI"), ok());
    for command in commands {
        prop_assert_eq!(whole.call(to_bytes(command)), simple("QUEUED"));
    }
    let Reply::Array(together) = whole.say("EXEC") else {
        return Err(TestCaseError::fail("no answer to EXEC"));
    };
    let alone: Vec<Reply> = commands
        .iter()
        .map(|command| single.call(to_bytes(command)))
        .collect();
    prop_assert_eq!(together.len(), alone.len());
    for ((command, together), alone) in commands.iter().zip(&together).zip(&alone) {
        if let Some(difference) = difference(command, &[], alone, together) {
            return Err(TestCaseError::fail(difference));
        }
    }
    let keys = [whole, single].map(|peer| match peer.say("KEYS *") {
        Reply::Array(mut keys) => {
            keys.sort_by_key(|key| format!("{key:?}"));
            keys
        }
        other => panic!("{other:?} is no list of keys"),
    });
    prop_assert_eq!(&keys[0], &keys[1]);
    Ok(())
}

#[test]
fn every_kind_of_command_that_matters_is_among_those_that_are_tried() {
    let mut runner = TestRunner::deterministic();
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let sequence = transactions()
            .new_tree(&mut runner)
            .expect("a sequence")
            .current();
        for command in sequence.iter().flatten() {
            names.insert(name(command));
            if command.get(1) == Some(&Arg::Bytes(RESET_ALL.into())) {
                names.insert("reset_all".to_owned());
            }
        }
    }
    for wanted in ["select", "script", "evalsha", "reset_all", "set", "lpush"] {
        assert!(names.contains(wanted), "{wanted} is not among {names:?}");
    }
}
