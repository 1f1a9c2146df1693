//! Snapshots: ceilings, horizon, sessions and leases as they are, written beside the log while it goes on. At a clean stop
//! nothing goes on, and the snapshot is exact.

use super::Storage;
use crate::shared::Shared;
use crate::wal::{Lease, Record, Scope, Snapshot, WalError};
use engine::{Cursor, Fence, Held, Mode, SessionId, Tick};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How many cells are looked at between two moments in which others may evict.
const CELLS_PER_LOOK: u32 = 4_096;

/// Writes a snapshot of what this server writes down while it runs.
pub(super) fn take(shared: &Shared, storage: &Storage, now_unix_ms: u64) -> Result<(), WalError> {
    let mut snapshot = storage.wal.begin_snapshot(now_unix_ms)?;
    add_bounds(shared, storage, &mut snapshot)?;
    if storage.scope == Scope::Leases {
        add_leases(shared, storage, &mut snapshot)?;
    }
    snapshot.finish()
}

/// The same, unless there is no room for it: then the log goes on without one, which it has said
/// already.
pub(super) fn take_if_room(
    shared: &Shared,
    storage: &Storage,
    now_unix_ms: u64,
) -> Result<(), WalError> {
    match take(shared, storage, now_unix_ms) {
        Err(error) if error.is_for_want_of_room() && storage.wal.failure().is_none() => Ok(()),
        taken => taken,
    }
}

impl Storage {
    /// The last things a server does: writes down everything that is held, and that it stops in good order.
    pub(crate) fn close(&self, shared: &Shared) -> Result<(), WalError> {
        let now_unix_ms = self.unix_ms(shared.clock.now());
        // A server that stops in its grace period does not know what is held: its successor must wait as long.
        if shared.recovery.is_on() {
            return Ok(());
        }
        let mut snapshot = self.wal.begin_snapshot(now_unix_ms)?;
        add_bounds(shared, self, &mut snapshot)?;
        add_leases(shared, self, &mut snapshot)?;
        snapshot.finish()?;
        self.wal.close(now_unix_ms)
    }
}

fn add_bounds(
    shared: &Shared,
    storage: &Storage,
    snapshot: &mut Snapshot<'_>,
) -> Result<(), WalError> {
    let engine = &shared.engine;
    for shard in 0..engine.shard_count() {
        snapshot.add(&Record::Ceiling {
            shard: shard as u16,
            fence: engine.ceiling(shard).get(),
        })?;
    }
    let horizon_ms = storage.horizon_ms.load(Ordering::Acquire);
    let recovery = &shared.recovery;
    let unix_ms = storage
        .unix_ms(Tick::from_ms(horizon_ms))
        .max(recovery.horizon_unix_ms());
    snapshot.add(&Record::Horizon { unix_ms })?;
    snapshot.add(&Record::Clock {
        unix_ms: storage.unix_ms(shared.clock.now()),
    })
}

fn add_leases(
    shared: &Shared,
    storage: &Storage,
    snapshot: &mut Snapshot<'_>,
) -> Result<(), WalError> {
    let engine = &shared.engine;
    for session in shared.registry().all() {
        let deadline = engine.session_deadline(session.id);
        snapshot.add(&Record::SessionOpened {
            session: session.public_id,
            ttl_ms: session.ttl_ms,
            deadline_unix_ms: storage.unix_ms(deadline),
            name: session.client_name.as_bytes(),
        })?;
    }
    let now = shared.clock.now();
    let now_unix_ms = storage.unix_ms(now);
    let mut sheet = Sheet::default();
    let mut from = Some(Cursor::default());
    while let Some(cursor) = from {
        // Taken down first and written afterwards: nobody's eviction is to wait for the disk.
        from = engine.holds(cursor, CELLS_PER_LOOK, now, |held| sheet.take_down(held));
        for noted in sheet.notes.drain(..) {
            // One whose session is gone is as good as released.
            let Some(session) = shared.registry().find(noted.owner) else {
                continue;
            };
            snapshot.add(&Record::Granted(Lease {
                key: &sheet.bytes[noted.key],
                fence: noted.fence.get(),
                session: session.public_id,
                is_shared: noted.mode == Mode::Shared,
                is_session_bound: noted.is_session_bound,
                count: noted.count,
                until_unix_ms: storage.unix_ms(noted.until),
                granted_unix_ms: now_unix_ms.saturating_sub(noted.held_ms),
                note: &sheet.bytes[noted.note],
            }))?;
        }
        sheet.bytes.clear();
    }
    Ok(())
}

/// Holds that were met and are yet to be written. Keys and notes stand one after the other.
#[derive(Default)]
struct Sheet {
    bytes: Vec<u8>,
    notes: Vec<Noted>,
}

struct Noted {
    key: Range<usize>,
    note: Range<usize>,
    fence: Fence,
    owner: SessionId,
    mode: Mode,
    is_session_bound: bool,
    until: Tick,
    held_ms: u64,
    count: u32,
}

impl Sheet {
    fn take_down(&mut self, held: &Held<'_>) {
        let key = self.append(held.key.bytes());
        let note = self.append(held.note);
        self.notes.push(Noted {
            key,
            note,
            fence: held.fence,
            owner: held.owner,
            mode: held.mode,
            is_session_bound: held.is_session_bound,
            until: held.until,
            held_ms: held.held_ms,
            count: held.count,
        });
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}
