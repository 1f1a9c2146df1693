//! The audit log without a server: what happens when its queue is full or its file fails.

use super::*;
use crate::observe::history::files::Tail;
use engine::{Key, Lost};
use std::io::{self, Write};
use std::sync::Mutex;

/// A file in memory that refuses the first so many writes.
#[derive(Clone, Default)]
struct Paper {
    text: Arc<Mutex<Vec<u8>>>,
    failures_left: u32,
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failures_left > 0 {
            self.failures_left -= 1;
            return Err(io::Error::other("no space left"));
        }
        self.text.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl sink::Sink for Paper {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all that has been left, as at the end of a server, and returns the lines.
fn write_down(audit: &Audit, paper: Paper) -> Vec<serde_json::Value> {
    audit.stopping.store(true, Ordering::Release);
    let text = paper.text.clone();
    writer::write_all(audit, paper, event::FirstLine::default());
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn leave(audit: &Audit, count: u64) {
    for number in 1..=count {
        let loss = Loss {
            key: Key::new(b"k").unwrap(),
            fence: engine::Fence::new(number).unwrap(),
            owner: engine::SessionId::from_bits(7),
            why: Lost::Expired,
            late_ms: 0,
            held_ms: 5,
        };
        audit.lost(None, &loss);
    }
}

#[test]
fn a_full_queue_drops_and_a_line_says_how_many() {
    let audit = Audit::new(Clock::start(), 4);
    leave(&audit, 10);
    assert_eq!(audit.dropped(), 6);
    let lines = write_down(&audit, Paper::default());
    let events: Vec<&str> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        events,
        ["start", "loss", "loss", "loss", "loss", "dropped", "stop"]
    );
    assert_eq!(lines[5]["dropped"], 6);
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["seq"], index + 1);
    }
    assert_eq!(audit.written(), 4);
}

#[test]
fn a_file_that_fails_costs_its_events_and_a_later_line_says_how_many() {
    let audit = Audit::new(Clock::start(), 10_000);
    leave(&audit, 1000);
    let paper = Paper {
        failures_left: 1,
        ..Paper::default()
    };
    let lines = write_down(&audit, paper);
    assert!(audit.dropped() > 0, "the first chunk was lost");
    assert_eq!(audit.dropped() + audit.written(), 1000);
    let dropped: Vec<u64> = lines
        .iter()
        .filter(|line| line["event"] == "dropped")
        .map(|line| line["dropped"].as_u64().unwrap())
        .collect();
    assert_eq!(dropped, [audit.dropped()]);
    assert_eq!(
        lines[0]["seq"],
        audit.dropped() + 2,
        "the gap in the numbers is where they are missing"
    );
}

#[test]
fn a_line_says_all_there_is_to_say_and_nothing_else() {
    let audit = Audit::new(Clock::start(), 4);
    leave(&audit, 1);
    let lines = write_down(&audit, Paper::default());
    let mut loss = lines[1].clone();
    let time = loss.as_object_mut().unwrap().remove("time").unwrap();
    let expected = serde_json::json!({
        "seq": 2, "event": "loss", "key": "k", "fence": 1,
        "held_ms": 5, "late_ms": 0, "ended": "expired",
    });
    assert_eq!(loss, expected);
    let time = time.as_str().unwrap();
    humantime::parse_rfc3339(time).unwrap();
    assert_eq!(time.len(), "2026-01-01T00:00:00.000Z".len(), "{time}");
}

/// A log file in a directory of its own, that is renamed at `bytes`.
fn log_file(dir: &std::path::Path, bytes: u64, files_max: u32) -> (file::LogFile, Tail) {
    let rotation = Rotation { bytes, files_max };
    let path = dir.join("audit.log");
    file::LogFile::open(&path, rotation, Arc::default()).unwrap()
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs a server's life as far as the audit log sees it.
fn live(dir: &std::path::Path, events: u64, bytes: u64, files_max: u32) {
    let audit = Audit::new(Clock::start(), 10_000);
    leave(&audit, events);
    audit.stopping.store(true, Ordering::Release);
    let (file, tail) = log_file(dir, bytes, files_max);
    let first = event::FirstLine {
        tail,
        ..event::FirstLine::default()
    };
    writer::write_all(&audit, file, first);
}

#[test]
fn numbers_go_on_over_starts_and_the_start_says_how_the_last_stop_was() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), 3, 0, 0);
    live(dir.path(), 2, 0, 0);
    // Killed in the middle of a line.
    let path = dir.path().join("audit.log");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"seq\":10,\"time\":\"2026");
    std::fs::write(&path, text).unwrap();
    live(dir.path(), 0, 0, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    let whole: Vec<serde_json::Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(whole.len() + 1, text.lines().count(), "one line is torn");
    for (index, line) in whole.iter().enumerate() {
        assert_eq!(line["seq"], index + 1, "{line}");
    }
    let stops: Vec<&str> = whole
        .iter()
        .filter_map(|line| line["last_stop"].as_str())
        .collect();
    assert_eq!(stops, ["none", "clean", "crash"]);
}

