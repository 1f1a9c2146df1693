//! What is written down of which request. With `durability = lease` every change; with `fence` only how long leases live,
//! and that seldom; with `none` nothing.
//!
//! # Order
//!
//! Records of one grant stand in the log in the order of their effect, as far as replay depends on it. `wal/leases.rs` has the
//! list of those that may be reordered. The others are kept in order thus:
//!
//! - An owner that was answered before it asked for the next change: the answer waited for the disk.
//! - One connection, or several of one core: a core appends in the order in which it decides.
//! - The Redis port: a command's records are appended before its keys are unlocked (`redis/section.rs`).
//! - Counts of reentrant holds: `record_count` writes down the present count, not the one that its caller was told. It reads and
//!   appends under one mutex, so a count that stands later in the log was read later.

use crate::core::Core;
use crate::registry::Session;
use crate::storage::{COVERED_MS_MAX, Storage};
use crate::wal::{self, Record, Scope};
use engine::{Grant, Key, Mode, Tick};

/// What a grant's record says beside the grant.
pub(crate) struct GrantTerms<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) is_shared: bool,
    pub(crate) is_session_bound: bool,
    pub(crate) note: &'a [u8],
}

/// What happened to the count of a hold.
enum CountChange<'a> {
    /// The session holds it once more.
    Up(&'a Session),
    Down,
}

impl Core {
    /// A lock was granted, handed over or claimed.
    #[inline]
    pub(crate) fn record_grant(
        &self,
        session: &Session,
        grant: &Grant,
        terms: &GrantTerms<'_>,
        now: Tick,
    ) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        match storage.scope {
            Scope::Fences => {
                if terms.is_session_bound {
                    session.mark_bound();
                }
                self.cover(storage, covered(grant.until, now));
            }
            Scope::Leases if grant.count > 1 => {
                let change = CountChange::Up(session);
                self.record_count(storage, terms.key, grant.fence.get(), change, now);
            }
            Scope::Leases => self.push_record(&Record::Granted(wal::Lease {
                key: terms.key,
                fence: grant.fence.get(),
                session: session.public_id,
                is_shared: terms.is_shared,
                is_session_bound: terms.is_session_bound,
                count: grant.count,
                until_unix_ms: storage.unix_ms(grant.until),
                granted_unix_ms: storage.unix_ms(now),
                note: terms.note,
            })),
        }
    }

    /// A hold was counted once more, or once less and is not over. A hold that is counted once more is what it was when it was
    /// granted, whatever was asked for this time.
    #[cold]
    fn record_count(
        &self,
        storage: &Storage,
        key: &[u8],
        fence: u64,
        change: CountChange<'_>,
        now: Tick,
    ) {
        let engine_key = Key::new(key).expect("it was granted");
        let _in_order = storage.counts.lock();
        let state = self.shared.engine.query(engine_key, now);
        let mut holders = state.iter().flat_map(|state| &state.holders);
        let hold = holders.find(|hold| hold.fence.get() == fence);
        let count_left = hold.map_or(0, |hold| hold.count);
        match (hold, change) {
            (Some(hold), CountChange::Up(session)) => {
                self.push_record(&Record::Granted(wal::Lease {
                    key,
                    fence,
                    session: session.public_id,
                    is_shared: hold.mode == Mode::Shared,
                    is_session_bound: hold.is_session_bound,
                    count: hold.count,
                    until_unix_ms: storage.unix_ms(hold.until),
                    granted_unix_ms: storage.unix_ms(now).saturating_sub(hold.held_ms),
                    note: &hold.note,
                }));
            }
            // Or it is over already.
            _ => self.push_record(&Record::Released {
                key,
                fence,
                count_left,
            }),
        }
        self.append_now();
    }

    #[inline]
    pub(crate) fn record_renewal(&self, key: &[u8], fence: u64, until: Tick, now: Tick) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        match storage.scope {
            Scope::Fences => self.cover(storage, covered(until, now)),
            Scope::Leases => self.push_record(&Record::Renewed {
                key,
                fence,
                until_unix_ms: storage.unix_ms(until),
            }),
        }
    }

    #[inline]
    pub(crate) fn record_release(&self, key: &[u8], fence: u64, count_left: u32, now: Tick) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        if storage.scope != Scope::Leases {
            return;
        }
        if count_left > 0 {
            self.record_count(storage, key, fence, CountChange::Down, now);
        } else {
            self.push_record(&Record::Released {
                key,
                fence,
                count_left,
            });
        }
    }

    pub(crate) fn record_downgrade(&self, key: &[u8], fence: u64) {
        if self.writes_leases() {
            self.push_record(&Record::Downgraded { key, fence });
        }
    }

    pub(crate) fn record_session_opened(&self, session: &Session) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        let deadline = self.shared.engine.session_deadline(session.id);
        match storage.scope {
            // As long as no lock lives by it, nobody need wait for its end.
            Scope::Fences => {}
            Scope::Leases => self.push_record(&Record::SessionOpened {
                session: session.public_id,
                ttl_ms: session.ttl_ms,
                deadline_unix_ms: storage.unix_ms(deadline),
                name: session.client_name.as_bytes(),
            }),
        }
    }

    /// A sign of life was taken note of.
    pub(crate) fn record_session_kept(&self, session: &Session, deadline: Tick) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        match storage.scope {
            Scope::Fences if session.is_bound() => self.cover(storage, deadline),
            Scope::Fences => {}
            Scope::Leases => self.push_record(&Record::SessionKept {
                session: session.public_id,
                deadline_unix_ms: storage.unix_ms(deadline),
            }),
        }
    }

    pub(crate) fn record_session_ended(&self, session: &Session) {
        if self.writes_leases() {
            self.push_record(&Record::SessionEnded {
                session: session.public_id,
            });
        }
    }

    fn writes_leases(&self) -> bool {
        let storage = self.shared.storage.as_ref();
        storage.is_some_and(|storage| storage.scope == Scope::Leases)
    }
}

/// How much of a lease the grace period after a crash is to cover.
#[inline]
fn covered(until: Tick, now: Tick) -> Tick {
    until.min(now.plus_ms(COVERED_MS_MAX))
}
