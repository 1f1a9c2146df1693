//! Every recognised script, called in every way. It must answer and leave what Redis answers and
//! leaves for the same script in our own Lua ([`crate::meaning`]).
//!
//! `FENCEPOST_LUA_TEXTS` may name a directory with the published texts, each in a file named after
//! its SHA-1 and `.lua`. Then both servers are sent the texts themselves, here and in the random
//! sequences.

use crate::command::{Arg, Command, to_bytes};
use crate::compare::difference;
use crate::meaning::{Key, Meaning, PRELUDE, Value, meanings};
use crate::peer::Peer;
use crate::reply::{Reply, ok};
use crate::servers::{Fencepost, Redis};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use std::fmt;

const CALLS: u32 = 3_000;

/// All keys that scripts are given, but for numbers and channels.
pub(crate) const KEYS: [&str; 8] = [
    "k",
    "l",
    "{k}m",
    "lock:x",
    "s",
    "brief",
    "lock-signal:x",
    "latch",
];

/// Keys to which a script may give only a second.
pub(crate) const BRIEF: [&str; 2] = ["brief", "lock-signal:x"];

const TOKENS: [&str; 4] = ["a", "ab", "10", "\0\r\n"];

/// One call of a published script.
#[derive(Clone)]
pub(crate) struct Call {
    meaning: &'static Meaning,
    sha: &'static str,
    keys: Vec<String>,
    args: Vec<String>,
}

impl Call {
    /// The call in our own Lua, for a server that runs it.
    pub(crate) fn for_redis(&self) -> Vec<Vec<u8>> {
        let text = published_text(self.sha);
        let text = text.unwrap_or_else(|| format!("{PRELUDE}{}", self.meaning.body));
        self.command("EVAL", &text)
    }

    /// The call by SHA-1, for a server that knows the script.
    pub(crate) fn for_ours(&self) -> Vec<Vec<u8>> {
        match published_text(self.sha) {
            Some(text) => self.command("EVAL", &text),
            None => self.command("EVALSHA", self.sha),
        }
    }

    fn command(&self, name: &str, script: &str) -> Vec<Vec<u8>> {
        let count = self.keys.len().to_string();
        let head = [name, script, &count].map(str::as_bytes);
        let rest = self.keys.iter().chain(&self.args).map(String::as_bytes);
        head.into_iter().chain(rest).map(<[u8]>::to_vec).collect()
    }

    /// The call as the comparison of replies takes it.
    pub(crate) fn as_command(&self) -> Command {
        let bytes = self.command("EVALSHA", self.sha);
        bytes.into_iter().map(Arg::Bytes).collect()
    }

    /// Whether it may leave a list that ends within a second.
    pub(crate) fn is_brief(&self) -> bool {
        self.meaning.keys.is_empty() || self.meaning.keys.contains(&Key::BriefSignal)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sha, keys, args) = (self.sha, &self.keys, &self.args);
        write!(f, "script {sha} {keys:?} {args:?}")
    }
}

