//! Putting back what the log knows: sessions first, then their locks, shared out over the cores,
//! each of which then owns its part until the sessions end.

use crate::core::shared::Shared;
use crate::observe::audit::Restoration;
use crate::session::Session;
use crate::storage::{FOREVER_UNIX_MS, LogClock, LongLeases};
use engine::{Fence, Key, Limit, OldHold, Seat, SessionId, Span, TTL_MS_MAX, Tick, WARM_MAX};
use hashbrown::HashMap;
use std::sync::Arc;
use std::thread;
use wal::{Lease, Leases, RecoveredSession, Scope};

/// What was put back.
#[derive(Default)]
pub(crate) struct Restored {
    /// For each core, the seats through which it was taken.
    pub(crate) seats: Vec<HashMap<SessionId, Seat>>,
    pub(crate) sessions: usize,
    pub(crate) locks: u64,
    /// Leases that were over, or whose sessions were.
    pub(crate) over: u64,
    /// When the last of it ends, long leases apart.
    pub(crate) latest_end: Tick,
    /// For the audit log, if there is one.
    pub(crate) told: Restoration,
}

/// What a log, or a cluster's ledger, knows.
pub(crate) struct Known<'a> {
    pub(crate) sessions: &'a [RecoveredSession],
    /// In any number of parts.
    pub(crate) leases: &'a [Leases],
    pub(crate) clock: &'a LogClock,
    pub(crate) scope: Scope,
    /// The longest lease that is not written down by itself in `fence`.
    pub(crate) lease_ms_max: u32,
    /// Those that are.
    pub(crate) long: &'a LongLeases,
    /// Which requests of a session were answered with grants.
    pub(crate) knows_answers: bool,
}

/// Puts back sessions and locks, before the server has clients.
pub(crate) fn restore(shared: &Shared, known: &Known<'_>) -> Result<Restored, Limit> {
    let now = shared.clock.now();
    let now_unix_ms = known.clock.unix_ms(now);
    let sessions = restore_sessions(shared, known, now_unix_ms, now)?;
    let parts: Vec<Result<Part, Limit>> = thread::scope(|scope| {
        let part = |core| {
            let sessions = &sessions;
            scope.spawn(move || restore_part(shared, known, sessions, core, now))
        };
        let threads: Vec<_> = (0..shared.core_count).map(part).collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("putting locks back does not panic"))
            .collect()
    });
    let mut restored = Restored {
        sessions: sessions.len(),
        ..Restored::default()
    };
    for part in parts {
        let part = part?;
        restored.seats.push(part.seats);
        restored.locks += part.locks;
        restored.over += part.over;
        restored.latest_end = restored.latest_end.max(part.latest_end);
        restored.told.add(part.told);
    }
    Ok(restored)
}

/// By public id.
type Sessions = HashMap<u64, Arc<Session>>;

fn restore_sessions(
    shared: &Shared,
    known: &Known<'_>,
    now_unix_ms: u64,
    now: Tick,
) -> Result<Sessions, Limit> {
    let mut sessions = Sessions::new();
    for old in known.sessions {
        let Some(left_ms) = left_ms(old.deadline_unix_ms, now_unix_ms) else {
            continue;
        };
        // Never longer than it was given, whatever became of the clocks.
        let left_ms = left_ms.min(u64::from(old.ttl_ms));
        let id = shared.engine.open_session(left_ms, now)?;
        let client_name = String::from_utf8_lossy(&old.name);
        let core_count = shared.core_count;
        let session = Session::new(
            id,
            old.session,
            &client_name,
            old.ttl_ms,
            core_count,
            now,
            shared.registry().memory.clone(),
        );
        match known.knows_answers {
            true => session.remember(old),
            false => session.mark_restored(),
        }
        let session = Arc::new(session);
        shared.registry().insert(session.clone());
        sessions.insert(old.session, session);
    }
    Ok(sessions)
}

