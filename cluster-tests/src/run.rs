//! One run: a cluster, its clients, round after round of trouble; then everything heals.

use crate::builds::Builds;
use crate::company::{Company, Extra, Told};
use crate::fill::fill;
use crate::install::Install;
use crate::keepers::Seen;
use crate::line::Served;
use crate::load::Latencies;
use crate::nodes::{
    ADDED, Build, COMPARE_ENTRIES, DISK_BYTES_MAX, LOOK, Layout, Nodes, SEGMENT_BYTES,
    SNAPSHOT_LOG_BYTES, STUCK,
};
use crate::rates::Rate;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::waits::{WaitsOfTwo, median_ms};
use crash_tests::checker::{self, Kept, Violation};
use crash_tests::history::{Recorder, Time};
use crash_tests::{Program, story};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So little log between two snapshots that each node writes one all the time.
const SNAPSHOT_OFTEN_BYTES: u64 = 16 << 10;

/// From so many locks on, a snapshot and a comparison of ledgers are work, and come as rarely as
/// these say.
const MANY_LOCKS: usize = 100_000;
const COMPARE_ENTRIES_OF_MANY: u64 = 1_024;

/// How long a cluster that has healed may take to grant a lock to a new client, unless the machine
/// may be too busy for that.
pub const GRANT_MAX: Duration = Duration::from_secs(5);

/// So many grants, one after the other, make enough entries that each part of the ledgers is
/// compared.
const GRANTS_COMPARED: u64 = COMPARE_ENTRIES * wal::LEDGER_PARTS as u64;

/// How many violations are told at length.
const STORIES_MAX: usize = 10;

/// Rates of clocks: within what is promised, and beyond.
const FAST: f64 = 1.005;
const WILD: f64 = 1.2;

/// How leases are counted that ended too early under clocks for which nothing is promised.
const BROKEN_BY_CLOCKS: &str = "leases broken by clocks beyond what is promised";

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What a node runs.
    pub program: Program,
    /// An older build, for a rolling upgrade. `None`: `program` poses as both.
    pub older: Option<Program>,
    /// The binary that runs clients.
    pub client_program: PathBuf,
    /// What befalls the nodes.
    pub scenario: Scenario,
    /// How often.
    pub times: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// Locks that are held all the time, for snapshots under load.
    pub locks: usize,
    /// How long a node is away at least that is sent a snapshot then.
    pub away: Duration,
    /// All moments and choices come from this. The system adds its own, so a seed repeats the shape
    /// of a run, not the run.
    pub seed: u64,
    /// How long a cluster that has healed may take to grant a lock to a new client.
    pub grant_max: Duration,
    /// Leave the directories and lines of the nodes even if all was well.
    pub is_kept: bool,
}

/// A run that is under way.
pub struct Run {
    pub(crate) nodes: Nodes,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) random: fastrand::Rng,
    pub(crate) seen: Arc<Seen>,
    pub(crate) served: Option<Arc<Served>>,
    pub(crate) latencies: Option<Arc<Latencies>>,
    pub(crate) builds: Builds,
    pub(crate) locks: usize,
    pub(crate) away: Duration,
    pub(crate) installs: Vec<Install>,
    pub(crate) slow_disks: WaitsOfTwo,
    pub(crate) failovers: Vec<Duration>,
    pub(crate) pauses: Vec<Duration>,
    pub(crate) healings: Vec<Duration>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// Runs a plan. `progress` hears what each round was. An error is something that no cluster may do,
/// like not healing; what clients were told is judged by [`Report::judge`]. Whatever is wrong, the
/// directories and lines of the nodes stay for people to look at.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(usize, &str)) -> Result<Report, String> {
    let system = |error: std::io::Error| format!("the system refused: {error}");
    let home = tempfile::Builder::new().prefix("cluster-tests-").tempdir();
    let home = home.map_err(system)?;
    let report = run_in(plan, home.path(), progress);
    let is_fine = report.as_ref().is_ok_and(|report| report.judge().is_ok());
    if is_fine && !plan.is_kept {
        return report;
    }
    let kept = home.keep();
    eprintln!("what the nodes left is in {}", kept.display());
    report.map_err(|why| format!("{why}\n{}, seed {}", plan.scenario.name(), plan.seed))
}