fn published_text(sha: &str) -> Option<String> {
    let directory = std::env::var_os("FENCEPOST_LUA_TEXTS")?;
    let path = std::path::Path::new(&directory).join(format!("{sha}.lua"));
    let text = std::fs::read_to_string(&path);
    Some(text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Whether arguments may be numbers that a script fails at. A Redis script that fails half-way
/// keeps what it has done, and ours does nothing. Where commands follow, that must not happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    Good,
    Any,
}

pub(crate) fn calls(numbers: Numbers) -> BoxedStrategy<Call> {
    let every = meanings().into_iter().map(|meaning| {
        let keys: Vec<_> = meaning.keys.iter().map(|key| keys(*key, numbers)).collect();
        let args: Vec<_> = meaning
            .args
            .iter()
            .map(|value| argument(*value, numbers))
            .collect();
        // Some arguments too few, now and then.
        let missing = match numbers {
            Numbers::Good => Just(0).boxed(),
            Numbers::Any => prop_oneof![9 => Just(0), 1 => 1..3_usize].boxed(),
        };
        (select(meaning.published.to_vec()), keys, args, missing)
            .prop_map(move |(sha, keys, mut args, missing)| {
                args.truncate(args.len().saturating_sub(missing));
                Call {
                    meaning,
                    sha,
                    keys: keys.concat(),
                    args,
                }
            })
            .boxed()
    });
    prop::strategy::Union::new(every).boxed()
}

fn keys(key: Key, numbers: Numbers) -> BoxedStrategy<Vec<String>> {
    let lock = || select(KEYS[..4].to_vec()).prop_map(str::to_owned);
    let one = match key {
        Key::Locks => return vec(lock(), 0..4).boxed(),
        Key::Lock => lock().boxed(),
        // A list where a lock might be, and a lock where a list is expected.
        Key::Signal => select(vec!["s", "s", "lock-signal:x", "k"])
            .prop_map(str::to_owned)
            .boxed(),
        Key::BriefSignal => Just("brief".to_owned()).boxed(),
        Key::Channel => Just("channel".to_owned()).boxed(),
        Key::Latch => Just("latch".to_owned()).boxed(),
        Key::Millis => millis(numbers)
            .prop_filter("no key is empty", |number| !number.is_empty())
            .boxed(),
    };
    one.prop_map(|key| vec![key]).boxed()
}

fn argument(value: Value, numbers: Numbers) -> BoxedStrategy<String> {
    match value {
        Value::Token => select(TOKENS.to_vec()).prop_map(str::to_owned).boxed(),
        Value::Millis => millis(numbers),
        Value::MillisOrNone => prop_oneof![3 => millis(numbers), 1 => Just(String::new())].boxed(),
        Value::Seconds => {
            let good = select(vec!["200", "400", "1000", "172800"]).prop_map(str::to_owned);
            any_or(good.boxed(), numbers)
        }
        Value::Length => {
            let good = select(vec!["0", "1", "2", "22"]).prop_map(str::to_owned);
            match numbers {
                Numbers::Good => good.boxed(),
                Numbers::Any => {
                    prop_oneof![9 => good, 1 => select(vec!["-1", "x", ""]).prop_map(str::to_owned)]
                        .boxed()
                }
            }
        }
        Value::Word(words) => select(words.to_vec()).prop_map(str::to_owned).boxed(),
        Value::Channel => Just("channel".to_owned()).boxed(),
    }
}

fn millis(numbers: Numbers) -> BoxedStrategy<String> {
    let good = select(vec!["200000", "400000", "1000000", "172800000"]).prop_map(str::to_owned);
    any_or(good.boxed(), numbers)
}

fn any_or(good: BoxedStrategy<String>, numbers: Numbers) -> BoxedStrategy<String> {
    let bad = [
        "0",
        "-1",
        "x",
        "",
        "1.5",
        "0200000",
        " 200000",
        "9223372036854775807",
        "-9223372036854775808",
    ];
    match numbers {
        Numbers::Good => good,
        Numbers::Any => {
            prop_oneof![3 => good, 1 => select(bad.to_vec()).prop_map(str::to_owned)].boxed()
        }
    }
}

/// What is at the keys before a script is called.
fn setup() -> impl Strategy<Value = Vec<Command>> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| Arg::Bytes((*word).into()))
            .collect::<Command>()
    };
    let key = || select(KEYS.to_vec());
    let token = || select(TOKENS.to_vec());
    let command = prop_oneof![
        3 => (key(), token()).prop_map(move |(key, token)| words(&["SET", key, token])),
        3 => (key(), token())
            .prop_map(move |(key, token)| words(&["SET", key, token, "PX", "600000"])),
        1 => (key(), token()).prop_map(move |(key, token)| words(&["LPUSH", key, token])),
        1 => select(vec!["0", "1"]).prop_map(move |db| words(&["SELECT", db])),
    ];
    vec(command, 0..5)
}

