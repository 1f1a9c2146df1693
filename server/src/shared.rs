//! What all cores share: the engine, the clock, the settings and the ways to reach each other.

use crate::audit::Audit;
use crate::auth::Tokens;
use crate::clock::Clock;
use crate::config::Config;
use crate::host::Switchboard;
use crate::metrics::Metrics;
use crate::redis::{self, Port};
use crate::registry::{Registry, Session};
use crate::secret::SessionKeys;
use crate::storage::{Recovery, Storage};
use crate::wal::{Record, Scope};
use engine::{Engine, Limit, SessionId, Tick};
use protocol::SessionSecret;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use tokio_util::sync::CancellationToken;

pub(crate) struct Shared {
    pub(crate) engine: Engine<Switchboard>,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    /// `lease_max` of the settings, as every request is compared with it. `u64::MAX`: no bound.
    pub(crate) lease_max_ms: u64,
    pub(crate) tokens: Tokens,
    pub(crate) keys: SessionKeys,
    /// `None` if nothing is to survive.
    pub(crate) storage: Option<Arc<Storage>>,
    pub(crate) recovery: Recovery,
    /// `None` unless the settings ask for the Redis port.
    pub(crate) redis: OnceLock<Port>,
    pub(crate) metrics: Metrics,
    pub(crate) core_count: usize,
    /// Open connections of all cores.
    pub(crate) connections: AtomicUsize,
    /// When the server started, for people.
    pub(crate) started_unix_ms: u64,
    /// Whoever waits for memory ahead of the cores.
    pub(crate) stocker: OnceLock<Thread>,
    /// Cancelled when the server is to stop.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn registry(&self) -> &Registry {
        &self.engine.host().registry
    }

    /// Where to leave audit events, if anybody wants them.
    #[inline]
    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.engine.host().audit.as_deref()
    }

    /// Has memory fetched if there is little left, without waiting for it.
    pub(crate) fn look_after_stock(&self) {
        if self.engine.is_stock_low()
            && let Some(stocker) = self.stocker.get()
        {
            stocker.unpark();
        }
    }

    /// Opens a session and registers it, under a new name or one that it had before. `None` at the limit.
    pub(crate) fn open_session(
        &self,
        name: (u64, SessionSecret),
        client_name: &str,
        ttl_ms: u32,
        now: Tick,
    ) -> Option<Arc<Session>> {
        let id = self.engine.open_session(u64::from(ttl_ms), now).ok()?;
        let core_count = self.core_count;
        let session = Session::new(id, name, client_name, ttl_ms, core_count, now);
        let session = Arc::new(session);
        if !self.registry().insert(session.clone()) {
            // Another connection of the same client was faster.
            self.engine.end_session(id);
            self.engine.forget_session(id);
            return self.registry().find_public(session.public_id);
        }
        // Its time may have run out before anybody could find it; then nobody else will take it down.
        if !self.engine.is_open(id, self.clock.now()) {
            self.end_session(id);
        }
        Some(session)
    }

    /// Makes the Redis port ready: finds its session among those that were put back, or opens it. It never ends by itself.
    pub(crate) fn open_redis(&self) -> Result<(), Limit> {
        let now = self.clock.now();
        let session = match self.registry().find_public(redis::SESSION_ID) {
            Some(session) => session,
            None => {
                let name = (redis::SESSION_ID, self.keys.secret(redis::SESSION_ID));
                self.open_session(name, redis::SESSION_NAME, u32::MAX, now)
                    .ok_or(Limit::Sessions)?
            }
        };
        self.engine.keep_alive(session.id, u64::MAX, now);
        let port = Port::new(session, self.engine.shard_count());
        assert!(self.redis.set(port).is_ok(), "a server opens its port once");
        Ok(())
    }

    /// Writes down the session of the Redis port, if there is one.
    pub(crate) fn record_redis(&self) {
        if let Some(port) = self.redis.get()
            && let Some(storage) = &self.storage
            && storage.scope == Scope::Leases
        {
            let session = &port.session;
            storage.wal.append(&Record::SessionOpened {
                session: session.public_id,
                ttl_ms: session.ttl_ms,
                deadline_unix_ms: storage.unix_ms(self.engine.session_deadline(session.id)),
                name: session.client_name.as_bytes(),
            });
        }
    }

    /// Ends a session now: its locks go to those who wait for them.
    pub(crate) fn end_session(&self, session: SessionId) {
        self.engine.end_session(session);
        self.engine.host().end_session(session);
    }
}