fn run_in(
    plan: &Plan,
    home: &std::path::Path,
    progress: &mut dyn FnMut(usize, &str),
) -> Result<Report, String> {
    let begin = Instant::now();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let recorder = Arc::new(Recorder::default());
    let has_many_locks = plan.locks >= MANY_LOCKS;
    let newer = Build {
        program: plan.program.clone(),
        reads: None,
    };
    let older = match &plan.older {
        Some(program) => Build {
            program: program.clone(),
            reads: None,
        },
        None => newer.clone(),
    };
    let builds = Builds::new(older, newer.clone());
    let layout = Layout {
        build: match plan.scenario {
            Scenario::RollingUpgrade => builds.older().clone(),
            _ => newer,
        },
        count: plan.nodes,
        vacant: match plan.scenario {
            Scenario::GrowAndShrink => ADDED,
            _ => 0,
        },
        snapshot_log_bytes: match plan.scenario {
            Scenario::SnapshotUnderLoad if !has_many_locks => SNAPSHOT_OFTEN_BYTES,
            _ => SNAPSHOT_LOG_BYTES,
        },
        segment_bytes: (!has_many_locks).then_some(SEGMENT_BYTES),
        compare_entries: match has_many_locks {
            true => COMPARE_ENTRIES_OF_MANY,
            false => COMPARE_ENTRIES,
        },
    };
    let mut nodes = Nodes::lay_out(layout, home)?;
    set_rates(plan.scenario, &mut nodes, &mut random)?;
    for node in nodes.members() {
        nodes.start(node, &recorder)?;
    }
    nodes.wait_whole()?;
    if plan.locks > 0 {
        let mut tell = |done| progress(0, &format!("{done} of {} locks are held", plan.locks));
        fill(&nodes.redis_addresses(), plan.locks, &mut tell)?;
    }
    let company = Company::gather(
        &nodes,
        match plan.scenario {
            Scenario::HotLine => Extra::Line,
            Scenario::SnapshotUnderLoad if plan.locks > 0 => Extra::Load,
            _ => Extra::None,
        },
        &recorder,
        &plan.client_program,
        &mut random,
    )?;
    let mut run = Run {
        nodes,
        recorder: recorder.clone(),
        random,
        seen: company.seen.clone(),
        served: company.served(),
        latencies: company.latencies(),
        builds,
        locks: plan.locks,
        away: plan.away,
        installs: Vec::new(),
        slow_disks: WaitsOfTwo::default(),
        failovers: Vec::new(),
        pauses: Vec::new(),
        healings: Vec::new(),
        counts: BTreeMap::new(),
    };
    for number in 1..=plan.times {
        let what = run.round(plan.scenario);
        let what = what.map_err(|why| format!("in round {number}: {why}"))?;
        progress(number, &what);
    }
    if plan.scenario == Scenario::RollingUpgrade {
        let what = run.raise_format();
        let what = what.map_err(|why| format!("when the format was raised: {why}"))?;
        progress(plan.times, &what);
    }
    // Everything gets its answer before the clients go.
    run.wait_for_grant(recorder.now())?;
    let Told { history, failures } = company.disperse()?;
    run.heals(plan.grant_max)?;
    run.demand_filled()?;
    let (summary, mut violations) = checker::check(&history, Kept::Lease);
    if !plan.scenario.keeps_leases() {
        let all = violations.len();
        violations.retain(|violation| !is_of_lease(violation));
        let broken = (all - violations.len()) as u64;
        run.counts.insert(BROKEN_BY_CLOCKS, broken);
    }
    if let Some(served) = &run.served {
        let longest_ms = served.longest_wait().as_millis() as u64;
        run.counts.insert("longest wait in line, ms", longest_ms);
        let overtaking = served.overtaking();
        run.counts.insert("overtaken in line", overtaking.overtaken);
        let by_own = overtaking.by_own_client;
        run.counts
            .insert("overtaken by a waiter of the same client", by_own);
        let overtakers = overtaking.overtakers;
        run.counts.insert("overtakers in line", overtakers);
    }
    if plan.scenario == Scenario::SlowDiskOfTwo {
        let WaitsOfTwo {
            of_leader,
            of_follower,
        } = &run.slow_disks;
        let of_leader = median_ms(of_leader);
        run.counts
            .insert("next grant while the leader's disk is slow, ms", of_leader);
        let of_follower = median_ms(of_follower);
        run.counts.insert(
            "next grant while the follower's disk is slow, ms",
            of_follower,
        );
    }
    summary.demand(Kept::Lease).or_else(|why| {
        // A promise that was broken says more.
        if violations.is_empty() {
            Err(why)
        } else {
            Ok(())
        }
    })?;
    let seen = run.seen.clone();
    Ok(Report {
        scenario: plan.scenario,
        times: plan.times,
        nodes: plan.nodes,
        seed: plan.seed,
        took: begin.elapsed(),
        failovers: run.failovers,
        pauses: run.pauses,
        healings: run.healings,
        locks: plan.locks,
        installs: run.installs,
        guards: seen.guards(),
        lost: seen
            .lost()
            .into_iter()
            .map(|(at, why)| format!("{:.3} s {why}", at as f64 / 1e6))
            .collect(),
        violations: violations
            .iter()
            .take(STORIES_MAX)
            .map(|violation| story::tell(&history, violation))
            .collect(),
        summary,
        counts: run.counts,
        failures,
    })
}

