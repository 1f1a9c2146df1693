//! One server after the other on the same log, step by step and without threads: the miniature
//! server happens, the log writes it down, and at every point it is known what must be found again.

use super::model::{View, World};
use crate::error::WalError;
use crate::files::segment::SEGMENT_BYTES_MIN;
use crate::log::snapshot::{self, SnapshotFile};
use crate::log::{Log, Options};
use crate::record::frame::Position;
use crate::record::{Record, Scope};
use crate::replay::recovered::Recovered;
use disk::forgetful::{Dice, ForgetfulDisk};
use std::sync::Arc;

/// Segments so small that a handful of records fill one.
pub(crate) const SEGMENT_BYTES: u64 = SEGMENT_BYTES_MIN + 100;

pub(crate) fn options(now_unix_ms: u64) -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        spares_max: 2,
        snapshot_log_bytes: 4096,
        ..Options::new(Scope::Leases, now_unix_ms)
    }
}

/// What was true after every record, and how much of it was reported as synced.
#[derive(Clone)]
pub(crate) struct Trail {
    worlds: Vec<World>,
    pub(crate) synced: usize,
    /// How much of it was before the last write.
    pub(crate) synced_before: usize,
    /// How much of it was when the last snapshot was completed.
    pub(crate) synced_by_snapshot: usize,
    /// The latest time of any world, those that were forgotten included.
    now_unix_ms: u64,
}

impl Trail {
    pub(crate) fn new() -> Self {
        Trail {
            worlds: vec![World::new()],
            synced: 0,
            synced_before: 0,
            synced_by_snapshot: 0,
            now_unix_ms: 0,
        }
    }

    pub(crate) fn last(&self) -> &World {
        self.worlds.last().expect("there is one at least")
    }

    /// How many records were written that may be found or not.
    pub(crate) fn unsynced(&self) -> usize {
        self.worlds.len() - 1 - self.synced
    }

    /// Checks that what was found is what was true at some point, and not before the last one that
    /// was reported as synced. From there the next server goes on.
    pub(crate) fn check(&mut self, recovered: &Recovered) {
        let now_unix_ms = self.now_unix_ms.max(self.last().now_unix_ms);
        let view = View::of(recovered, now_unix_ms);
        let candidates = self.synced..self.worlds.len();
        // Some records change nothing that can be seen. The last that fits.
        let fits = |index: &usize| {
            let mut world = self.worlds[*index].view_at(now_unix_ms);
            if recovered.was_clean {
                world.horizon_unix_ms = 0;
            }
            world == view
        };
        let Some(found) = candidates.rev().find(fits) else {
            let synced = self.worlds[self.synced].view_at(now_unix_ms);
            panic!("found {view:#?}\nwhich was never true since {synced:#?}");
        };
        assert!(recovered.last_clock_unix_ms <= now_unix_ms);
        self.worlds.truncate(found + 1);
        self.worlds[found].restart(now_unix_ms, recovered.was_clean);
        self.synced = found;
    }
}

/// A server.
pub(crate) struct Life {
    pub(crate) disk: ForgetfulDisk,
    pub(crate) log: Log,
    world: World,
    records: Vec<u8>,
    snapshot: Option<Fuzzy>,
    snapshot_at: Position,
    pub(crate) snapshots: usize,
}

/// A snapshot half written.
struct Fuzzy {
    file: SnapshotFile,
    begin: Position,
    parts: Vec<usize>,
}

impl Life {
    /// Opens the log and checks what is found.
    pub(crate) fn begin(disk: &ForgetfulDisk, trail: &mut Trail) -> Result<Life, WalError> {
        let now_unix_ms = trail.last().now_unix_ms;
        let (log, recovered) = Log::open(Arc::new(disk.clone()), &options(now_unix_ms))?;
        trail.check(&recovered);
        Ok(Life {
            disk: disk.clone(),
            log,
            world: trail.last().clone(),
            records: Vec::new(),
            snapshot: None,
            snapshot_at: recovered.snapshot_begin,
            snapshots: 0,
        })
    }

    /// One turn: a few things happen, and are written and synced together.
    pub(crate) fn turn(&mut self, trail: &mut Trail, dice: &mut Dice) -> Result<(), WalError> {
        for _ in 0..1 + dice.below(6) {
            self.world.step(dice, &mut |world, record| {
                record.append_to(&mut self.records);
                trail.worlds.push(world.clone());
            });
            // A record's effect is there before the record is, and the snapshot may show it.
            if let Some(fuzzy) = &mut self.snapshot
                && dice.flip()
                && let Some(part) = fuzzy.parts.pop()
            {
                for record in self.world.part(part) {
                    fuzzy.file.add(&record)?;
                }
            }
        }
        trail.now_unix_ms = self.world.now_unix_ms;
        self.log.commit(&mut self.records)?;
        self.records.clear();
        trail.synced_before = trail.synced;
        trail.synced = trail.worlds.len() - 1;
        if dice.below(3) == 0 {
            self.log.mark()?;
        }
        self.see_to_snapshot(trail, dice)
    }

    fn see_to_snapshot(&mut self, trail: &mut Trail, dice: &mut Dice) -> Result<(), WalError> {
        let disk: Arc<ForgetfulDisk> = Arc::new(self.disk.clone());
        match self.snapshot.take() {
            Some(fuzzy) if fuzzy.parts.is_empty() => {
                let (name, _) = fuzzy.file.finish(self.log.end())?;
                snapshot::remove_others(&*disk, name)?;
                self.log.shelf.retire(&*disk, fuzzy.begin)?;
                self.snapshot_at = fuzzy.begin;
                self.snapshots += 1;
                trail.synced_by_snapshot = trail.synced;
            }
            Some(fuzzy) => self.snapshot = Some(fuzzy),
            None if self.log.end().since(self.snapshot_at) > 3000 => {
                let mut parts: Vec<usize> = (0..World::PARTS).collect();
                for index in 0..parts.len() {
                    parts.swap(index, dice.below(World::PARTS as u64) as usize);
                }
                let begin = self.log.end();
                let now = self.world.now_unix_ms;
                let file = SnapshotFile::create(disk, begin, now, Scope::Leases)?;
                self.snapshot = Some(Fuzzy { file, begin, parts });
            }
            None => {}
        }
        Ok(())
    }

    /// Stops in good order.
    pub(crate) fn end(mut self) -> Result<(), WalError> {
        let stop = Record::CleanStop {
            unix_ms: self.world.now_unix_ms,
        };
        stop.append_to(&mut self.records);
        self.log.commit(&mut self.records)?;
        self.log.mark()
    }
}

/// Lives until something goes wrong, or for so many turns.
pub(crate) fn live(
    disk: &ForgetfulDisk,
    trail: &mut Trail,
    dice: &mut Dice,
    turns: usize,
) -> Result<Life, WalError> {
    let mut life = Life::begin(disk, trail)?;
    for _ in 0..turns {
        life.turn(trail, dice)?;
    }
    Ok(life)
}
