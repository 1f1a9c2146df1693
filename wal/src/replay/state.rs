//! What the records add up to. One call per record, in the order of the log; a snapshot's records
//! come first.
//!
//! A snapshot is fuzzy: it was taken while the log went on, so it shows some effects of records
//! that will be replayed over it. That is why every rule here may be applied twice, and why it goes
//! by names (a fence, a session, a shard) and not by "the current one". What the log says of leases
//! before the position that the snapshot names is not applied again, except for ends: `snapshot.rs`
//! says why.

use crate::error::BrokenRule;
use crate::record::frame::Position;
use crate::record::{Record, Scope};
use crate::replay::leases::Leases;
use crate::replay::sessions::{RecoveredSession, Sessions};
use std::collections::BTreeMap;

/// Everything that was replayed so far.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) ceilings: BTreeMap<u16, u64>,
    pub(crate) ceiling_max: u64,
    pub(crate) horizon_unix_ms: u64,
    /// No lease that only the horizon covers was longer than this.
    pub(crate) horizon_lease_ms_max: u64,
    /// The latest moment that any record calls the present, by the log's clock.
    pub(crate) clock_unix_ms: u64,
    /// How far the wall clock was ahead of the log's clock when the log last heard of it.
    pub(crate) wall_ahead_ms: i64,
    /// What the wall clock showed then.
    pub(crate) wall_unix_ms: u64,
    /// What the last server wrote down; `None` before the first.
    pub(crate) scope: Option<Scope>,
    pub(crate) is_clean: bool,
    pub(crate) snapshot_unix_ms: u64,
    /// The highest fence of a lease in the snapshot. The ceiling for it may come later, with the
    /// log.
    pub(crate) snapshot_fence_max: u64,
    /// What the log says of leases before this position shows in the snapshot.
    shows: u64,
    /// The next record stands before that position.
    is_shown: bool,
    sessions: Sessions,
    pub(crate) leases: Leases,
    /// The ceilings in the log since its last server started, and what they must all lie at or
    /// above.
    life_ceilings: BTreeMap<u16, u64>,
    life_floor: u64,
    /// The last server, one that writes down fences only, has written its first horizon. From there
    /// on it follows long leases only.
    life_has_horizon: bool,
}

impl State {
    /// A record of the snapshot.
    pub(crate) fn apply_snapshot(&mut self, record: &Record<'_>) -> Result<(), BrokenRule> {
        match *record {
            Record::SnapshotBegin { unix_ms, scope } => {
                self.snapshot_unix_ms = unix_ms;
                self.tell_time(unix_ms);
                self.scope = Some(scope);
                self.life_has_horizon = true;
            }
            Record::SnapshotShows { log_position } => self.shows = log_position,
            Record::Ceiling { shard, fence } => self.raise_ceiling(shard, fence),
            Record::Granted(lease) | Record::GrantedLong(lease) => {
                self.snapshot_fence_max = self.snapshot_fence_max.max(lease.fence);
                self.apply_common(record);
            }
            Record::Horizon { .. } | Record::Clock { .. } | Record::SessionOpened { .. } => {
                self.apply_common(record);
            }
            _ if record.is_of_node() => return Err(BrokenRule::OfACluster),
            _ => return Err(BrokenRule::OutOfPlace),
        }
        Ok(())
    }

    /// Says where the next record of the log stands.
    pub(crate) fn reach(&mut self, position: Position) {
        self.is_shown = position.get() < self.shows;
    }

    /// A record of the log.
    pub(crate) fn apply_log(&mut self, record: &Record<'_>) -> Result<(), BrokenRule> {
        let was_clean = std::mem::replace(&mut self.is_clean, false);
        match *record {
            Record::Started { unix_ms, scope } => {
                if was_clean {
                    // Every lease is known: there is nothing left for a horizon to cover.
                    self.horizon_unix_ms = 0;
                }
                self.leases.begin_life();
                self.tell_time(unix_ms);
                self.scope = Some(scope);
                self.life_has_horizon = false;
                self.life_ceilings.clear();
                self.life_floor = self.ceiling_max;
            }
            Record::CleanStop { unix_ms } => {
                self.tell_time(unix_ms);
                self.is_clean = true;
            }
            Record::Ceiling { shard, fence } => {
                let before = self.life_ceilings.insert(shard, fence);
                let before = before.unwrap_or(0).max(self.life_floor);
                if fence < before {
                    return Err(BrokenRule::CeilingFell {
                        shard,
                        fence,
                        before,
                    });
                }
                self.raise_ceiling(shard, fence);
            }
            Record::Horizon { .. } => {
                self.apply_common(record);
                if self.scope == Some(Scope::Fences) && !self.life_has_horizon {
                    self.life_has_horizon = true;
                    self.forget_short();
                }
            }
            Record::Granted(lease) | Record::GrantedLong(lease) => {
                if lease.fence > self.ceiling_max {
                    return Err(BrokenRule::FenceAboveCeilings {
                        fence: lease.fence,
                        ceiling: self.ceiling_max,
                    });
                }
                self.apply_common(record);
            }
            Record::SnapshotBegin { .. }
            | Record::SnapshotShows { .. }
            | Record::SnapshotEnd { .. }
            | Record::Continued { .. }
            | Record::TurnsEnded
            | Record::Answered { .. }
            | Record::Synced => return Err(BrokenRule::OutOfPlace),
            _ if record.is_of_node() => return Err(BrokenRule::OfACluster),
            _ => self.apply_common(record),
        }
        Ok(())
    }

