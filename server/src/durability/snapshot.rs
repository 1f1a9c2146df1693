//! Snapshots: ceilings, horizon, sessions and leases as they are, written beside the log while it
//! goes on. At a clean stop nothing goes on, and the snapshot is exact.

use crate::core::mail::Mail;
use crate::core::pauses::Pause;
use crate::core::shared::Shared;
use crate::storage::Storage;
use engine::{Cursor, Fence, Held, Mode, SessionId, Tick};
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use wal::{Lease, Record, Scope, Snapshot, WalError};

/// How many cells are looked at between two moments in which others may evict.
const CELLS_PER_LOOK: u32 = 4_096;

/// How long a snapshot waits for the cores, each of which ends its turn. A turn takes milliseconds.
const CORES_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often it looks meanwhile whether the server stops.
const CORES_LOOK: Duration = Duration::from_millis(10);

/// Which leases a snapshot is to have, and which sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// Those that are written down one by one while the server writes down fences only.
    Long,
}

/// Writes a snapshot of what this server writes down while it runs.
pub(super) fn take(shared: &Shared, storage: &Storage) -> Result<(), WalError> {
    let mut snapshot = storage
        .journal
        .disk()
        .begin_snapshot(storage.clock.now_unix_ms())?;
    if !have_cores_append(shared) {
        tracing::warn!("a snapshot was put off: a core did not come to it");
        return Ok(());
    }
    snapshot.mark_shown()?;
    add_bounds(shared, storage, &mut snapshot)?;
    let part = match storage.scope {
        Scope::Leases => Part::All,
        Scope::Fences => Part::Long,
    };
    add_leases(shared, storage, part, &mut snapshot)?;
    snapshot.finish()
}

/// Waits until each core has appended what it had decided when this was called. `false`: the server
/// stops, or a core is so busy that it had better be asked another time.
pub(super) fn have_cores_append(shared: &Shared) -> bool {
    let (done, all_done) = mpsc::channel::<()>();
    for post in &*shared.engine.host().posts {
        let done = done.clone();
        post.send(Mail::AppendNow { done });
    }
    drop(done);
    // Nothing is ever sent: the channel closes when the last of the letters has been read.
    let begun = Instant::now();
    while begun.elapsed() < CORES_WAIT_MAX && !shared.stop.is_cancelled() {
        if all_done.recv_timeout(CORES_LOOK) == Err(RecvTimeoutError::Disconnected) {
            return true;
        }
        shared.pause(Pause::AwaitsCores);
    }
    false
}

/// The same, unless there is no room for it: then the log goes on without one, which it has said
/// already.
pub(super) fn take_if_room(shared: &Shared, storage: &Storage) -> Result<(), WalError> {
    match take(shared, storage) {
        Err(error) if error.is_for_want_of_room() && storage.journal.disk().failure().is_none() => {
            Ok(())
        }
        taken => taken,
    }
}

impl Storage {
    /// The last things a server does: writes down everything that is held, and that it stops in
    /// good order.
    pub(crate) fn close(&self, shared: &Shared) -> Result<(), WalError> {
        let now_unix_ms = self.clock.now_unix_ms();
        // A server that stops in its grace period does not know what is held: its successor must
        // wait as long.
        if shared.recovery.is_on() {
            return Ok(());
        }
        let mut snapshot = self.journal.disk().begin_snapshot(now_unix_ms)?;
        // All turns are over.
        snapshot.mark_shown()?;
        add_bounds(shared, self, &mut snapshot)?;
        add_leases(shared, self, Part::All, &mut snapshot)?;
        snapshot.finish()?;
        self.journal.disk().close(now_unix_ms)
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
    let mut horizon = storage.horizon_asked();
    let before = shared.recovery.horizon();
    if before.unix_ms > storage.clock.now_unix_ms() {
        horizon = horizon.and(before);
    }
    if horizon.unix_ms > 0 {
        snapshot.add(&horizon.record())?;
    }
    snapshot.add(&storage.clock.record())
}

fn add_leases(
    shared: &Shared,
    storage: &Storage,
    part: Part,
    snapshot: &mut Snapshot<'_>,
) -> Result<(), WalError> {
    let engine = &shared.engine;
    for session in shared.registry().all() {
        if part == Part::Long && !session.is_logged() {
            continue;
        }
        let deadline = engine.session_deadline(session.id);
        snapshot.add(&Record::SessionOpened {
            session: session.public_id,
            ttl_ms: session.ttl_ms,
            deadline_unix_ms: storage.unix_ms(deadline),
            name: session.client_name.as_bytes(),
        })?;
    }
    if part == Part::Long && storage.long.count() == 0 {
        return Ok(());
    }
    let mut collected = Collected::default();
    let mut from = Some(Cursor::default());
    while let Some(cursor) = from {
        // Collected first and written afterwards: no eviction waits for the disk.
        from = engine.holds(
            cursor,
            CELLS_PER_LOOK,
            || shared.clock.now(),
            |held| collected.add(held),
        );
        for hold in collected.holds.drain(..) {
            let key = &collected.bytes[hold.key];
            let is_long = storage.long.contains(key, hold.fence.get());
            if part == Part::Long && !is_long {
                continue;
            }
            // One whose session is gone is as good as released.
            let Some(session) = shared.registry().find(hold.owner) else {
                continue;
            };
            let lease = Lease {
                key,
                fence: hold.fence.get(),
                session: session.public_id,
                mode: hold.mode,
                is_session_bound: hold.is_session_bound,
                count: hold.count,
                until_unix_ms: storage.unix_ms(hold.until),
                granted_unix_ms: storage.unix_ms(hold.seen).saturating_sub(hold.held_ms),
                note: &collected.bytes[hold.note],
            };
            snapshot.add(&match is_long {
                true => Record::GrantedLong(lease),
                false => Record::Granted(lease),
            })?;
        }
        collected.bytes.clear();
    }
    Ok(())
}

/// Holds that were met and are yet to be written. Keys and notes stand one after the other.
#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    holds: Vec<CollectedHold>,
}

struct CollectedHold {
    key: Range<usize>,
    note: Range<usize>,
    fence: Fence,
    owner: SessionId,
    mode: Mode,
    is_session_bound: bool,
    until: Tick,
    held_ms: u64,
    seen: Tick,
    count: u32,
}

impl Collected {
    fn add(&mut self, held: &Held<'_>) {
        let key = self.append(held.key.bytes());
        let note = self.append(held.metadata);
        self.holds.push(CollectedHold {
            key,
            note,
            fence: held.fence,
            owner: held.owner,
            mode: held.mode,
            is_session_bound: held.is_session_bound,
            until: held.until,
            held_ms: held.held_ms,
            seen: held.seen,
            count: held.count,
        });
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}
