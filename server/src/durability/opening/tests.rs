//! Fences rise from server to server, with a log and without one, where ceilings are ahead of the
//! clock; and how long a server waits that knows not all leases.

use super::*;
use wal::forgetful::ForgetfulDisk;

/// A log whose last server ran for this long and wrote its time down at the start only.
const RAN_MS: u64 = 9_000;

/// What the clock alone would give, so many milliseconds from now.
fn clock_floor(in_ms: u64) -> Fence {
    Fence::granted(((unix_now_ms() + in_ms) << 20) / 1_000).unwrap()
}

/// Left by a server that was killed. Its ceiling is a year ahead of the clock.
fn left_behind(scope: Scope) -> ForgetfulDisk {
    let disk = ForgetfulDisk::new();
    let now_unix_ms = unix_now_ms();
    let start_unix_ms = now_unix_ms - RAN_MS;
    let options = Options::new(scope, start_unix_ms);
    let (opened, _) = wal::open_on(Arc::new(disk.clone()), &options).unwrap();
    let wal = opened.start(()).unwrap();
    let ceiling = clock_floor(365 * 24 * 3_600_000);
    let mut batch = Batch::new();
    batch.push(&Record::Clock {
        unix_ms: start_unix_ms,
        wall_unix_ms: Some(start_unix_ms),
    });
    push_ceilings(&mut batch, 0..1, ceiling);
    // No fence is granted below a ceiling that is not on the disk.
    wal.wait(wal.append_batch(batch)).unwrap();
    let mut batch = Batch::new();
    batch.push(&Record::SessionOpened {
        session: 1,
        ttl_ms: 60_000,
        deadline_unix_ms: now_unix_ms + 60_000,
        name: b"holder",
    });
    batch.push(&Record::GrantedLong(wal::Lease {
        key: b"k",
        fence: ceiling.get() - 1,
        session: 1,
        mode: engine::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: now_unix_ms + 60_000,
        granted_unix_ms: now_unix_ms,
        note: b"",
    }));
    batch.push(&Record::Horizon {
        unix_ms: now_unix_ms + 20_000,
        lease_ms_max: Some(30_000),
    });
    wal.wait(wal.append_batch(batch)).unwrap();
    disk.kill()
}

fn opening(disk: &ForgetfulDisk, durability: Durability, clock_floor: Fence) -> Opening {
    let config = Config {
        durability,
        ..Config::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let opening = Opening::read(
        &config,
        Some(disk),
        LogSizes::default(),
        clock_floor,
        Clock::start(),
    );
    opening.unwrap().unwrap()
}

fn without_log(disk: &ForgetfulDisk, clock_floor: Fence) -> Fence {
    floor_without_log(&Config::default(), Some(disk), clock_floor).unwrap()
}

/// The server with a log counted from the last grant, the one without from the last time, and so
/// began seconds higher.
#[test]
fn fences_do_not_fall_from_a_server_without_a_log_to_one_with_it() {
    for durability in [Durability::Fence, Durability::Lease] {
        let disk = left_behind(Scope::Leases);
        let before = without_log(&disk, clock_floor(0));
        let floor = opening(&disk, durability, clock_floor(10)).floor;
        assert!(floor > before, "{durability:?}: {floor:?} after {before:?}");
    }
}

/// A server that is killed in its grace period has said what time it is, and had not written down
/// where it began.
#[test]
fn fences_do_not_fall_behind_a_server_that_ends_in_its_grace_period() {
    for durability in [Durability::Fence, Durability::Lease] {
        let disk = left_behind(Scope::Fences);
        let before = without_log(&disk, clock_floor(0));
        let in_grace = opening(&disk, durability, clock_floor(10));
        assert!(!in_grace.grace.is_zero());
        drop(in_grace.start((), 2, Tick::from_ms(0)).unwrap());
        let disk = disk.kill();
        for floor in [
            without_log(&disk, clock_floor(20)),
            opening(&disk, durability, clock_floor(20)).floor,
        ] {
            assert!(floor > before, "{durability:?}: {floor:?} after {before:?}");
        }
    }
}

/// However far the horizon lies ahead.
#[test]
fn a_grace_period_is_no_longer_than_a_lease_that_is_not_in_the_log() {
    let disk = ForgetfulDisk::new();
    let options = Options::new(Scope::Fences, unix_now_ms());
    let (opened, _) = wal::open_on(Arc::new(disk.clone()), &options).unwrap();
    let wal = opened.start(()).unwrap();
    let horizon = Record::Horizon {
        unix_ms: unix_now_ms() + 3_600_000,
        lease_ms_max: Some(1_000),
    };
    wal.wait(wal.append(&horizon)).unwrap();
    let killed = disk.kill();
    for durability in [Durability::Fence, Durability::Lease] {
        let grace = opening(&killed, durability, clock_floor(0)).grace;
        assert_eq!(grace, Duration::from_secs(1), "{durability:?}");
    }
}
