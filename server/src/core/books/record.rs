//! What is written down of which request. With `durability = lease` every change; with `fence` how
//! long leases live at most, and that seldom, but every change of a lease that is longer than
//! `--grace-max`; with `none` nothing.
//!
//! # Order
//!
//! Records of one grant stand in the log in the order of their effect, as far as replay depends on
//! it. `wal/src/replay/leases.rs` has the list of those that may be reordered. The others are kept
//! in order thus:
//!
//! - An owner that was answered before it asked for the next change: the answer waited for the
//!   disk.
//! - One connection, or several of one core: a core appends in the order in which it decides.
//! - The Redis port: a command's records are appended before its keys are unlocked
//!   (`redis/section.rs`).
//! - Counts of reentrant holds: `record_count` writes down the present count, not the one that its
//!   caller was told. It reads and appends under one mutex, so a count that stands later in the log
//!   was read later.
//!
//! In `fence` one thing more can go wrong: a core that takes a lock away asks whether it is a long
//! one before the core that granted it has said so. Then it writes nothing down, and its answer
//! waits for nothing. So the granting core first says so and then looks whether the lock is still
//! there; the other core first takes it away and then asks. Each has a fence in between, so one of
//! them finds out. If it is the granting core, it does not write the grant down either: a kill
//! between the grant's record and its end would bring back what was answered as taken away.

use super::Books;
use crate::core::pauses::Pause;
use crate::session::Session;
use crate::session::detached;
use crate::session::waiter::Terms;
use crate::storage::Storage;
use engine::{Fence, Grant, Holder, Key, Mode, Span, Tick};
use std::sync::atomic;
use wal::{Record, Scope};

/// What a grant's record says beside the grant.
pub(super) struct RecordTerms<'a> {
    key: &'a [u8],
    mode: Mode,
    is_session_bound: bool,
    note: &'a [u8],
}

impl<'a> RecordTerms<'a> {
    /// Those that were asked for.
    pub(super) fn of(terms: &Terms<'a>) -> Self {
        RecordTerms {
            key: terms.key,
            mode: terms.mode,
            is_session_bound: terms.span == Span::Session,
            note: terms.note,
        }
    }

    /// Those of a lock that is held.
    pub(super) fn of_holder(key: &'a [u8], holder: &'a Holder) -> Self {
        RecordTerms {
            key,
            mode: holder.mode,
            is_session_bound: holder.is_session_bound,
            note: &holder.metadata,
        }
    }
}

/// What happened to the count of a hold.
enum CountChange<'a> {
    /// The session holds it once more.
    Up(&'a Session),
    Down,
}

