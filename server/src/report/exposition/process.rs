//! What the system knows about this process, under the names that every Prometheus client gives it.
//! Read from `/proc/self`, which a hardened unit leaves visible; on systems without it, nothing.

use super::page::{Page, Unit};
use crate::system::wall_clock;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::fs;

pub(super) fn show(page: &mut Page) -> fmt::Result {
    page.counter_in(
        Unit::Seconds,
        "process_cpu",
        "Time that all threads of this process have spent on a core, for it and in the kernel",
        seconds(ClockId::ProcessCPUTime),
    )?;
    if let Some(started) = started_unix_seconds() {
        page.gauge_in(
            Unit::Seconds,
            "process_start_time",
            "When this process started, since the epoch",
            started,
        )?;
    }
    if let Some((resident_bytes, virtual_bytes)) = memory_bytes() {
        page.gauge_in(
            Unit::Bytes,
            "process_resident_memory",
            "Memory of this process that is in RAM",
            resident_bytes as f64,
        )?;
        page.gauge_in(
            Unit::Bytes,
            "process_virtual_memory",
            "Addresses that this process has asked for",
            virtual_bytes as f64,
        )?;
    }
    if let Some(open) = open_fds() {
        page.gauge("process_open_fds", "Open file descriptors", open)?;
    }
    if let Some(most) = fds_max() {
        page.gauge(
            "process_max_fds",
            "File descriptors that this process may have open",
            most,
        )?;
    }
    Ok(())
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// When the process started. The system counts ticks since the machine did; `/proc/stat`, which has
/// that moment, may be hidden, so it is reckoned from the age of the machine.
fn started_unix_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let started = start_ticks(&stat)? as f64 / clock_ticks_per_second() as f64;
    let age = seconds(ClockId::Boottime) - started;
    Some(wall_clock::now_unix_ms() as f64 / 1e3 - age)
}

/// The start time in `/proc/self/stat`: the 20th field behind the name, which stands in parentheses
/// and may have any characters.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

/// Memory that is in RAM, and addresses.
fn memory_bytes() -> Option<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name| {
        let kib: u64 = field(&status, name)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some((bytes("VmRSS:")?, bytes("VmSize:")?))
}

/// Open file descriptors, without the one that is opened to count them.
fn open_fds() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(count.saturating_sub(1))
}

/// How many file descriptors may be open. `None` also if there is no limit.
fn fds_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    field(&limits, "Max open files")?.parse().ok()
}

/// The first word behind `name` on its line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_names() {
        let status = "VmPeak:\t  9000 kB\nVmRSS:\t  1234 kB\n";
        assert_eq!(field(status, "VmRSS:"), Some("1234"));
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 99 0 0 0 1 2 0 0 20 0 3 0 123456 8192 64";
        assert_eq!(start_ticks(stat), Some(123_456));
        assert_eq!(start_ticks("7 (short) S 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_files() {
        let (resident_bytes, virtual_bytes) = memory_bytes().unwrap();
        assert!(1 << 20 < resident_bytes && resident_bytes < virtual_bytes);
        assert!(open_fds().unwrap() >= 1);
        assert!(fds_max().unwrap() >= open_fds().unwrap());
        let started = started_unix_seconds().unwrap();
        let now = wall_clock::now_unix_ms() as f64 / 1e3;
        assert!(started > 1.7e9 && started < now + 1.0, "{started} {now}");
        assert!(seconds(ClockId::ProcessCPUTime) > 0.0);
    }
}
