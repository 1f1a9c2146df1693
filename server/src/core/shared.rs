//! What all cores share: the engine, the clock, the settings and the ways to reach each other.

use crate::config::{Config, TlsPorts};
use crate::conn::places::Places;
use crate::conn::secure::Certificates;
use crate::core::cluster_view::ClusterView;
use crate::core::pauses::{Pause, PauseHook};
use crate::core::switchboard::Switchboard;
use crate::observe::audit::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::notices::Notices;
use crate::rights::{Reservation, Rights};
use crate::session::Session;
use crate::session::detached::{self, Detached};
use crate::session::registry::Registry;
use crate::session::secret::SessionKeys;
use crate::storage::{Recovery, Storage};
use crate::system::clock::Clock;
use crate::system::panics::Failure;
use engine::{Engine, Grant, Key, Limit, SessionId, Tick};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use tokio_util::sync::CancellationToken;
use wal::Record;

pub(crate) type AdmissionHook = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) engine: Engine<Switchboard>,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    /// `lease_max` of the settings, as every request is compared with it. `u64::MAX`: no bound.
    pub(crate) lease_max_ms: u64,
    pub(crate) rights: Arc<Rights>,
    /// `None` unless the settings name a certificate.
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) keys: SessionKeys,
    /// `None` if nothing is to survive.
    pub(crate) storage: Option<Arc<Storage>>,
    pub(crate) recovery: Recovery,
    /// The session that detached locks belong to; see `detached.rs`.
    pub(crate) detached: Detached,
    pub(crate) metrics: Metrics,
    pub(crate) core_count: usize,
    /// Those of connections that have introduced themselves, on all cores.
    pub(crate) places: Arc<Places>,
    pub(crate) notices: Notices,
    /// Whether a thread has panicked.
    pub(crate) failure: Arc<Failure>,
    /// For tests: called by a core's thread for every connection that it lets in.
    pub(crate) on_admission: Option<AdmissionHook>,
    /// For tests: called by a core's thread between two of its steps.
    pub(crate) on_pause: Option<PauseHook>,
    /// When it let the first clients in.
    pub(crate) serves_since: Tick,
    /// When the server started, for people.
    pub(crate) started_unix_ms: u64,
    /// The thread that fetches memory ahead of the cores.
    pub(crate) prefaulter: OnceLock<Thread>,
    /// `None`: a server by itself.
    pub(crate) cluster: Option<ClusterView>,
    /// Cancelled when the server is to stop.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn registry(&self) -> &Registry {
        &self.engine.host().registry
    }

    /// The certificates of a port, if it speaks TLS.
    pub(crate) fn certificates_of(
        &self,
        is_secured: impl FnOnce(&TlsPorts) -> bool,
    ) -> Option<&Arc<Certificates>> {
        let certificates = self.certificates.as_ref();
        certificates.filter(|_| is_secured(&self.config.tls_ports))
    }

    /// Lets a test hold this core up.
    #[inline]
    pub(crate) fn pause(&self, at: Pause) {
        if let Some(hook) = &self.on_pause {
            hook(at);
        }
    }

    /// Where audit events are left, if the settings ask for an audit log.
    #[inline]
    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.engine.host().losses.audit()
    }

    /// Has memory fetched if there is little left, without waiting for it.
    pub(crate) fn look_after_memory(&self) {
        if self.engine.wants_prefault()
            && let Some(prefaulter) = self.prefaulter.get()
        {
            prefaulter.unpark();
        }
    }

    /// Opens a session and registers it, under the name that it had before or a new one, for
    /// clients with a token of this name. `None` at the limit.
    pub(crate) fn open_session(
        &self,
        public_id: Option<u64>,
        token_name: &Arc<str>,
        client_name: &str,
        ttl_ms: u32,
        now: Tick,
    ) -> Option<Arc<Session>> {
        let id = self.engine.open_session(u64::from(ttl_ms), now).ok()?;
        let make = |public_id| {
            let core_count = self.core_count;
            let memory = self.registry().memory.clone();
            let session = Session::new(id, public_id, client_name, ttl_ms, core_count, now, memory);
            assert!(session.is_of(token_name), "it is new");
            Arc::new(session)
        };
        let registry = self.registry();
        let session = match public_id {
            Some(known) => Some(make(known)).filter(|session| registry.insert(session.clone())),
            None => registry.insert_new(|| make(SessionKeys::new_session())),
        };
        let Some(session) = session else {
            self.engine.end_session(id);
            self.engine.forget_session(id);
            // Another connection of the same client was faster. With a new name there is no such
            // client.
            return registry.find_public(public_id?);
        };
        // Its time may have run out before it could be found; then nothing else takes it down.
        if !self.engine.is_open(id, self.clock.now()) {
            self.end_session(id);
        }
        Some(session)
    }

    /// The session of detached locks; `None` if there has been none.
    #[inline]
    pub(crate) fn detached(&self) -> Option<&Arc<Session>> {
        self.detached.get()
    }

    /// The same, opened if there is none.
    pub(crate) fn open_detached(&self) -> Result<&Arc<Session>, Limit> {
        // Its record is in the log before anything can be granted to it.
        let open = || self.open_lasting(detached::SESSION_ID, detached::SESSION_NAME);
        self.detached.get_or_open(open)
    }

    /// Goes on with the detached locks that were put back.
    pub(crate) fn resume_detached(&self) -> Result<(), Limit> {
        match self.registry().find_public(detached::SESSION_ID) {
            Some(_) => self.open_detached().map(|_| ()),
            None => Ok(()),
        }
    }

    /// A session of the server's own, which never ends: found among those that were put back, or
    /// opened.
    pub(crate) fn open_lasting(&self, public_id: u64, name: &str) -> Result<Arc<Session>, Limit> {
        let now = self.clock.now();
        let session = match self.registry().find_public(public_id) {
            Some(session) => session,
            None => {
                let no_token = Arc::default();
                self.open_session(Some(public_id), &no_token, name, u32::MAX, now)
                    .ok_or(Limit::Sessions)?
            }
        };
        self.engine.keep_alive(session.id, u64::MAX, now);
        self.record_session_that_lasts(&session);
        Ok(session)
    }

    /// Writes down the server's own sessions that were opened, or put back, before the log was
    /// begun: that of the Redis port, if there is one, and that of detached locks.
    pub(crate) fn record_lasting(&self, port: Option<&Arc<Session>>) {
        for session in port.into_iter().chain(self.detached()) {
            self.record_session_that_lasts(session);
        }
    }

    fn record_session_that_lasts(&self, session: &Session) {
        if let Some(storage) = &self.storage {
            session.mark_logged();
            let deadline = self.engine.session_deadline(session.id);
            storage.journal.append(&Record::SessionOpened {
                session: session.public_id,
                ttl_ms: session.ttl_ms,
                deadline_unix_ms: storage.unix_ms(deadline),
                name: session.client_name.as_bytes(),
            });
        }
    }

    /// How long nothing new could be granted if the server crashed at this moment and came back at
    /// once.
    pub(crate) fn crash_grace_ms(&self, now: Tick) -> u64 {
        let of_this_life = self
            .storage
            .as_ref()
            .map(|storage| storage.crash_grace_ms(now));
        let of_those_before = self.recovery.remaining_ms(now);
        of_this_life.unwrap_or(0).max(of_those_before.unwrap_or(0))
    }

    /// Keeps what a lock that was just granted counts for, until it ends.
    #[cold]
    pub(crate) fn keep_reserved(&self, key: &[u8], grant: &Grant, reserved: Reservation) {
        // One that is held once more is counted already.
        if grant.count > 1 || !reserved.is_counted() {
            return;
        }
        let holdings = &self.engine.host().losses.holdings;
        holdings.insert(key, grant.fence.get(), reserved);
        // It may have been lost before that, and then no other core takes it out again.
        let key = Key::new(key).expect("it was a key when it was granted");
        if (self.engine.holder(key, grant.fence, self.clock.now())).is_none() {
            holdings.remove(key.as_bytes(), grant.fence.get());
        }
    }

    /// Ends a session now: its locks go to their waiters.
    pub(crate) fn end_session(&self, session: SessionId) {
        self.engine.end_session(session);
        self.engine.host().end_session(session);
    }
}
