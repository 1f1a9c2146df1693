//! etcd's part in `expiry`: leases that end within a second of each other, each with a key, and how
//! fast they are revoked.
//!
//! A lease of etcd is a session: some thousands are many. They are granted one by one through its
//! gateway, each for as many whole seconds as are left until the moment at which all are to end. No
//! client keeps them alive.

use super::memory::{Sample, Series};
use crate::experiments::locks::etcd::Keys;
use crate::experiments::processes::daemon::Daemon;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PREFIX: &str = "lease/";

/// Clients that ask for leases side by side.
const CLIENTS: u64 = 16;

/// So many leases a second are asked for at least: what is planned for it, and some seconds more.
const GRANTS_PER_S: u64 = 400;
const LEAD: Duration = Duration::from_secs(4);

/// The shortest lease there is, with a second to spare.
const TTL_MIN: Duration = Duration::from_secs(3);

/// How long it may take until the last lease is revoked.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(200);

/// How many of the leases have ended by a moment that is so long after the start.
fn live(ends: &[Duration], now: Duration) -> u64 {
    ends.iter().filter(|&&end| end > now).count() as u64
}

/// Grants `count` leases, and looks until all of them are gone.
pub(super) fn watch(count: u64) -> Result<Series, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let server = Daemon::etcd(directory.path())?;
    let empty_bytes = server.resident_bytes();
    let begun = Instant::now();
    let all_end = LEAD + Duration::from_secs(count / GRANTS_PER_S);
    let address = server.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            std::thread::spawn(move || {
                let mut keys = Keys::new(address);
                let mut ends = Vec::new();
                for number in (client..count).step_by(CLIENTS as usize) {
                    let left = all_end.saturating_sub(begun.elapsed()).max(TTL_MIN);
                    let ttl = Duration::from_secs(left.as_secs());
                    keys.put(&format!("{PREFIX}{number}"), ttl)?;
                    // Granted by now, so it ends no later than this.
                    ends.push(begun.elapsed() + ttl);
                }
                Ok::<_, String>(ends)
            })
        })
        .collect();
    let mut ends = Vec::new();
    for client in clients {
        ends.extend(
            client
                .join()
                .map_err(|_| "a thread panicked".to_owned())??,
        );
    }
    let (first, last) = (ends.iter().min(), ends.iter().max());
    let (Some(&first), Some(&last)) = (first, last) else {
        return Err("no lease was granted".to_owned());
    };
    let mut keys = Keys::new(address);
    let mut samples = Vec::new();
    loop {
        let stored = keys.count(PREFIX)?;
        let now = begun.elapsed();
        samples.push(Sample {
            at_s: now.as_secs_f64() - first.as_secs_f64(),
            resident_bytes: server.resident_bytes(),
            used_bytes: None,
            live: live(&ends, now),
            held: stored,
            stored,
        });
        if stored == 0 || now > last + PATIENCE {
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(Series {
        name: "etcd",
        keys: count,
        empty_bytes,
        last_end_s: (last - first).as_secs_f64(),
        samples,
        refilled_bytes: None,
        touched: None,
    })
}

/// Leases revoked a second, from the first that was missed to the last. `None`: none was.
pub(super) fn revoked_per_s(series: &Series) -> Option<f64> {
    let samples = &series.samples;
    let begin = samples
        .iter()
        .rfind(|sample| sample.stored == series.keys)?;
    let end = samples.iter().find(|sample| sample.stored == 0)?;
    Some((begin.stored - end.stored) as f64 / (end.at_s - begin.at_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_counted_from_the_last_time_that_all_were_there() {
        let sample = |at_s: f64, stored: u64| Sample {
            at_s,
            stored,
            ..Sample::default()
        };
        let mut series = Series {
            name: "etcd",
            keys: 100,
            empty_bytes: 0,
            last_end_s: 1.0,
            samples: vec![
                sample(-1.0, 100),
                sample(0.5, 100),
                sample(1.0, 60),
                sample(2.5, 0),
            ],
            refilled_bytes: None,
            touched: None,
        };
        assert_eq!(revoked_per_s(&series), Some(50.0));
        series.samples.pop();
        assert_eq!(revoked_per_s(&series), None);
    }

    #[test]
    fn leases_are_counted_until_they_end() {
        let ends = [1, 2, 3].map(Duration::from_secs);
        assert_eq!(live(&ends, Duration::from_secs(2)), 1);
    }
}
