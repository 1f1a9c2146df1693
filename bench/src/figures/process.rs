//! What the kernel knows of this process and thread.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant};

/// Two clocks of one thread: what passed, and what it had of its core. The second does not see
/// other processes, nor threads that had the core in between; it does see page faults.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    wall: Instant,
    core: Duration,
}

/// How long something took by both clocks.
#[derive(Clone, Copy)]
pub(super) struct Took {
    pub(super) wall_ns: u64,
    pub(super) core_ns: u64,
}

impl Clocks {
    /// Reads both, the wall's last: what is timed begins right after.
    pub(super) fn start() -> Self {
        let core = core_time();
        let wall = Instant::now();
        Clocks { wall, core }
    }

    /// Reads both, the wall's first. The core's time contains one reading of itself, some 0.2 us.
    pub(super) fn took(self) -> Took {
        let wall_ns = self.wall.elapsed().as_nanos() as u64;
        let core_ns = (core_time() - self.core).as_nanos() as u64;
        Took { wall_ns, core_ns }
    }
}

fn core_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory of this process, in bytes.
pub(super) fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmRSS:") * 1024
}

/// How often this thread was sent off its core while it had work to do.
pub(super) fn preemptions() -> u64 {
    field("/proc/thread-self/status", "nonvoluntary_ctxt_switches:")
}

/// Page faults of this process that needed no disk.
pub(super) fn page_faults() -> u64 {
    let stat = read("/proc/self/stat");
    // The name, in parentheses, may hold anything; the tenth field of all is the eighth after it.
    let rest = stat.rsplit_once(')').expect("a stat line has a name").1;
    let minor_faults = rest.split_whitespace().nth(7);
    minor_faults
        .and_then(|count| count.parse().ok())
        .expect("a stat line counts page faults")
}

fn field(path: &str, name: &str) -> u64 {
    let text = read(path);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_whitespace().next());
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("{path} has no {name}"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
