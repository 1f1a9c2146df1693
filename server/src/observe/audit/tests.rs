//! The audit log without a server: what happens when its queue is full or its file fails.

use super::*;
use engine::Key;
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

impl writer::Sink for Paper {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all that has been left, as at the end of a server, and returns the lines.
fn write_down(audit: &Audit, paper: Paper) -> Vec<serde_json::Value> {
    audit.stopping.store(true, Ordering::Release);
    let text = paper.text.clone();
    writer::write_all(audit, paper);
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
