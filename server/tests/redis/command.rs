//! Random commands: what lock clients send, what they might send, and what no client should.
//!
//! Few keys, values and databases, so that commands meet. No time to live is short enough to end
//! while a test runs. [`Step::Lapse`] ends a key where one has to end.

use crate::scripts::{self, Call, Numbers};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// One argument.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Arg {
    Bytes(Vec<u8>),
    /// A Unix time, so many seconds after the command is sent.
    UnixSeconds(i64),
    UnixMillis(i64),
}

impl Arg {
    fn text(text: &str) -> Arg {
        Arg::Bytes(text.into())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.expect("after 1970").as_millis() as i64;
        match self {
            Arg::Bytes(bytes) => bytes.clone(),
            Arg::UnixSeconds(from_now) => (now_ms / 1_000 + from_now).to_string().into(),
            Arg::UnixMillis(from_now) => (now_ms + from_now).to_string().into(),
        }
    }
}

/// Its name and its arguments.
pub(crate) type Command = Vec<Arg>;

/// What to send, the same to both servers.
pub(crate) fn to_bytes(command: &Command) -> Vec<Vec<u8>> {
    command.iter().map(Arg::to_bytes).collect()
}

#[derive(Clone)]
pub(crate) enum Step {
    /// One of the two connections, which speak different versions, sends a command.
    Send { connection: usize, command: Command },
    /// Gives a key of the connection's database a short end, if it exists, and waits for it.
    Lapse { connection: usize, key: Vec<u8> },
    /// A connection calls a script, if it is in no transaction.
    Script { connection: usize, call: Call },
    /// Scans all keys of the connection's database, page after page.
    Scan { connection: usize },
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (0..2_usize, command()).prop_map(|(connection, command)| Step::Send {
            connection,
            command
        }),
        1 => (0..2_usize, key()).prop_map(|(connection, key)| {
            let Arg::Bytes(key) = key else { unreachable!("keys are bytes") };
            Step::Lapse { connection, key }
        }),
        10 => (0..2_usize, scripts::calls(Numbers::Good))
            .prop_map(|(connection, call)| Step::Script { connection, call }),
        1 => (0..2_usize).prop_map(|connection| Step::Scan { connection }),
    ];
    vec(step, 1..80)
}

/// Commands for several transactions. Those that depend on the commands before them come more often
/// than chance would have it.
pub(crate) fn transactions() -> impl Strategy<Value = Vec<Vec<Command>>> {
    let all = || {
        prop_oneof![
            4 => set(),
            4 => strings(),
            2 => expiry(),
            3 => lists(),
            2 => connection(),
            2 => loading(),
            1 => flushing(),
            2 => scripts::calls(Numbers::Good)
                .prop_filter("it leaves what ends by itself", |call| !call.is_brief())
                .prop_map(|call| call.as_command()),
            2 => of([named("EVALSHA"), named(RESET_ALL), named("0")]),
        ]
        .prop_filter("it looks at all keys", |command| {
            command[0] != Arg::text("FLUSHDB")
        })
    };
    vec(vec(all(), 1..12), 1..5)
}

/// Resets all locks. It finds its keys by itself.
const RESET_ALL: &str = "b121d3548d693116c3851b63befe947e49f28c7c";

/// Scripts in spellings that no library has published, so that they have to be loaded, and their
/// SHA-1.
const LOADED: [(&str, &str); 2] = [
    (
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end -- anew",
        "4ae524e5e43e2a7627b4ad962bacbda6257b2701",
    ),
    (
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end -- anew",
        "673bf51f0d7a26b19d7851b0ab9e520e17beaec1",
    ),
];

