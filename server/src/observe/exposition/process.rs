//! What the system knows about this process. Read from `/proc`; on systems without it, nothing.

use std::fs;

/// Memory that is in RAM.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = field(&status, "VmRSS:")?.parse().ok()?;
    Some(kib * 1024)
}

/// Open file descriptors, without the one that is opened to count them.
pub(super) fn open_fds() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(count.saturating_sub(1))
}

/// How many file descriptors may be open. `None` also if there is no limit.
pub(super) fn fds_max() -> Option<u64> {
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

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_files() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(open_fds().unwrap() >= 1);
        assert!(fds_max().unwrap() >= open_fds().unwrap());
    }
}