    /// What means the same in a snapshot and in the log.
    fn apply_common(&mut self, record: &Record<'_>) {
        match *record {
            Record::Horizon {
                unix_ms,
                lease_ms_max,
            } => self.raise_horizon(unix_ms, lease_ms_max),
            Record::Clock {
                unix_ms,
                wall_unix_ms,
            } => {
                self.tell_time(unix_ms);
                let wall_unix_ms = wall_unix_ms.unwrap_or(unix_ms);
                self.wall_ahead_ms = wall_unix_ms.wrapping_sub(unix_ms) as i64;
                self.wall_unix_ms = wall_unix_ms;
            }
            Record::SessionOpened { .. }
            | Record::SessionKept { .. }
            | Record::SessionEnded { .. } => self.sessions.apply(record),
            Record::Granted(lease) | Record::GrantedLong(lease) => {
                self.tell_time(lease.granted_unix_ms);
                if self.is_shown {
                    return;
                }
                let owner = self.sessions.mention(lease.session);
                match record {
                    Record::GrantedLong(_) => self.leases.grant_long(&lease, owner),
                    _ => self.leases.grant(&lease, owner),
                }
            }
            Record::Released {
                key,
                fence,
                count_left: 0,
            } => self.leases.release(key, fence, 0),
            // The snapshot knows better. Ends count all the same: the grant of one may come later.
            Record::Renewed { .. } | Record::Released { .. } | Record::Downgraded { .. }
                if self.is_shown => {}
            Record::Renewed {
                key,
                fence,
                until_unix_ms,
            } => self.leases.renew(key, fence, until_unix_ms),
            Record::Released {
                key,
                fence,
                count_left,
            } => self.leases.release(key, fence, count_left),
            Record::Downgraded { key, fence } => self.leases.downgrade(key, fence),
            _ => unreachable!("both callers keep {record:?} for themselves"),
        }
    }

    /// Nothing follows. The sessions that live; the leases know theirs.
    pub(crate) fn settle(&mut self) -> Result<Vec<RecoveredSession>, BrokenRule> {
        if self.snapshot_fence_max > self.ceiling_max {
            return Err(BrokenRule::FenceAboveCeilings {
                fence: self.snapshot_fence_max,
                ceiling: self.ceiling_max,
            });
        }
        self.leases.settle(self.sessions.owners().into());
        Ok(std::mem::take(&mut self.sessions).into_live())
    }

    /// A server that writes down fences only has begun to serve. What becomes of the leases that it
    /// found is written down for long ones only; the others may end at any moment without a word,
    /// and its horizon covers them.
    fn forget_short(&mut self) {
        let owners = self.leases.forget_short();
        self.sessions.forget_unless(|owner| owners.contains(&owner));
    }

    fn raise_horizon(&mut self, unix_ms: u64, lease_ms_max: Option<u32>) {
        if self.horizon_unix_ms <= self.clock_unix_ms {
            // All that the earlier horizon covered is over.
            self.horizon_lease_ms_max = 0;
        }
        let lease_ms_max = lease_ms_max.map_or(u64::MAX, u64::from);
        self.horizon_lease_ms_max = self.horizon_lease_ms_max.max(lease_ms_max);
        self.horizon_unix_ms = self.horizon_unix_ms.max(unix_ms);
    }

    fn raise_ceiling(&mut self, shard: u16, fence: u64) {
        let ceiling = self.ceilings.entry(shard).or_default();
        *ceiling = fence.max(*ceiling);
        self.ceiling_max = self.ceiling_max.max(fence);
    }

    fn tell_time(&mut self, unix_ms: u64) {
        self.clock_unix_ms = self.clock_unix_ms.max(unix_ms);
    }
}

#[cfg(test)]
mod tests;
