//! Random sequences of commands to a real Redis and to ours. Every reply must be the same, its type
//! included. [`crate::compare`] names the differences on purpose, with their reasons.
//!
//! A sequence that fails is shortened and printed, and its seed is kept beside this file. The
//! sequences are the same every time. `PROPTEST_RNG_SEED` chooses others, and `PROPTEST_CASES` how
//! many are tried.

use crate::command::{Command, Step, steps, to_bytes};
use crate::compare::{NOT_IN_TRANSACTIONS, difference, name};
use crate::peer::{Address, PATIENCE, Peer};
use crate::reply::{Reply, error, ok, simple};
use crate::scripts::{Call, settle};
use crate::servers::{Fencepost, Redis};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestRunner};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const SEQUENCES: u32 = 300;

/// The same sequences every time, so that a change is judged by its effect and not by chance.
const SEED: u64 = 7400;

/// More pages than any server needs for a handful of keys.
const PAGES_MAX: usize = 10_000;

#[test]
fn random_commands_are_answered_as_by_redis() {
    let Some(redis) = Redis::start() else { return };
    let ours = Fencepost::start();
    let config = Config {
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        max_shrink_iters: 3_000,
        rng_seed: match Config::default().rng_seed {
            RngSeed::Random => RngSeed::Fixed(SEED),
            given => given,
        },
        ..Config::with_cases(Config::default().cases.max(SEQUENCES))
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&steps(), |steps| {
        let mut pair = Pair::connect(&redis.address(), &ours.address());
        for step in &steps {
            pair.take(step)?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The same two connections to both servers.
pub(crate) struct Pair {
    redis: [Peer; 2],
    ours: [Peer; 2],
    /// The transaction that a connection has begun.
    queued: [Option<Vec<Command>>; 2],
    /// Whether a connection may be watching keys.
    is_watching: bool,
    /// The two servers may differ from here on, which ends the sequence.
    is_over: bool,
}

impl Pair {
    /// Empties both servers. The second connection speaks the newer version.
    pub(crate) fn connect(redis: &Address, ours: &Address) -> Pair {
        let both = |address: &Address| {
            let mut first = Peer::connect(address);
            assert_eq!(first.say("FLUSHALL"), ok());
            [first, Peer::connect_v3(address)]
        };
        Pair {
            redis: both(redis),
            ours: both(ours),
            queued: [None, None],
            is_watching: false,
            is_over: false,
        }
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        if self.is_over {
            return Ok(());
        }
        match step {
            Step::Send {
                connection,
                command,
            } => self.send(*connection, command),
            Step::Lapse { connection, key } => self.lapse(*connection, key),
            Step::Script { connection, call } => self.call(*connection, call),
            Step::Scan { connection } => self.scan(*connection),
        }
    }

    fn send(&mut self, connection: usize, command: &Command) -> Result<(), TestCaseError> {
        if self.queued[connection].is_some() && NOT_IN_TRANSACTIONS.contains(&&*name(command)) {
            return Ok(());
        }
        let bytes = to_bytes(command);
        let redis = self.redis[connection].call(&bytes);
        let ours = self.ours[connection].call(&bytes);
        let queued = &mut self.queued[connection];
        let carried_out = queued.as_deref().unwrap_or_default();
        if let Some(difference) = difference(command, carried_out, &redis, &ours) {
            return Err(TestCaseError::fail(difference));
        }
        let has_failed = match &redis {
            Reply::Array(replies) if name(command) == "exec" => carried_out
                .iter()
                .zip(replies)
                .any(|(command, reply)| has_stopped(command, reply)),
            _ => false,
        };
        match (&*name(command), &redis) {
            ("multi", reply) if *reply == ok() => *queued = Some(Vec::new()),
            ("exec", _) => *queued = None,
            ("discard", reply) if *reply == ok() => *queued = None,
            ("watch", _) => self.is_watching = true,
            (_, reply) if *reply == simple("QUEUED") => {
                queued.get_or_insert_default().push(command.clone());
            }
            _ => {}
        }
        if has_failed {
            self.start_over(connection);
        }
        Ok(())
    }

    fn call(&mut self, connection: usize, call: &Call) -> Result<(), TestCaseError> {
        let queued = &mut self.queued[connection];
        if queued.is_some() && call.is_brief() {
            return Ok(());
        }
        let (redis, ours) = (&mut self.redis[connection], &mut self.ours[connection]);
        let answers = [redis.call(call.for_redis()), ours.call(call.for_ours())];
        let command = call.as_command();
        if let Some(difference) = difference(&command, &[], &answers[0], &answers[1]) {
            return Err(TestCaseError::fail(difference));
        }
        match queued {
            Some(queued) => queued.push(command),
            None if has_stopped(&command, &answers[0]) => self.start_over(connection),
            None if call.is_brief() => settle(redis, ours),
            None => {}
        }
        Ok(())
    }

    /// Starts again after a script has failed. Redis keeps what the script had done until then;
    /// ours has done nothing.
    fn start_over(&mut self, connection: usize) {
        if self.is_watching {
            self.is_over = true;
            return;
        }
        for peer in [&mut self.redis[connection], &mut self.ours[connection]] {
            assert_eq!(peer.say("FLUSHALL"), ok());
        }
    }

    fn scan(&mut self, connection: usize) -> Result<(), TestCaseError> {
        if self.queued[connection].is_some() {
            return Ok(());
        }
        let redis = scan(&mut self.redis[connection]);
        let ours = scan(&mut self.ours[connection]);
        prop_assert_eq!(redis, ours);
        Ok(())
    }

    fn lapse(&mut self, connection: usize, key: &[u8]) -> Result<(), TestCaseError> {
        if self.queued[connection].is_some() {
            return Ok(());
        }
        let (redis, ours) = (&mut self.redis[connection], &mut self.ours[connection]);
        let soon: [&[u8]; 3] = [b"PEXPIRE", key, b"1"];
        let answers = [redis.call(soon), ours.call(soon)];
        prop_assert_eq!(&answers[0], &answers[1]);
        for peer in [redis, ours] {
            let deadline = Instant::now() + PATIENCE;
            while peer.call([b"EXISTS", key]) != Reply::Integer(0) {
                prop_assert!(Instant::now() < deadline, "a key does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// All keys that `SCAN` finds. Their number on a page and their order may differ.
fn scan(peer: &mut Peer) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    for _ in 0..PAGES_MAX {
        let reply = peer.call([b"SCAN", &cursor[..], b"COUNT", b"3"]);
        let Reply::Array(parts) = &reply else {
            panic!("{reply:?} is no page");
        };
        let [Reply::Bulk(next), Reply::Array(page)] = &parts[..] else {
            panic!("{reply:?} is no page");
        };
        keys.extend(page.iter().map(|key| match key {
            Reply::Bulk(key) => key.clone(),
            other => panic!("{other:?} is no key"),
        }));
        if next == b"0" {
            return keys;
        }
        cursor.clone_from(next);
    }
    panic!("a scan does not end");
}

/// Whether this is the error of a script that stopped half-way.
fn has_stopped(command: &Command, reply: &Reply) -> bool {
    // The error that one library's scripts return on purpose.
    name(command) == "evalsha" && reply.is_error() && *reply != error("ERR ERROR")
}