#[test]
fn scripts_answer_and_leave_what_redis_would() {
    let Some(redis) = Redis::start() else { return };
    let ours = Fencepost::start();
    let config = Config {
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        ..Config::with_cases(Config::default().cases.max(CALLS))
    };
    // Connecting for each call would take longer than the calls.
    let mut peers = [false, true].map(|is_v3| {
        [redis.address(), ours.address()].map(|address| match is_v3 {
            true => Peer::connect_v3(&address),
            false => Peer::connect(&address),
        })
    });
    let input = (
        any::<bool>(),
        setup(),
        // How often a lock of Redisson is taken first, and its holder.
        vec(select(TOKENS.to_vec()), 0..3),
        calls(Numbers::Any),
    );
    let peers = std::cell::RefCell::new(&mut peers);
    let result = TestRunner::new(config).run(&input, |(is_v3, setup, holders, call)| {
        let mut peers = peers.borrow_mut();
        let [redis, ours] = &mut peers[usize::from(is_v3)];
        for peer in [&mut *redis, &mut *ours] {
            assert_eq!(peer.say("FLUSHALL"), ok());
            assert_eq!(peer.say("SELECT 0"), ok());
            for command in &setup {
                peer.call(to_bytes(command));
            }
        }
        for holder in holders {
            let lock = Call::redisson("k", holder);
            redis.call(lock.for_redis());
            ours.call(lock.for_ours());
        }
        check(&call, redis, ours)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

impl Call {
    /// A lock that is a hash.
    fn redisson(key: &str, holder: &str) -> Call {
        let sha = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
        let mut meanings = meanings().into_iter();
        let meaning = meanings.find(|meaning| meaning.published.contains(&sha));
        Call {
            meaning: meaning.expect("it is in the table"),
            sha,
            keys: vec![key.to_owned()],
            args: vec!["600000".to_owned(), holder.to_owned()],
        }
    }
}

fn check(call: &Call, redis: &mut Peer, ours: &mut Peer) -> Result<(), TestCaseError> {
    let answers = [redis.call(call.for_redis()), ours.call(call.for_ours())];
    let command = call.as_command();
    if let Some(difference) = difference(&command, &[], &answers[0], &answers[1]) {
        return Err(TestCaseError::fail(difference));
    }
    // Ours does nothing where Redis stops half-way.
    if answers[0].is_error() {
        return Ok(());
    }
    for db in ["0", "1", "15"] {
        for peer in [&mut *redis, &mut *ours] {
            assert_eq!(peer.call(["SELECT", db]), ok());
        }
        let questions = questions();
        let bytes: Vec<_> = questions.iter().map(to_bytes).collect();
        let [redis, ours] = [&mut *redis, &mut *ours].map(|peer| {
            let commands = bytes.iter().map(|command| &command[..]);
            peer.call_all(commands)
        });
        for ((command, redis), ours) in questions.iter().zip(&redis).zip(&ours) {
            if let Some(difference) = difference(command, &[], redis, ours) {
                let after = format!("in database {db}, after {call:?}: {difference}");
                return Err(TestCaseError::fail(after));
            }
        }
    }
    Ok(())
}

/// Commands that show the state of all keys.
fn questions() -> Vec<Command> {
    let ask = |command: &[&str]| -> Command {
        let words = command.iter();
        words.map(|word| Arg::Bytes((*word).into())).collect()
    };
    let mut questions = vec![ask(&["KEYS", "*"])];
    for key in KEYS {
        // Keys that last a second are not asked for what changes within it.
        if !BRIEF.contains(&key) {
            questions.push(ask(&["PTTL", key]));
        }
        questions.push(ask(&["TYPE", key]));
        questions.push(ask(&["GET", key]));
        questions.push(ask(&["LLEN", key]));
        questions.extend(TOKENS.map(|token| ask(&["HGET", key, token])));
    }
    questions
}

/// Makes sure that what lasts a second is either there or gone on both servers, however busy the
/// machine is.
pub(crate) fn settle(redis: &mut Peer, ours: &mut Peer) {
    for key in BRIEF {
        let kept = [redis.call(["PERSIST", key]), ours.call(["PERSIST", key])];
        if kept[0] != kept[1] {
            redis.call(["DEL", key]);
            ours.call(["DEL", key]);
        }
        assert!(kept.iter().all(|reply| matches!(reply, Reply::Integer(_))));
    }
}