impl Books {
    /// A lock was granted, handed over or claimed.
    #[inline]
    pub(super) fn record_grant(
        &self,
        session: &Session,
        grant: &Grant,
        terms: &RecordTerms<'_>,
        now: Tick,
    ) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        if storage.scope == Scope::Fences {
            if !is_long(storage, session, grant.until, terms.is_session_bound, now) {
                self.replies.cover(storage, grant.until);
                // A hold of several counts is a long one if it was when it began.
                if grant.count == 1 || !storage.long.contains(terms.key, grant.fence.get()) {
                    return;
                }
            }
            self.follow(storage, session, terms.key, grant.fence.get());
            if !self.is_held(terms.key, grant.fence, now) {
                storage.long.remove(terms.key, grant.fence.get());
                return;
            }
        }
        if grant.count > 1 {
            let change = CountChange::Up(session);
            return self.record_count(storage, terms.key, grant.fence, change, now);
        }
        self.push_granted(
            storage,
            wal::Lease {
                key: terms.key,
                fence: grant.fence.get(),
                session: session.public_id,
                mode: terms.mode,
                is_session_bound: terms.is_session_bound,
                count: grant.count,
                until_unix_ms: storage.unix_ms(grant.until),
                granted_unix_ms: storage.unix_ms(now),
                note: terms.note,
            },
        );
    }

    fn is_held(&self, key: &[u8], fence: Fence, now: Tick) -> bool {
        let key = Key::new(key).expect("it was granted");
        self.shared.engine.holder(key, fence, now).is_some()
    }

    /// From here on everything is written down that happens to this lease, though short ones leave
    /// no record.
    fn follow(&self, storage: &Storage, session: &Session, key: &[u8], fence: u64) {
        self.shared.pause(Pause::BeforeFollow);
        storage.long.insert(key, fence);
        session.mark_logged();
        // Paired with the one in `LongLeases::take_away`, and with that of `Session::is_bound`: a
        // sign of life on another core either finds the session marked, or shows in the deadline
        // that is read here.
        atomic::fence(atomic::Ordering::SeqCst);
        // With every long lease: which core's record of the session comes first does not matter
        // then.
        let deadline = self.shared.engine.session_deadline(session.id);
        self.push_session(storage, session, deadline);
    }

    /// In a cluster, a request is written down beside the grant that answers it: the next leader
    /// knows it then when it is repeated. Called in the turn that records the grant.
    pub(crate) fn answered(&self, asker: &Session, request_id: u64, grant: &Grant) {
        let storage = self.shared.storage.as_ref();
        if storage.is_some_and(|storage| storage.journal.holds_all_replies())
            && asker.public_id > detached::SESSION_ID
        {
            self.replies.push_record(&Record::Answered {
                session: asker.public_id,
                request: request_id,
                fence: grant.fence.get(),
                count: grant.count,
            });
        }
    }

    fn push_granted(&self, storage: &Storage, lease: wal::Lease<'_>) {
        self.replies.push_record(&match storage.scope {
            Scope::Fences => Record::GrantedLong(lease),
            Scope::Leases => Record::Granted(lease),
        });
    }

    fn push_session(&self, storage: &Storage, session: &Session, deadline: Tick) {
        self.replies.push_record(&Record::SessionOpened {
            session: session.public_id,
            ttl_ms: session.ttl_ms,
            deadline_unix_ms: storage.unix_ms(deadline),
            name: session.client_name.as_bytes(),
        });
    }

    /// A hold was counted once more, or once less and is not over; or it is to be written down as
    /// it is. One that is counted once more is what it was when it was granted, whatever was asked
    /// for this time.
    #[cold]
    fn record_count(
        &self,
        storage: &Storage,
        key: &[u8],
        fence: Fence,
        change: CountChange<'_>,
        now: Tick,
    ) {
        let engine_key = Key::new(key).expect("it was granted");
        self.shared.pause(Pause::BeforeCount);
        let _in_order = storage.counts.lock();
        let hold = self.shared.engine.holder(engine_key, fence, now);
        match (hold, change) {
            (Some(hold), CountChange::Up(session)) => self.push_granted(
                storage,
                wal::Lease {
                    key,
                    fence: fence.get(),
                    session: session.public_id,
                    mode: hold.mode,
                    is_session_bound: hold.is_session_bound,
                    count: hold.count,
                    until_unix_ms: storage.unix_ms(hold.until),
                    granted_unix_ms: storage.unix_ms(now).saturating_sub(hold.held_ms),
                    note: &hold.metadata,
                },
            ),
            (Some(hold), CountChange::Down) => self.replies.push_record(&Record::Released {
                key,
                fence: fence.get(),
                count_left: hold.count,
            }),
            // It is over already.
            (None, _) => self.record_release(key, fence.get(), 0, now),
        }
        self.replies.append_now();
    }

    /// A lease of this session was renewed.
    #[inline]
    pub(super) fn record_renewal(
        &self,
        session: &Session,
        key: &[u8],
        fence: Fence,
        until: Tick,
        now: Tick,
    ) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        if storage.scope == Scope::Fences {
            let is_long = storage.is_long(now.ms_until(until));
            if !is_long {
                self.replies.cover(storage, until);
            }
            if !storage.long.contains(key, fence.get()) {
                if is_long {
                    self.follow(storage, session, key, fence.get());
                    let change = CountChange::Up(session);
                    self.record_count(storage, key, fence, change, now);
                }
                return;
            }
        }
        self.replies.push_record(&Record::Renewed {
            key,
            fence: fence.get(),
            until_unix_ms: storage.unix_ms(until),
        });
    }

    /// A lock was given back.
    #[inline]
    pub(super) fn record_release(&self, key: &[u8], fence: u64, count_left: u32, now: Tick) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        let is_written_down = match (storage.scope, count_left) {
            (Scope::Leases, _) => true,
            (Scope::Fences, 0) => storage.long.remove(key, fence),
            (Scope::Fences, _) => storage.long.contains(key, fence),
        };
        if !is_written_down {
            return;
        }
        if count_left > 0
            && let Some(fence) = Fence::new(fence)
        {
            return self.record_count(storage, key, fence, CountChange::Down, now);
        }
        self.replies.push_record(&Record::Released {
            key,
            fence,
            count_left,
        });
    }

    /// A lock was taken away from its holder, which may not even have been told that it had it.
    pub(super) fn record_taken_away(&self, key: &[u8], fence: Fence, now: Tick) {
        self.shared.pause(Pause::BeforeTakenAway);
        self.shared.recovery.note_taken_away(key, fence);
        match &self.shared.storage {
            Some(storage) if storage.scope == Scope::Fences => {
                let fences = storage.long.to_write_down(key, Some(fence.get()));
                self.push_released(key, &fences);
            }
            _ => self.record_release(key, fence.get(), 0, now),
        }
    }

    pub(super) fn record_downgrade(&self, key: &[u8], fence: u64) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        if storage.scope == Scope::Leases || storage.long.contains(key, fence) {
            self.replies.push_record(&Record::Downgraded { key, fence });
        }
    }

    /// A grant of this key took the place of others. In `lease` its own record tells replay so; in
    /// `fence` it may be a short one, which has no record.
    pub(super) fn record_superseded(&self, key: &[u8]) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        let fences = storage.long.to_write_down(key, None);
        self.push_released(key, &fences);
    }

    fn push_released(&self, key: &[u8], fences: &[u64]) {
        for &fence in fences {
            self.replies.push_record(&Record::Released {
                key,
                fence,
                count_left: 0,
            });
        }
    }

    pub(super) fn record_session_opened(&self, session: &Session) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        // In `fence` it is written down with its first long lease.
        if storage.scope == Scope::Leases {
            let deadline = self.shared.engine.session_deadline(session.id);
            self.push_session(storage, session, deadline);
        }
    }

    /// A sign of life was taken note of.
    pub(super) fn record_session_kept(&self, session: &Session, deadline: Tick) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        let is_short = !storage.is_long(u64::from(session.ttl_ms));
        if storage.scope == Scope::Fences && session.is_bound() && is_short {
            self.replies.cover(storage, deadline);
        }
        if storage.scope == Scope::Leases || session.is_logged() {
            self.replies.push_record(&Record::SessionKept {
                session: session.public_id,
                deadline_unix_ms: storage.unix_ms(deadline),
            });
        }
    }

    pub(super) fn record_session_ended(&self, session: &Session) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        if storage.scope == Scope::Leases || session.is_logged() {
            self.replies.push_record(&Record::SessionEnded {
                session: session.public_id,
            });
        }
    }
}

/// Whether a lease that was just granted is longer than a horizon is to cover.
#[inline]
fn is_long(
    storage: &Storage,
    session: &Session,
    until: Tick,
    is_session_bound: bool,
    now: Tick,
) -> bool {
    storage.is_long(match is_session_bound {
        true => u64::from(session.ttl_ms),
        false => now.ms_until(until),
    })
}