#[test]
fn a_file_that_is_large_enough_is_renamed_and_the_oldest_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    // Some 130 bytes a line, so each life fills a file of this size several times.
    live(dir.path(), 5_000, 100_000, 0);
    let all = names(dir.path());
    assert!(all.len() > 3, "{all:?}");
    assert_eq!(all[0], "audit.log");
    // Each is called by its last line, and the next one goes on.
    let mut next_seq = 1;
    for name in all[1..].iter().chain(&all[..1]) {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["seq"], next_seq);
            next_seq += 1;
        }
        if let Some(number) = name.strip_prefix("audit.log.") {
            assert_eq!(number.parse::<u64>().unwrap(), next_seq - 1, "{name}");
        }
    }
    assert_eq!(next_seq - 1, 5_002, "a start, a stop and all events");
    live(dir.path(), 5_000, 100_000, 3);
    let left = names(dir.path());
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left[1] > all[all.len() - 1], "the oldest went: {left:?}");
}

#[test]
fn a_file_that_another_program_moved_away_is_not_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = log_file(dir.path(), 10, 1);
    let path = dir.path().join("audit.log");
    std::fs::rename(&path, dir.path().join("audit.log-old")).unwrap();
    std::fs::write(&path, "the next one").unwrap();
    file.write_all(b"more than ten bytes").unwrap();
    sink::Sink::turn_over(&mut file, 7);
    assert_eq!(names(dir.path()), ["audit.log", "audit.log-old"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "the next one");
}

#[test]
fn numbers_go_on_behind_a_file_that_was_rotated_away() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), 3, 0, 0);
    let path = dir.path().join("audit.log");
    std::fs::rename(&path, dir.path().join("audit.log.1")).unwrap();
    let (_, tail) = log_file(dir.path(), 0, 0);
    let expected = Tail {
        seq: 5,
        is_stop: true,
        is_torn: false,
    };
    assert_eq!(tail, expected);
}

/// A line about a hold of the key "k".
fn about(fence: u64, what: event::What) -> About {
    let key: Arc<[u8]> = Arc::from(&b"k"[..]);
    let who = Who::Unknown;
    About::Lock(LockEvent {
        key,
        fence,
        who,
        what,
    })
}

fn begins(fence: u64, trace_id: Option<&str>) -> About {
    let begun = Begun {
        mode: engine::Mode::Exclusive,
        ttl_ms: None,
        wait_ms: 0,
        hold_count: 1,
        trace_id: trace_id.map(Into::into),
        owner_token: None,
    };
    about(fence, What::Grant(begun))
}

fn ends(fence: u64) -> About {
    let why = Lost::Expired;
    about(
        fence,
        What::Loss {
            why,
            held_ms: 5,
            late_ms: 0,
        },
    )
}

#[test]
fn the_trace_of_a_hold_is_told_at_its_end_and_then_forgotten() {
    let mut traces = traces::Traces::new(4);
    assert_eq!(traces.note(&begins(1, Some("t"))).as_deref(), Some("t"));
    assert_eq!(traces.note(&begins(2, None)), None);
    assert_eq!(traces.note(&ends(2)), None);
    assert_eq!(traces.note(&ends(1)).as_deref(), Some("t"));
    assert_eq!(traces.note(&ends(1)), None);
}

#[test]
fn the_oldest_traces_are_forgotten_when_too_many_holds_have_one() {
    let traces_max = 4;
    let mut traces = traces::Traces::new(traces_max);
    for fence in 1..=5 {
        traces.note(&begins(fence, Some("t")));
    }
    let told = (1..=5).filter(|fence| traces.note(&ends(*fence)).is_some());
    let told: Vec<u64> = told.collect();
    assert_eq!(told, [3, 4, 5]);
    // Holds that end in time cost nothing: the longest one is known after many others.
    traces.note(&begins(6, Some("long")));
    for fence in 7..1_000 {
        traces.note(&begins(fence, Some("short")));
        traces.note(&ends(fence));
    }
    assert_eq!(traces.note(&ends(6)).as_deref(), Some("long"));
}
