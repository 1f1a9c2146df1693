//! A job that runs on several machines, and takes effect exactly once per period.
//!
//! ```sh
//! cargo run -p fencepost --example job_runner [ADDRESS]
//! ```
//!
//! The lock keeps the machines from doing the work at the same time: it saves effort. It cannot
//! promise "once" by itself. A runner may be paused for longer than its lease, in the middle of the
//! work or just before it hands it in. So the archive that takes the reports decides: it refuses
//! fences that run backwards, and looks whether the period has its report in the same step in which
//! it would add one.

#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;

use fencepost::{Client, Fence};
use fencepost_resource::{FenceGuard, Refusal, Stale};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Locks;

const JOB: &str = "jobs/nightly-report";

/// How long a runner stands in line. The runner it waits for may die, and then the work is
/// ours: so not less than a period.
const WAIT: Duration = Duration::from_secs(60);

/// Where reports go. Think of a bucket or a table; what matters is the guard in front.
#[derive(Clone)]
struct Archive {
    guard: FenceGuard,
    reports: Arc<Mutex<BTreeMap<u64, String>>>,
}

/// What became of one runner's turn.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Our report is in the archive.
    Ran(Fence),
    /// Another runner's was there already.
    DoneBefore,
    /// The archive has heard from a later holder of the lock.
    TooLate(Stale),
}

impl Archive {
    fn new() -> Archive {
        Archive {
            guard: FenceGuard::builder().in_memory(),
            reports: Arc::default(),
        }
    }

    fn has(&self, period: u64) -> bool {
        self.reports.lock().unwrap().contains_key(&period)
    }

    /// Files a report, unless the period has one or the fence is stale.
    async fn file(&self, period: u64, report: String, fence: Fence) -> Result<Outcome, Refusal> {
        let reports = Arc::clone(&self.reports);
        let write = move || async move {
            let mut reports = reports.lock().unwrap();
            // Read under the guard. A look taken earlier may be out of date: an earlier holder can
            // have filed since.
            if reports.contains_key(&period) {
                return Outcome::DoneBefore;
            }
            reports.insert(period, report);
            Outcome::Ran(fence)
        };
        match self.guard.write(JOB, fence, write).await {
            Err(Refusal::Stale(stale)) => Ok(Outcome::TooLate(stale)),
            outcome => outcome,
        }
    }
}

/// One runner's turn at one period: waits for the lock, does the work if it is still to be done,
/// hands it in.
async fn run<W>(
    client: &Client,
    archive: &Archive,
    period: u64,
    work: impl FnOnce() -> W,
) -> Result<Outcome, Box<dyn Error>>
where
    W: Future<Output = String>,
{
    let lock = client.lock(JOB).ttl(Duration::from_secs(5)).wait(WAIT);
    let worked = lock.with(async |fence| {
        // Saves the work, decides nothing.
        if archive.has(period) {
            return Ok(Outcome::DoneBefore);
        }
        archive.file(period, work().await, fence).await
    });
    Ok(worked.await??)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::from_args()?;
    let archive = Archive::new();
    for period in 1..=3 {
        let mut runners = Vec::new();
        for name in ["red", "green", "blue"] {
            let (client, archive) = (locks.client(name).await?, archive.clone());
            runners.push(tokio::spawn(async move {
                let work = || async { format!("the report, by {name}") };
                let outcome = run(&client, &archive, period, work).await;
                println!("period {period}, {name}: {outcome:?}");
            }));
        }
        for runner in runners {
            runner.await?;
        }
    }
    println!("{:#?}", archive.reports.lock().unwrap());
    Ok(())
}