/// What one core got.
#[derive(Default)]
struct Part {
    seats: HashMap<SessionId, Seat>,
    locks: u64,
    over: u64,
    latest_end: Tick,
    told: Restoration,
}

fn restore_part(
    shared: &Shared,
    known: &Known<'_>,
    sessions: &Sessions,
    core: usize,
    now: Tick,
) -> Result<Part, Limit> {
    let mut part = Part::default();
    let now_unix_ms = known.clock.unix_ms(now);
    let is_told = shared.audit().is_some();
    let _batch = shared.engine.batch();
    let leases = known.leases.iter();
    let leases = leases.flat_map(|leases| leases.share(core, shared.core_count));
    for (lease, is_logged) in warmed(shared, leases) {
        let (Some(session), Some(left_ms)) = (
            sessions.get(&lease.session),
            left_ms(lease.until_unix_ms, now_unix_ms),
        ) else {
            part.over += 1;
            if is_told {
                (part.told).lapsed(now, lease.session, lease.key, lease.fence);
            }
            continue;
        };
        let seat = part.seats.entry(session.id);
        let seat = seat.or_insert_with(|| Seat::new(session.id));
        let old = old_hold(&lease, left_ms, now_unix_ms);
        if shared.engine.restore(seat, &old, now)? {
            part.locks += 1;
            if is_told {
                part.told.restored(now, session, &old);
            }
            session.count_held(core, 1);
            if lease.is_session_bound {
                session.mark_bound();
            }
            if known.scope == Scope::Leases {
                continue;
            }
            let lease_ms = match lease.is_session_bound {
                true => u64::from(session.ttl_ms),
                false => left_ms,
            };
            if !is_logged && lease_ms <= u64::from(known.lease_ms_max) {
                part.latest_end = part.latest_end.max(now.plus_ms(left_ms));
                continue;
            }
            // It stays a long one until it ends, however little is left of it.
            session.mark_logged();
            known.long.insert(lease.key, lease.fence);
        }
    }
    shared.metrics.core(core).holds_begun.add(part.locks);
    Ok(part)
}

/// The same leases, a handful at a time: what the engine will read and write for each of them is
/// being fetched from memory then, for all at once.
fn warmed<'a>(
    shared: &Shared,
    mut leases: impl Iterator<Item = (Lease<'a>, bool)>,
) -> impl Iterator<Item = (Lease<'a>, bool)> {
    let mut few = Vec::with_capacity(WARM_MAX);
    std::iter::from_fn(move || {
        if few.is_empty() {
            few.extend(leases.by_ref().take(WARM_MAX));
            few.reverse();
            let keys = few.iter().map(|(lease, _)| key_of(lease));
            shared.engine.warm(keys);
        }
        few.pop()
    })
}

fn key_of<'a>(lease: &Lease<'a>) -> Key<'a> {
    Key::new(lease.key).expect("the log takes no other keys")
}

/// How much is left of what lasts through this millisecond, at least one; `None` if it is over.
fn left_ms(until_unix_ms: u64, now_unix_ms: u64) -> Option<u64> {
    until_unix_ms
        .checked_sub(now_unix_ms)
        .map(|left_ms| left_ms.max(1))
}

fn old_hold<'a>(lease: &Lease<'a>, left_ms: u64, now_unix_ms: u64) -> OldHold<'a> {
    OldHold {
        key: key_of(lease),
        fence: Fence::new(lease.fence).expect("the log takes no other fences"),
        mode: lease.mode,
        span: match lease.is_session_bound {
            true => Span::Session,
            false if lease.until_unix_ms == FOREVER_UNIX_MS => Span::Forever,
            false => Span::Ms(left_ms.min(TTL_MS_MAX)),
        },
        count: lease.count.max(1),
        held_ms: now_unix_ms.saturating_sub(lease.granted_unix_ms),
        metadata: lease.note,
    }
}