/// Loads a script, or calls one whether it is loaded or not.
fn loading() -> BoxedStrategy<Command> {
    let texts = LOADED.map(|(text, _)| text);
    let shas = LOADED.map(|(_, sha)| sha);
    prop_oneof![
        1 => of([named("SCRIPT"), named("LOAD"), word(&texts)]),
        1 => of([named("SCRIPT"), named("EXISTS"), word(&shas)]),
        3 => of([
            named("EVALSHA"),
            word(&shas),
            named("1"),
            key().boxed(),
            value().boxed(),
            select(TTLS[..4].to_vec())
                .prop_map(|ttl| Arg::text(&(ttl * 1_000).to_string()))
                .boxed(),
        ]),
    ]
    .boxed()
}

/// Forgets all scripts.
fn flushing() -> BoxedStrategy<Command> {
    of([
        named("SCRIPT"),
        named("FLUSH"),
        word(&["SYNC", "ASYNC", "NOW"]),
    ])
}

// ---- arguments

fn key() -> impl Strategy<Value = Arg> + Clone {
    prop_oneof![
        8 => select(vec!["k", "l", "{k}m"]).prop_map(Arg::text),
        2 => select(scripts::KEYS.to_vec()).prop_map(Arg::text),
        1 => Just(Arg::Bytes(b"\0\r\n\xff k".to_vec())),
        1 => Just(Arg::Bytes(vec![b'K'; 200])),
    ]
}

fn value() -> impl Strategy<Value = Arg> + Clone {
    prop_oneof![
        8 => select(vec!["a", "b", "10"]).prop_map(Arg::text),
        1 => Just(Arg::text("")),
        1 => Just(Arg::Bytes(b"\0\r\n\xff".to_vec())),
        1 => Just(Arg::Bytes(vec![b'v'; 200])),
    ]
}

/// Some times to live in seconds, far from each other, so that a slow test cannot confuse two. The
/// last is the longest that redlock's own tests ask for.
const TTLS: [i64; 5] = [200, 400, 1_000, 172_800, 2_702_159_776_422];

fn seconds() -> impl Strategy<Value = Arg> + Clone {
    prop_oneof![
        8 => select(TTLS.to_vec()).prop_map(|ttl| Arg::text(&ttl.to_string())),
        1 => no_number(),
    ]
}

fn millis() -> impl Strategy<Value = Arg> + Clone {
    prop_oneof![
        8 => select(TTLS.to_vec()).prop_map(|ttl| Arg::text(&(ttl * 1_000).to_string())),
        1 => no_number(),
    ]
}

fn unix_seconds() -> impl Strategy<Value = Arg> + Clone {
    prop_oneof![
        6 => select(TTLS.to_vec()).prop_map(Arg::UnixSeconds),
        1 => Just(Arg::UnixSeconds(-100)),
        1 => no_number(),
    ]
}

fn unix_millis() -> impl Strategy<Value = Arg> + Clone {
    prop_oneof![
        6 => select(TTLS.to_vec()).prop_map(|ttl| Arg::UnixMillis(ttl * 1_000)),
        1 => Just(Arg::UnixMillis(-100_000)),
        1 => no_number(),
    ]
}

/// No numbers, and numbers that are no times.
fn no_number() -> impl Strategy<Value = Arg> + Clone {
    select(vec![
        "0",
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "92233720368547758",
        "x",
        "",
        "1.5",
        " 200",
        "0200",
        "+200",
    ])
    .prop_map(Arg::text)
}

