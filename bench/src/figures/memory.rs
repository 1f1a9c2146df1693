//! How much memory does a held lock cost?
//!
//! Unit: bytes of resident memory per lock, of a process that holds ten million exclusive locks
//! with 16-byte keys in four sessions, over what it had before. Index, wheel, the sessions' own
//! lists and what the server keeps in stock are in it; connections are not.

use super::process::resident_bytes;
use super::{Arguments, Report, Target};
use bench::baseline::Map;
use bench::subject::{NOW, SHARDS, Subject, engine_for, take_all};

const SESSIONS: u64 = 4;

/// `SET key owner NX PX` and a fence counter per key, measured with Redis 7.0.15 and 889 k locks.
const REDIS_BYTES: f64 = 190.0;

pub(super) fn engine(arguments: &Arguments, report: &mut Report<'_>) {
    let bytes = bytes_per_lock(arguments.keys, engine_for);
    report.add_against(
        "resident bytes per held lock",
        bytes,
        "B",
        Target::at_most(80.0),
    );
    report.add(
        "of what Redis needs with its fence counters",
        bytes / REDIS_BYTES,
        "x",
    );
}

pub(super) fn map(arguments: &Arguments, report: &mut Report<'_>) {
    let bytes = bytes_per_lock(arguments.keys, |_| Map::<u32>::new(SHARDS, 10_000));
    report.add("resident bytes per held lock", bytes, "B");
}

fn bytes_per_lock<S: Subject>(keys: u64, make: impl FnOnce(u64) -> S) -> f64 {
    let before = resident_bytes();
    let subject = make(keys);
    let mut seats: Vec<_> = (0..SESSIONS).map(|number| subject.seat(number)).collect();
    take_all(&subject, &mut seats, keys, 3_600_000, NOW, |_, _| ());
    subject.settle(NOW);
    while subject.stock_up() {}
    assert_eq!(subject.keys(), keys);
    (resident_bytes() - before) as f64 / keys as f64
}
