//! What is written down of which request. With `durability = lease` every change; with `fence` only how long leases live,
//! and that seldom; with `none` nothing.

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
                self.record_reentry(storage, session, grant, terms.key, now)
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

    /// A hold that is counted once more is what it was when it was granted, whatever was asked for this time.
    #[cold]
    fn record_reentry(
        &self,
        storage: &Storage,
        session: &Session,
        grant: &Grant,
        key: &[u8],
        now: Tick,
    ) {
        let engine_key = Key::new(key).expect("it was granted");
        // Over already: then there is nothing to write down.
        let Some(hold) = self.shared.engine.holder(engine_key, grant.fence, now) else {
            return;
        };
        self.push_record(&Record::Granted(wal::Lease {
            key,
            fence: grant.fence.get(),
            session: session.public_id,
            is_shared: hold.mode == Mode::Shared,
            is_session_bound: hold.is_session_bound,
            count: hold.count,
            until_unix_ms: storage.unix_ms(hold.until),
            granted_unix_ms: storage.unix_ms(now).saturating_sub(hold.held_ms),
            note: &hold.note,
        }));
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
    pub(crate) fn record_release(&self, key: &[u8], fence: u64, count_left: u32) {
        if self.writes_leases() {
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
