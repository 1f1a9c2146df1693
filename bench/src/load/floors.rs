//! What no cluster on this machine can be faster than: one sync of the disk, and one message there
//! and back over loopback. Measured in the run that they are reported beside, before any peer is
//! started.
//!
//! The sync is an `fdatasync` after 512 bytes were written in place, into a file whose blocks are
//! there already: the least that a log can do. The message goes between two threads that block.

use super::sample::histogram;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of one write.
const SYNC_BYTES: usize = 512;

/// Writes that the file has room for; the next one begins at its start again.
const SYNC_SLOTS: u64 = 4_096;

/// Bytes of one message: about a grant's.
const MESSAGE_BYTES: usize = 64;

/// How long each is measured.
const MEASURED: Duration = Duration::from_secs(1);

/// How long an answer may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Floor {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) count: u64,
}

/// Both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Floors {
    pub(crate) sync: Floor,
    pub(crate) round_trip: Floor,
}

impl Floors {
    /// Measures them, the disk where the peers have their files.
    pub(crate) fn measure() -> io::Result<Floors> {
        let directory = TempDir::with_prefix("fencepost-bench-")?;
        Ok(Floors {
            sync: Floor::of(&syncs(directory.path(), MEASURED)?),
            round_trip: Floor::of(&round_trips(MEASURED)?),
        })
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let (sync, round_trip) = (self.sync, self.round_trip);
        format!(
            "floors of this run: one fdatasync of {SYNC_BYTES} B, alone: p50 {:.0} us, p99 {:.0} us; \
             one loopback round trip of {MESSAGE_BYTES} B between two threads: p50 {:.0} us, p99 {:.0} us",
            sync.p50_us, sync.p99_us, round_trip.p50_us, round_trip.p99_us
        )
    }

    /// For programs: one object each.
    pub(crate) fn lines(&self) -> Vec<String> {
        [("fdatasync", self.sync), ("loopback", self.round_trip)]
            .map(|(name, floor)| {
                serde_json::json!({
                    "workload": "floor",
                    "floor": name,
                    "p50_us": floor.p50_us,
                    "p99_us": floor.p99_us,
                    "count": floor.count,
                })
                .to_string()
            })
            .to_vec()
    }
}

impl Floor {
    fn of(ns: &Histogram<u64>) -> Floor {
        let us = |quantile| ns.value_at_quantile(quantile) as f64 / 1_000.0;
        Floor {
            p50_us: us(0.5),
            p99_us: us(0.99),
            count: ns.len(),
        }
    }
}

fn syncs(directory: &Path, measured: Duration) -> io::Result<Histogram<u64>> {
    let mut options = OpenOptions::new();
    let path = directory.join("floor");
    let file = options.write(true).create_new(true).open(path)?;
    file.write_all_at(&vec![0; SYNC_SLOTS as usize * SYNC_BYTES], 0)?;
    file.sync_all()?;
    let (mut ns, block) = (histogram(), [7; SYNC_BYTES]);
    let begun = Instant::now();
    for slot in (0..SYNC_SLOTS).cycle() {
        let since = Instant::now();
        file.write_all_at(&block, slot * SYNC_BYTES as u64)?;
        file.sync_data()?;
        ns.saturating_record(since.elapsed().as_nanos() as u64);
        if begun.elapsed() > measured {
            break;
        }
    }
    Ok(ns)
}

fn round_trips(measured: Duration) -> io::Result<Histogram<u64>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
    }
    let echo = std::thread::spawn(move || {
        let mut message = [0; MESSAGE_BYTES];
        // Ends when the other side does.
        while far.read_exact(&mut message).is_ok() && far.write_all(&message).is_ok() {}
    });
    let (mut ns, mut message) = (histogram(), [7; MESSAGE_BYTES]);
    let begun = Instant::now();
    while begun.elapsed() < measured {
        let since = Instant::now();
        near.write_all(&message)?;
        near.read_exact(&mut message)?;
        ns.saturating_record(since.elapsed().as_nanos() as u64);
    }
    drop(near);
    // It cannot have panicked: it does nothing that could.
    let _ = echo.join();
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_floors_are_measured() {
        let directory = TempDir::new().unwrap();
        let short = Duration::from_millis(5);
        for ns in [syncs(directory.path(), short), round_trips(short)] {
            let floor = Floor::of(&ns.unwrap());
            assert!(floor.count > 0);
            assert!(floor.p50_us > 0.0 && floor.p50_us <= floor.p99_us);
        }
    }

    #[test]
    fn floors_are_told_to_people_and_programs() {
        let floor = |p50_us, p99_us| Floor {
            p50_us,
            p99_us,
            count: 10,
        };
        let floors = Floors {
            sync: floor(192.2, 322.0),
            round_trip: floor(21.0, 48.9),
        };
        let text = floors.text();
        assert!(
            text.contains("512 B, alone: p50 192 us, p99 322 us"),
            "{text}"
        );
        assert!(text.contains("p50 21 us, p99 49 us"), "{text}");
        let lines = floors.lines();
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["floor"], "fdatasync");
        assert_eq!(line["p99_us"], 322.0);
        assert_eq!(lines.len(), 2);
    }
}