/// Whether it is about leases and not about fences.
fn is_of_lease(violation: &Violation) -> bool {
    matches!(
        violation,
        Violation::DoubleGrant { .. } | Violation::EarlyLoss { .. }
    )
}

/// Has the clocks of some nodes run too fast, if the scenario says so.
fn set_rates(
    scenario: Scenario,
    nodes: &mut Nodes,
    random: &mut fastrand::Rng,
) -> Result<(), String> {
    let (rate, count) = match scenario {
        Scenario::FastClock => (FAST, random.usize(1..nodes.count())),
        Scenario::WildClock => (WILD, 1),
        _ => return Ok(()),
    };
    let mut all = nodes.members();
    random.shuffle(&mut all);
    for node in all.into_iter().take(count) {
        nodes.set_rate(node, Rate::new(rate)?);
    }
    Ok(())
}

impl Run {
    /// Waits for a grant that was asked for after `time`, and returns how much later it came.
    pub(crate) fn wait_for_grant(&mut self, time: Time) -> Result<Duration, String> {
        let begin = Instant::now();
        loop {
            if let Some(answered) = self.seen.grant_after(time) {
                return Ok(Duration::from_micros(answered - time));
            }
            self.nodes.demand_all_run()?;
            if begin.elapsed() > STUCK {
                let members = self.nodes.members().into_iter();
                let standings: Vec<_> = members.map(|node| self.nodes.ask(node)).collect();
                return Err(format!("nothing was granted for {STUCK:?}: {standings:#?}"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the cluster is whole again, since `from`.
    pub(crate) fn wait_healed(&mut self, from: Time) -> Result<(), String> {
        self.nodes.wait_whole()?;
        let took = self.recorder.now() - from;
        self.healings.push(Duration::from_micros(took));
        Ok(())
    }

    /// One leader, all nodes ready and equal, and a grant to a new client in time.
    fn heals(&mut self, grant_max: Duration) -> Result<(), String> {
        self.nodes.wait_whole()?;
        self.grants_to_a_new_client(grant_max)?;
        let standings = self.nodes.wait_equal()?;
        let sum = |name: &str| standings.iter().map(|it| it.number(name)).max();
        let mut count = |what, value: Option<u64>| {
            self.counts.insert(what, value.unwrap_or(0));
        };
        count("entries applied by every node", sum("applied_index"));
        count("entries that a snapshot covers", sum("snapshot_index"));
        count("terms", sum("term"));
        count("batches that counted for nothing", sum("ignored"));
        self.demand_little_disk()
    }

    /// However much was logged, a node keeps no more of it than a snapshot does not cover.
    fn demand_little_disk(&mut self) -> Result<(), String> {
        let disk_bytes = self.nodes.footprint().disk_bytes;
        self.counts
            .insert("bytes on the disk of a node, at most", disk_bytes);
        // Many locks are more than that by themselves.
        if self.locks < MANY_LOCKS && disk_bytes > DISK_BYTES_MAX {
            return Err(format!(
                "a node has {disk_bytes} bytes on its disk, more than {DISK_BYTES_MAX}"
            ));
        }
        Ok(())
    }

    /// A new client gets a lock in time; then enough more that the nodes compare their ledgers.
    fn grants_to_a_new_client(&mut self, grant_max: Duration) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("the system refused: {error}"))?;
        runtime.block_on(async {
            let ask = async {
                let client = fencepost::Client::builder()
                    .addresses(self.nodes.addresses())
                    .connect()
                    .await
                    .map_err(|error| error.to_string())?;
                let lock = client.lock("healed").ttl(Duration::from_secs(5));
                let asked = lock.try_acquire().await;
                asked.map(|_| client).map_err(|error| error.to_string())
            };
            let granted = tokio::time::timeout(grant_max, ask).await;
            let late = |_| format!("a healed cluster granted nothing for {grant_max:?}");
            let refused = |error| format!("a healed cluster refused a new client: {error}");
            let client = granted.map_err(late)?.map_err(refused)?;
            for number in 0..GRANTS_COMPARED {
                let lock = client.lock(format!("healed/{number}"));
                let asked = lock.ttl(Duration::from_secs(5)).try_acquire().await;
                asked.map_err(|error| refused(error.to_string()))?;
            }
            Ok(())
        })
    }
}
