//! What it was like to send a node an image of the ledger.

use crate::footprint::Footprint;
use crate::load::Acquires;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// One image that a node was sent.
#[derive(Clone, Copy, Debug)]
pub struct Install {
    /// For how long it was away.
    pub away: Duration,
    /// From the moment it was back until it had applied what the image shows.
    pub took: Duration,
    /// Acquires before it went away.
    pub before: Acquires,
    /// While it was away, and the others wrote snapshots.
    pub meanwhile: Acquires,
    /// From the moment it was back until it was ready.
    pub during: Acquires,
    /// Elections since it went away.
    pub elections: u64,
    /// What the nodes used then.
    pub footprint: Footprint,
}

impl Install {
    /// How many times as long as before 99 of a hundred acquires took.
    pub fn slower(&self) -> f64 {
        f64::from(self.during.p99_us) / f64::from(self.before.p99_us.max(1))
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "away_s": self.away.as_secs_f64(),
            "took_s": self.took.as_secs_f64(),
            "acquire_p99_us_before": self.before.p99_us,
            "acquire_p99_us_while_away": self.meanwhile.p99_us,
            "acquire_p99_us_during": self.during.p99_us,
            "slower": self.slower(),
            "elections": self.elections,
            "memory_bytes_max": self.footprint.memory_bytes_max,
            "disk_bytes": self.footprint.disk_bytes,
        })
    }
}

impl fmt::Display for Install {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, away) = (self.took, self.away);
        writeln!(f, "image installed in {took:.3?}, {away:.1?} away")?;
        writeln!(f, "  acquires before:           {}", self.before)?;
        writeln!(f, "  while it was away:         {}", self.meanwhile)?;
        writeln!(
            f,
            "  while it was sent, {:.1}x:   {}",
            self.slower(),
            self.during
        )?;
        write!(f, "  {} elections; {}", self.elections, self.footprint)
    }
}
