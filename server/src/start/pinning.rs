//! Keeps a thread on one core, for machines that do nothing else.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Puts the calling thread on the `index`th core of those that this process may use, counted round.
/// Returns which it is.
pub(crate) fn pin(index: usize) -> io::Result<usize> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let Some(&cpu) = cpus.get(index % cpus.len().max(1)) else {
        return Err(io::Error::other("the system names no core to run on"));
    };
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)?;
    Ok(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core_and_the_next_thread_another() {
        let cpu_of = |index| {
            let pinned = move || {
                let cpu = pin(index).unwrap();
                let allowed = sched_getaffinity(None).unwrap();
                assert_eq!(allowed.count(), 1);
                assert!(allowed.is_set(cpu));
                cpu
            };
            std::thread::spawn(pinned).join().unwrap()
        };
        let cpu_count = sched_getaffinity(None).unwrap().count() as usize;
        assert_eq!(
            cpu_of(0),
            cpu_of(cpu_count),
            "counted round: more threads than cores share"
        );
        if cpu_count > 1 {
            assert_ne!(cpu_of(0), cpu_of(1));
        }
    }
}
