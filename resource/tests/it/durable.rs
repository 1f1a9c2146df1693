//! A guard's log over restarts. What a crash does to the file itself is tested where the file is:
//! `src/journal/tests.rs`.

use crate::guard::fence;
use resource::{FenceGuard, JournalError, Refusal, Seen};
use tempfile::TempDir;

#[test]
fn a_restart_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let open = || {
        FenceGuard::builder()
            .keys_max(2)
            .open(dir.path().join("made/on/demand"))
            .unwrap()
    };
    let guard = open();
    for (key, number) in [("a", 3), ("b", 9), ("c", 4)] {
        guard.write_blocking(key, fence(number), || ()).unwrap();
    }
    drop(guard);
    let guard = open();
    assert_eq!(guard.keys(), 2);
    assert_eq!(guard.seen("b"), Seen::Fence(fence(9)));
    assert_eq!(
        guard.seen("a"),
        Seen::Floor(fence(3)),
        "forgotten before, and still"
    );
    assert!(matches!(
        guard.write_blocking("c", fence(4), || ()),
        Err(Refusal::Stale(_))
    ));
    guard.write_blocking("c", fence(5), || ()).unwrap();
}

#[test]
fn a_directory_has_one_guard_at_a_time() {
    let dir = TempDir::new().unwrap();
    let guard = FenceGuard::builder().open(dir.path()).unwrap();
    let second = FenceGuard::builder().open(dir.path());
    assert!(matches!(second, Err(JournalError::InUse { .. })));
    drop(guard);
    FenceGuard::builder().open(dir.path()).unwrap();
}

#[test]
fn the_fence_is_on_the_disk_when_the_write_begins() {
    let dir = TempDir::new().unwrap();
    let copy = TempDir::new().unwrap();
    let guard = FenceGuard::builder().open(dir.path()).unwrap();
    let copy_log = || {
        std::fs::copy(
            dir.path().join("fences.log"),
            copy.path().join("fences.log"),
        )
    };
    guard
        .write_blocking("k", fence(7), copy_log)
        .unwrap()
        .unwrap();
    // The disk as it was during the write, as a crash would have left it.
    let after_crash = FenceGuard::builder().open(copy.path()).unwrap();
    assert_eq!(after_crash.seen("k"), Seen::Fence(fence(7)));
}
