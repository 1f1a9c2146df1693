//! What the kernel knows of this process and thread, from /proc.

use std::fs;

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
