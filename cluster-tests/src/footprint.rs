//! What a node uses of memory and disk, as the system counts it.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The unit of what the system says of a file's blocks.
const BLOCK_BYTES: u64 = 512;

/// What nodes use; of several, the most that one of them does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Memory now.
    pub memory_bytes: u64,
    /// The most that it was in this life.
    pub memory_bytes_max: u64,
    /// The data directory.
    pub disk_bytes: u64,
}

impl Footprint {
    /// What a process and its directory use. A file that goes away meanwhile is not counted.
    pub fn of(pid: u32, dir: &Path) -> Footprint {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
            kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
        };
        Footprint {
            memory_bytes: number("VmRSS:"),
            memory_bytes_max: number("VmHWM:"),
            disk_bytes: bytes_below(dir),
        }
    }

    /// The larger of each.
    pub fn max(self, other: Footprint) -> Footprint {
        Footprint {
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            memory_bytes_max: self.memory_bytes_max.max(other.memory_bytes_max),
            disk_bytes: self.disk_bytes.max(other.disk_bytes),
        }
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    });
    sizes.sum()
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let (memory, most) = (mib(self.memory_bytes), mib(self.memory_bytes_max));
        let disk = mib(self.disk_bytes);
        write!(f, "memory {memory} MiB, at most {most}, disk {disk} MiB")
    }
}
