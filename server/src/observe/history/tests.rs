//! Who held a key, from files that the tests write line by line.

use super::*;
use std::fmt::Write as _;
use std::time::Duration;

/// A log, with the number of its last line.
struct Log {
    dir: tempfile::TempDir,
    text: String,
    seq: u64,
}

/// The times of the tests: seconds after a moment.
fn time(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second)
}

fn shown(second: u64) -> String {
    humantime::format_rfc3339_millis(time(second)).to_string()
}

impl Log {
    fn new() -> Self {
        Log {
            dir: tempfile::tempdir().unwrap(),
            text: String::new(),
            seq: 0,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("audit.log")
    }

    fn line(&mut self, second: u64, rest: &str) -> &mut Self {
        self.seq += 1;
        let (seq, time) = (self.seq, shown(second));
        writeln!(
            self.text,
            "{{\"seq\":{seq},\"time\":\"{time}\",\"event\":{rest}}}"
        )
        .unwrap();
        self
    }

    fn grant(&mut self, second: u64, fence: u64, name: &str) -> &mut Self {
        let rest = format!(
            "\"grant\",\"key\":\"k\",\"fence\":{fence},\"session_id\":7,\"client_name\":\"{name}\",\
             \"address\":\"127.0.0.1:9\",\"is_shared\":false,\"ttl_ms\":1000,\"wait_ms\":0,\"hold_count\":1"
        );
        self.line(second, &rest)
    }

    fn release(&mut self, second: u64, fence: u64, held_ms: u64) -> &mut Self {
        let rest = format!(
            "\"release\",\"key\":\"k\",\"fence\":{fence},\"session_id\":7,\"client_name\":\"a\",\
             \"held_ms\":{held_ms},\"hold_count\":0,\"ended\":\"released\""
        );
        self.line(second, &rest)
    }

    fn start(&mut self, second: u64, last_stop: &str, grace_ms: u64) -> &mut Self {
        let rest = format!(
            "\"start\",\"version\":\"0\",\"last_stop\":\"{last_stop}\",\"grace_ms\":{grace_ms},\
             \"restored\":0,\"lapsed\":0,\"untold\":0"
        );
        self.line(second, &rest)
    }

    /// What is written so far becomes a file that was renamed.
    fn rotate(&mut self, name: &str) -> &mut Self {
        let text = std::mem::take(&mut self.text);
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self
    }

    fn at(&self, second: u64) -> Answer {
        std::fs::write(self.path(), &self.text).unwrap();
        holders_at(&self.path(), KEY, time(second)).unwrap()
    }

    /// The fences that were held, and whether that is certain.
    fn fences(&self, second: u64) -> (Vec<u64>, bool) {
        let answer = self.at(second);
        let fences = answer.holders.iter().map(|hold| hold.fence).collect();
        (fences, answer.is_certain)
    }
}

const KEY: AuditKey<'static> = AuditKey { key: b"k", db: 0 };

#[test]
fn the_holder_of_each_moment_is_told_over_rotated_files() {
    let mut log = Log::new();
    log.start(0, "none", 0)
        .grant(10, 5, "a")
        .rotate("audit.log.00000000000000000002")
        .line(15, "\"grant\",\"key\":\"other\",\"fence\":6")
        .release(20, 5, 10_000)
        .grant(30, 9, "b");
    assert_eq!(log.fences(5), (vec![], true));
    assert_eq!(log.fences(10), (vec![5], true));
    assert_eq!(log.fences(19), (vec![5], true));
    assert_eq!(log.fences(20), (vec![], true));
    assert_eq!(log.fences(30), (vec![9], true));
    let answer = log.at(12);
    let hold = &answer.holders[0];
    assert_eq!(hold.party.client_name.as_deref(), Some("a"));
    assert_eq!(hold.party.address.as_deref(), Some("127.0.0.1:9"));
    assert_eq!(
        (&*hold.since, hold.until.as_deref()),
        (&*shown(10), Some(&*shown(20)))
    );
    assert_eq!(hold.ended.as_deref(), Some("released"));
    let coverage = answer.coverage;
    assert_eq!((coverage.files, coverage.lines), (2, 5));
    assert_eq!(coverage.first_time, Some(shown(0)));
    assert_eq!(coverage.last_time, Some(shown(30)));
    assert!(coverage.is_whole());
}

#[test]
fn before_the_first_file_only_what_later_lines_tell_is_known() {
    let mut log = Log::new();
    log.seq = 100;
    log.release(20, 5, 15_000);
    // From the line of its end: it was held since 5.
    assert_eq!(log.fences(6), (vec![5], true));
    assert_eq!(log.fences(4), (vec![], false));
}

#[test]
fn missing_and_dropped_lines_are_reported_and_make_the_answer_uncertain() {
    let mut log = Log::new();
    log.start(0, "none", 0).grant(10, 5, "a");
    log.seq += 3;
    log.line(20, "\"grant\",\"key\":\"other\",\"fence\":6");
    let answer = log.at(15);
    assert!(!answer.is_certain, "the gap lies between 10 and 20");
    assert_eq!(answer.coverage.missing, 3);
    let gap = &answer.coverage.gaps[0];
    assert_eq!((gap.after_seq, gap.before_seq, gap.missing), (2, 6, 3));
    // The end has a line: what is missing does not matter.
    log.release(30, 5, 20_000);
    assert_eq!(log.fences(15), (vec![5], true));
    assert_eq!(log.fences(31), (vec![], true));
    log.line(40, "\"dropped\",\"dropped\":12");
    assert_eq!(log.fences(41), (vec![], false));
    assert_eq!(log.at(41).coverage.dropped, 12);
}

#[test]
fn what_a_crash_left_is_claimed_or_not() {
    let mut log = Log::new();
    log.start(0, "none", 0).grant(10, 5, "a");
    log.start(20, "crash", 5_000);
    // Not over yet.
    assert_eq!(log.fences(22), (vec![5], false));
    let claim = "\"claim\",\"key\":\"k\",\"fence\":5,\"session_id\":7,\"client_name\":\"a\",\"is_shared\":false";
    let text = log.text.clone();
    log.line(23, claim).line(25, "\"grace_over\",\"claimed\":1");
    assert_eq!(log.fences(22), (vec![5], true));
    assert_eq!(log.fences(26), (vec![5], true));
    log.text = text;
    log.seq -= 2;
    log.line(25, "\"grace_over\",\"claimed\":0");
    // It was held until the crash; then the server did not know it, and its holder may have.
    assert_eq!(log.fences(9), (vec![], true));
    let (fences, is_certain) = log.fences(26);
    assert_eq!((fences, is_certain), (vec![], false));
    let notes = log.at(26).notes.join("; ");
    assert!(
        notes.contains("fence 5 of a") && notes.contains("not claimed"),
        "{notes}"
    );
}

#[test]
fn what_was_put_back_was_held_all_the_time() {
    let mut log = Log::new();
    log.start(0, "none", 0).grant(10, 5, "a");
    log.line(20, "\"stop\"").start(30, "clean", 0);
    let restore = "\"restore\",\"key\":\"k\",\"fence\":5,\"session_id\":7,\"client_name\":\"a\",\
                   \"is_shared\":false,\"ttl_ms\":1000,\"held_ms\":20000";
    log.line(30, restore);
    assert_eq!(log.fences(25), (vec![5], true));
    assert_eq!(log.fences(35), (vec![5], true));
    // The same with the grant in a file that is gone.
    let from = log.text.find("\"stop\"").unwrap();
    let from = log.text[..from].rfind('\n').unwrap() + 1;
    log.text.drain(..from);
    let answer = log.at(15);
    assert_eq!(answer.holders[0].since, shown(10));
    assert_eq!(answer.holders[0].known_by, "restore");
}

#[test]
fn a_node_that_follows_does_not_know() {
    let mut log = Log::new();
    log.line(
        0,
        "\"start\",\"version\":\"0\",\"last_stop\":\"none\",\"grace_ms\":0,\"node_id\":1",
    );
    log.line(
        10,
        "\"lead\",\"term\":1,\"restored\":0,\"lapsed\":0,\"untold\":0",
    );
    log.grant(11, 5, "a").line(20, "\"follow\"");
    assert_eq!(log.fences(5), (vec![], false));
    assert_eq!(log.fences(10), (vec![], true));
    assert_eq!(log.fences(15), (vec![5], true));
    log.line(
        30,
        "\"lead\",\"term\":3,\"restored\":0,\"lapsed\":0,\"untold\":0",
    );
    log.line(31, "\"grant\",\"key\":\"other\",\"fence\":6");
    assert_eq!(log.fences(25), (vec![], false));
    assert_eq!(log.fences(15), (vec![5], true));
}

#[test]
fn shared_holders_are_all_told_and_an_exclusive_grant_ends_them() {
    let mut log = Log::new();
    log.start(0, "none", 0);
    for fence in [5, 6] {
        let rest = format!(
            "\"grant\",\"key\":\"k\",\"fence\":{fence},\"client_name\":\"a\",\"is_shared\":true"
        );
        log.line(10, &rest);
    }
    log.release(20, 5, 10_000).grant(30, 7, "b");
    assert_eq!(log.fences(15), (vec![5, 6], true));
    assert_eq!(log.fences(25), (vec![6], true));
    assert_eq!(log.fences(30), (vec![7], true));
}

#[test]
fn the_operator_that_took_a_lock_away_is_named() {
    let mut log = Log::new();
    log.start(0, "none", 0).grant(10, 5, "a");
    log.line(
        20,
        "\"force\",\"key\":\"k\",\"fence\":5,\"session_id\":8,\"client_name\":\"operator\"",
    );
    log.line(
        20,
        "\"loss\",\"key\":\"k\",\"fence\":5,\"held_ms\":10000,\"late_ms\":0,\"ended\":\"forced\"",
    );
    let answer = log.at(15);
    let by = answer.holders[0].forced_by.as_ref().unwrap();
    assert_eq!(by.client_name.as_deref(), Some("operator"));
    assert_eq!(answer.holders[0].ended.as_deref(), Some("forced"));
}

#[test]
fn keys_are_told_apart_whatever_their_bytes_are() {
    let mut log = Log::new();
    log.start(0, "none", 0);
    // A client's name that looks like a key.
    log.line(
        1,
        "\"grant\",\"key\":\"other\",\"fence\":1,\"client_name\":\"\\\",\\\"key\\\":\\\"k\\\"\"",
    );
    log.line(2, "\"grant\",\"key\":\"k\",\"db\":3,\"fence\":2");
    log.line(
        3,
        "\"grant\",\"key\":\"\\\\xff\",\"key_hex\":\"ff\",\"fence\":3",
    );
    log.line(4, "\"grant\",\"key\":\"\\\\xff\",\"fence\":4");
    std::fs::write(log.path(), &log.text).unwrap();
    let fences = |key: &[u8], db: u8| -> Vec<u64> {
        let answer = holders_at(&log.path(), AuditKey { key, db }, time(9)).unwrap();
        answer.holders.iter().map(|hold| hold.fence).collect()
    };
    assert!(fences(b"k", 0).is_empty());
    assert_eq!(fences(b"k", 3), [2]);
    assert_eq!(fences(b"\xff", 0), [3]);
    assert_eq!(fences(b"\\xff", 0), [4]);
    assert_eq!(fences(b"other", 0), [1]);
}

#[test]
fn a_timeline_is_bounded_and_says_what_it_left_out() {
    let mut log = Log::new();
    log.start(0, "none", 0);
    for number in 1..=20 {
        log.grant(number * 10, number, "a");
        log.release(number * 10 + 5, number, 5_000);
    }
    std::fs::write(log.path(), &log.text).unwrap();
    let span = TimeSpan {
        since: Some(time(100)),
        until: Some(time(150)),
    };
    let timeline = timeline(&log.path(), KEY, span, 4).unwrap();
    let seen: Vec<_> = timeline
        .entries
        .iter()
        .map(|entry| (entry.event.as_str(), entry.fence.unwrap()))
        .collect();
    let expected = [("grant", 14), ("release", 14), ("grant", 15)];
    assert_eq!(seen[1..], expected);
    assert_eq!(timeline.left_out, 7);
}

#[test]
fn compressed_and_strange_files_are_not_read_and_damage_is_counted() {
    let mut log = Log::new();
    log.start(0, "none", 0).grant(10, 5, "a");
    log.text.push_str("no line of ours\n");
    log.release(20, 5, 10_000);
    for (name, text) in [
        ("audit.log.2.gz", "\x1f"),
        ("audit.log.notes", "a text\n"),
        ("audit.logs", "{\"seq\":1,"),
    ] {
        std::fs::write(log.dir.path().join(name), text).unwrap();
    }
    let coverage = log.at(15).coverage;
    assert_eq!((coverage.files, coverage.damaged), (1, 1));
    assert_eq!(coverage.unread.len(), 1);
    assert!(
        coverage.unread[0].contains("compressed"),
        "{:?}",
        coverage.unread
    );
    let nothing = log.dir.path().join("nothing.log");
    let error = holders_at(&nothing, KEY, time(0)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
