//! What a server finds when it opens its log.

use crate::error::ReplayError;
use crate::files::key::{KEY_BYTES, SessionKey};
use crate::record::Scope;
use crate::record::frame::Position;
use crate::replay::leases::Leases;
use crate::replay::sessions::RecoveredSession;
use crate::replay::state::State;
use crate::replay::{Layout, Torn};
use disk::Disk;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a server finds when it opens its log.
pub struct Recovered {
    pub(crate) session_key: SessionKey,
    /// The ceiling of each shard that ever had one. Keys may belong to other shards now.
    pub ceilings: BTreeMap<u16, u64>,
    /// No fence above this was ever issued. The floor of every shard from now on. 0 for a new log.
    pub ceiling_max: u64,
    /// No lease that is not among `leases` ends later than this. 0: there is no such lease.
    pub horizon_unix_ms: u64,
    /// No such lease was longer than this when it was granted or renewed.
    pub horizon_lease_ms_max: u64,
    /// The latest time that the log knows of, by its own clock.
    pub last_clock_unix_ms: u64,
    /// How far the wall clock was ahead of the log's clock.
    pub wall_ahead_ms: i64,
    /// What the wall clock showed when the log last said so, as [`crate::Highest`] has it.
    pub last_wall_unix_ms: u64,
    /// The last server stopped in good order: `sessions` and `leases` are complete.
    pub was_clean: bool,
    /// What the last server wrote down. `None`: this is a new log.
    pub scope: Option<Scope>,
    /// Sessions that live, as far as the log knows. After a server that wrote down fences only and
    /// did not stop in good order: those that have a long lease, or had one.
    pub sessions: Vec<RecoveredSession>,
    /// Their leases.
    pub leases: Leases,
    /// When the snapshot was begun that this was read from; 0 if there is none.
    pub snapshot_unix_ms: u64,
    /// Where the log begins again after that snapshot.
    pub snapshot_begin: Position,
    /// A write that a crash cut short, and which was dropped.
    pub torn: Option<Torn>,
    /// How many records were read.
    pub records: u64,
    /// From how many bytes of files.
    pub bytes: u64,
    /// In what time.
    pub duration: Duration,
}

impl Recovered {
    /// The key that sessions are signed with.
    pub fn session_key(&self) -> [u8; KEY_BYTES] {
        self.session_key.bytes
    }

    pub(crate) fn new(
        mut state: State,
        layout: &Layout,
        start: Instant,
        disk: &dyn Disk,
    ) -> Result<Recovered, ReplayError> {
        let sessions = state.settle().map_err(|rule| ReplayError::Rule {
            // Each record of the log was checked when it was read; only a snapshot can be wrong as
            // a whole.
            file: disk.dir().join(
                layout
                    .snapshot
                    .map(|name| name.to_string())
                    .unwrap_or_default(),
            ),
            offset: 0,
            rule,
        })?;
        Ok(Recovered {
            session_key: SessionKey::find(disk, state.ceiling_max)?,
            ceilings: state.ceilings,
            ceiling_max: state.ceiling_max,
            horizon_unix_ms: match state.is_clean {
                true => 0,
                false => state.horizon_unix_ms,
            },
            horizon_lease_ms_max: state.horizon_lease_ms_max,
            last_clock_unix_ms: state.clock_unix_ms,
            wall_ahead_ms: state.wall_ahead_ms,
            last_wall_unix_ms: state.wall_unix_ms,
            was_clean: state.is_clean,
            scope: state.scope,
            sessions,
            leases: state.leases,
            snapshot_unix_ms: state.snapshot_unix_ms,
            snapshot_begin: layout.begin,
            torn: layout.torn.clone(),
            records: layout.records,
            bytes: layout.bytes,
            duration: start.elapsed(),
        })
    }
}
