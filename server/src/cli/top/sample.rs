//! What one look at a server finds. Bounded, whatever the server holds.

use fencepost::{Client, Error, LockInfo, SessionInfo};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How many locks, and how many sessions, are asked for.
pub(super) const ROWS_MAX: usize = 1_000;

/// After so long no further page is asked for. A server lists its table in many small pages.
const LISTING_MAX: Duration = Duration::from_millis(500);

/// One look.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) numbers: HashMap<String, u64>,
    pub(super) locks: Vec<LockInfo>,
    /// There are more than were asked for.
    pub(super) has_more_locks: bool,
    pub(super) sessions: Vec<SessionInfo>,
    pub(super) has_more_sessions: bool,
    /// The server recovers from a restart for this much longer.
    pub(super) recovering: Option<Duration>,
}

impl Sample {
    /// Asks for the numbers, the sessions, and the locks whose keys begin with `prefix`.
    pub(super) async fn take(client: &Client, prefix: &[u8]) -> Result<Sample, Error> {
        let numbers = client.stats().await?;
        let numbers = numbers.into_iter().map(|stat| (stat.name, stat.value));
        let begun = Instant::now();
        let mut pages = client.list(prefix);
        let mut locks = Vec::new();
        let mut has_more_locks = false;
        while let Some(page) = pages.next().await? {
            locks.extend(page);
            if locks.len() >= ROWS_MAX || begun.elapsed() >= LISTING_MAX {
                has_more_locks = true;
                break;
            }
        }
        locks.truncate(ROWS_MAX);
        let recovering = pages.recovering();
        let begun = Instant::now();
        let mut pages = client.sessions();
        let mut sessions = Vec::new();
        let mut has_more_sessions = false;
        while let Some(page) = pages.next().await? {
            sessions.extend(page);
            if sessions.len() >= ROWS_MAX || begun.elapsed() >= LISTING_MAX {
                has_more_sessions = true;
                break;
            }
        }
        sessions.truncate(ROWS_MAX);
        Ok(Sample {
            at: Instant::now(),
            numbers: numbers.collect(),
            locks,
            has_more_locks,
            sessions,
            has_more_sessions,
            recovering,
        })
    }

    /// A number by its name in `fencepost stats`; zero if the server has none.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }
}
