//! A server that writes down fences only: stopped at every operation in turn, those of its clean
//! stop included; and a real directory, cut at every byte.

use crate::files::segment::SEGMENT_BYTES_MIN;
use crate::record::{Lease, Record, Scope};
use crate::{Options, Recovered, WalError, open, open_on};
use disk::forgetful::{Dice, ForgetfulDisk, Keep};
use std::fs;
use std::sync::Arc;

const TURNS: u64 = 12;
const SHARDS: u16 = 3;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        spares_max: 2,
        ..Options::new(Scope::Fences, 1_000)
    }
}

fn granted(fence: u64) -> Record<'static> {
    Record::Granted(Lease {
        key: b"held",
        fence,
        session: 1,
        mode: types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: 9_000,
        granted_unix_ms: 1_000,
        note: b"",
    })
}

/// What the servers so far may have done, and what they were told is on the disk.
#[derive(Clone, Debug, Default)]
struct Known {
    ceiling_synced: u64,
    ceiling_appended: u64,
    horizon_synced: u64,
    horizon_appended: u64,
    /// The fence of the lease in the snapshot of a clean stop that was begun, if the log may still
    /// end in it.
    stop_begun: Option<u64>,
    /// That stop was completed, and nothing was written since.
    is_stopped: bool,
}

impl Known {
    fn check(&self, recovered: &Recovered) {
        let ceilings = self.ceiling_synced..=self.ceiling_appended;
        assert!(ceilings.contains(&recovered.ceiling_max), "{self:?}");
        let leases: Vec<u64> = recovered.leases.iter().map(|lease| lease.fence).collect();
        if recovered.was_clean {
            assert_eq!(recovered.horizon_unix_ms, 0, "every lease is known");
            let fence = self.stop_begun.expect("it was stopping");
            assert_eq!(leases, vec![fence]);
            assert_eq!(recovered.sessions.len(), 1);
        } else {
            assert!(!self.is_stopped, "a clean stop is remembered");
            let horizons = self.horizon_synced..=self.horizon_appended;
            assert!(horizons.contains(&recovered.horizon_unix_ms), "{self:?}");
            // The snapshot of a stop may be there, and counts until a server serves again.
            let stopped: Vec<u64> = self.stop_begun.into_iter().collect();
            assert!(leases.is_empty() || leases == stopped, "{self:?}");
            assert_eq!(recovered.sessions.len(), leases.len());
        }
    }
}

/// A server from its start to its clean stop, or until the disk stops it.
fn live(disk: &ForgetfulDisk, known: &mut Known) -> Result<(), WalError> {
    // Reading changes nothing: a clean stop is still one.
    let (opened, recovered) = open_on(Arc::new(disk.clone()), &options())?;
    known.check(&recovered);
    if recovered.was_clean {
        (known.horizon_synced, known.horizon_appended) = (0, 0);
    }
    // Its start may be on the disk from here on, and is when it has been reported.
    known.is_stopped = false;
    let wal = opened.start(())?;
    let mut ceilings = [recovered.ceiling_max; SHARDS as usize];
    for turn in 0..TURNS {
        let shard = (turn % u64::from(SHARDS)) as u16;
        let fence = known.ceiling_appended.max(recovered.ceiling_max) + 100;
        let unix_ms = known.horizon_appended.max(recovered.horizon_unix_ms) + 1_000;
        (known.ceiling_appended, known.horizon_appended) = (fence, unix_ms);
        ceilings[usize::from(shard)] = fence;
        wal.append(&Record::Horizon {
            unix_ms,
            lease_ms_max: None,
        });
        wal.wait(wal.append(&Record::Ceiling { shard, fence }))?;
        (known.ceiling_synced, known.horizon_synced) = (fence, unix_ms);
        known.stop_begun = None;
    }

    let held = known.ceiling_synced - 50;
    known.stop_begun = Some(held);
    let mut snapshot = wal.begin_snapshot(2_000)?;
    for (shard, fence) in (0..SHARDS).zip(ceilings) {
        snapshot.add(&Record::Ceiling { shard, fence })?;
    }
    let unix_ms = known.horizon_synced;
    for record in [
        Record::Horizon {
            unix_ms,
            lease_ms_max: None,
        },
        Record::SessionOpened {
            session: 1,
            ttl_ms: 8_000,
            deadline_unix_ms: 9_000,
            name: b"app",
        },
        granted(held),
    ] {
        snapshot.add(&record)?;
    }
    snapshot.finish()?;
    wal.close(2_000)?;
    known.is_stopped = true;
    Ok(())
}

#[test]
fn a_server_that_writes_down_fences_only_is_stopped_at_every_operation() {
    for variant in 0..=Keep::ALL.len() as u64 {
        let mut stop = 0;
        loop {
            let dice = &mut Dice(stop * 10 + variant);
            let known = &mut Known::default();
            let after = |disk: &ForgetfulDisk, dice: &mut Dice| match variant {
                0 => disk.kill(),
                keep => disk.cut_power(Keep::ALL[keep as usize - 1], dice),
            };
            // One that stops in good order, so that the second has something to forget.
            let disk = ForgetfulDisk::new();
            live(&disk, known).unwrap();
            let disk = after(&disk, dice);
            disk.stop_at(stop);
            let stopped = live(&disk, known);
            let disk = after(&disk, dice);
            live(&disk, known).unwrap();
            live(&after(&disk, dice), known).unwrap();
            if stopped.is_ok() {
                break;
            }
            stop += 1;
        }
        assert!(stop > 2 * TURNS, "each turn has a write and a sync");
    }
}

#[test]
fn a_real_directory_that_is_cut_at_any_byte_never_issues_a_used_fence() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let (opened, _) = open(dir, &options()).unwrap();
    let wal = opened.start(()).unwrap();
    let mut used = 0;
    // Into the second segment.
    while wal.metrics().segments.get() < 2 {
        used += 100;
        let ceiling = Record::Ceiling {
            shard: 0,
            fence: used,
        };
        wal.wait(wal.append(&ceiling)).unwrap();
    }
    drop(wal);
    let mut refusals = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for length in (0..bytes.len() as u64).rev() {
            file.set_len(length).unwrap();
            match open(dir, &options()) {
                Ok((_, recovered)) => {
                    assert!(recovered.ceiling_max >= used, "{path:?} cut to {length}");
                    // It has been written since; the next cut begins from what was there.
                    fs::write(&path, &bytes).unwrap();
                }
                Err(WalError::Replay(error)) => {
                    refusals += 1;
                    assert!(error.to_string().contains("wal repair"), "{error}");
                }
                Err(other) => panic!("{path:?} cut to {length}: {other}"),
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(refusals > 2 * 4096, "{refusals}");
    let (_, recovered) = open(dir, &options()).unwrap();
    assert_eq!(recovered.ceiling_max, used, "and put back it is whole");
}