fn word(words: &[&'static str]) -> BoxedStrategy<Arg> {
    select(words.to_vec()).prop_map(Arg::text).boxed()
}

// ---- commands

fn command() -> impl Strategy<Value = Command> {
    let sane = prop_oneof![
        12 => set(),
        10 => strings(),
        10 => expiry(),
        6 => lists(),
        2 => connection(),
        3 => begin_or_end(),
        2 => listing(),
        2 => loading(),
        1 => unknown(),
    ];
    (sane, any::<prop::sample::Index>(), 0..20_u8).prop_map(|(mut command, at, fate)| {
        // Some have an argument too many or too few, or in another order. Names come in any case.
        match fate {
            0 if command.len() > 1 => drop(command.pop()),
            1 => command.push(Arg::text("x")),
            2 if command.len() > 2 => {
                let other = 1 + at.index(command.len() - 1);
                // No key is empty: that is a difference on purpose, after which the servers differ.
                if command[other] != Arg::text("") {
                    command.swap(1, other);
                }
            }
            3 => {
                if let Arg::Bytes(name) = &mut command[0] {
                    name.make_ascii_lowercase();
                }
            }
            _ => {}
        }
        command
    })
}

/// The parts of a command, put together.
fn of<const N: usize>(parts: [BoxedStrategy<Arg>; N]) -> BoxedStrategy<Command> {
    parts.to_vec().boxed()
}

fn named(name: &'static str) -> BoxedStrategy<Arg> {
    Just(Arg::text(name)).boxed()
}

/// `SET` with any options in any order. Most of them fit together.
fn set() -> BoxedStrategy<Command> {
    let time = prop_oneof![
        3 => Just(Vec::new()),
        1 => Just(vec![Arg::text("KEEPTTL")]),
        2 => seconds().prop_map(|ttl| vec![Arg::text("EX"), ttl]),
        4 => millis().prop_map(|ttl| vec![Arg::text("px"), ttl]),
        1 => unix_seconds().prop_map(|at| vec![Arg::text("EXAT"), at]),
        1 => unix_millis().prop_map(|at| vec![Arg::text("PxAt"), at]),
    ];
    let condition = prop_oneof![
        2 => Just(Vec::new()),
        3 => Just(vec![Arg::text("NX")]),
        2 => Just(vec![Arg::text("xx")]),
    ];
    let get = prop_oneof![
        3 => Just(Vec::new()),
        1 => Just(vec![Arg::text("GET")]),
    ];
    let odd = prop_oneof![
        12 => Just(Vec::new()),
        1 => word(&["NX", "XX", "GET", "KEEPTTL", "EX", "PX", "PERSIST", "FOO", ""])
            .prop_map(|word| vec![word]),
    ];
    let options = (time, condition, get, odd)
        .prop_map(|(time, condition, get, odd)| vec![time, condition, get, odd])
        .prop_shuffle();
    (key(), value(), options)
        .prop_map(|(key, value, options)| {
            let mut command = vec![Arg::text("SET"), key, value];
            command.extend(options.concat());
            command
        })
        .boxed()
}

fn strings() -> BoxedStrategy<Command> {
    let several = |name: &'static str| {
        vec(key(), 1..4).prop_map(move |keys| {
            let mut command = vec![Arg::text(name)];
            command.extend(keys);
            command
        })
    };
    let (key, value) = (key().boxed(), value().boxed());
    prop_oneof![
        of([named("SETNX"), key.clone(), value.clone()]),
        of([
            named("SETEX"),
            key.clone(),
            seconds().boxed(),
            value.clone()
        ]),
        of([named("PSETEX"), key.clone(), millis().boxed(), value]),
        of([named("GET"), key.clone()]),
        of([named("TYPE"), key]),
        several("MGET"),
        several("EXISTS"),
        several("DEL"),
        several("UNLINK"),
    ]
    .boxed()
}

fn expiry() -> BoxedStrategy<Command> {
    let set = prop_oneof![
        of([named("EXPIRE"), key().boxed(), seconds().boxed()]),
        of([named("PEXPIRE"), key().boxed(), millis().boxed()]),
        of([named("EXPIREAT"), key().boxed(), unix_seconds().boxed()]),
        of([named("PEXPIREAT"), key().boxed(), unix_millis().boxed()]),
    ];
    let option = word(&["NX", "XX", "FOO"]);
    let options = prop_oneof![
        3 => Just(Vec::new()),
        2 => vec(option, 1..3),
    ];
    let set = (set, options).prop_map(|(mut command, options)| {
        command.extend(options);
        command
    });
    // `GT` and `LT` compare it with what is left of another time. No two are equal, or the clock
    // would decide.
    let options = vec(word(&["GT", "lt", "XX", "NX"]), 1..3);
    let compared = (key(), 0..1_000_000_i64, options).prop_map(|(key, step, options)| {
        let ttl = Arg::text(&(300 + step * 100).to_string());
        let mut command = vec![Arg::text("EXPIRE"), key, ttl];
        command.extend(options);
        command
    });
    let names = ["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "PERSIST"];
    let ask = of([word(&names), key().boxed()]);
    prop_oneof![4 => set, 1 => compared, 5 => ask].boxed()
}

fn lists() -> BoxedStrategy<Command> {
    let (key, value) = (key().boxed(), value().boxed());
    let name = prop_oneof![5 => named("LPUSH"), 1 => named("SADD")];
    let push = (name, key.clone(), vec(value.clone(), 1..4)).prop_map(|(name, key, values)| {
        let mut command = vec![name, key];
        command.extend(values);
        command
    });
    // Long enough to be told from no wait, short enough to wait for. Never 0, which waits for ever.
    let timeout = word(&["0.01", "1e-2", "-1", "x", ""]);
    let pop = (vec(key.clone(), 1..3), timeout).prop_map(|(keys, timeout)| {
        let mut command = vec![Arg::text("BLPOP")];
        command.extend(keys);
        command.push(timeout);
        command
    });
    prop_oneof![
        3 => push,
        2 => of([named("LLEN"), key.clone()]),
        2 => pop,
        1 => of([word(&["HGET", "HEXISTS"]), key, value]),
    ]
    .boxed()
}

fn connection() -> BoxedStrategy<Command> {
    prop_oneof![
        of([
            named("SELECT"),
            word(&["0", "1", "15", "16", "99", "255", "256", "-1", "x", ""])
        ]),
        of([named("PING")]),
        of([named("PING"), value().boxed()]),
        of([named("ECHO"), value().boxed()]),
        of([named("PUBLISH"), key().boxed(), value().boxed()]),
        of([named("FLUSHDB")]),
    ]
    .boxed()
}

fn begin_or_end() -> BoxedStrategy<Command> {
    prop_oneof![
        3 => of([named("MULTI")]),
        4 => of([named("EXEC")]),
        1 => of([named("DISCARD")]),
        1 => of([named("UNWATCH")]),
        2 => of([named("WATCH"), key().boxed()]),
    ]
    .boxed()
}

fn listing() -> BoxedStrategy<Command> {
    let pattern = word(&["*", "k", "?", "[kl]", "\\k", "{*", "[^k]", "K*K", ""]);
    of([named("KEYS"), pattern])
}

fn unknown() -> BoxedStrategy<Command> {
    let name = word(&["FOO", "GETT", "foo\r\nbar", "", "LOCK", "\u{e9}"]);
    (name, vec(prop_oneof![key(), value()], 0..4))
        .prop_map(|(name, args)| {
            let mut command = vec![name];
            command.extend(args);
            command
        })
        .boxed()
}

// ---- printing

impl fmt::Debug for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Bytes(bytes) => write!(f, "'{}'", bytes.escape_ascii()),
            Arg::UnixSeconds(from_now) => write!(f, "<now + {from_now} s>"),
            Arg::UnixMillis(from_now) => write!(f, "<now + {from_now} ms>"),
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Send {
                connection,
                command,
            } => {
                write!(f, "#{connection}")?;
                command.iter().try_for_each(|arg| write!(f, " {arg:?}"))
            }
            Step::Lapse { connection, key } => {
                write!(f, "#{connection} lets '{}' lapse", key.escape_ascii())
            }
            Step::Script { connection, call } => write!(f, "#{connection} {call:?}"),
            Step::Scan { connection } => write!(f, "#{connection} scans"),
        }
    }
}
