//! What all cores share: the engine, the clock, the settings and the ways to reach each other.

use crate::audit::Audit;
use crate::auth::Tokens;
use crate::clock::Clock;
use crate::config::Config;
use crate::host::Switchboard;
use crate::metrics::Metrics;
use crate::registry::{Registry, Session};
use engine::{Engine, SessionId, Tick};
use protocol::SessionSecret;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio_util::sync::CancellationToken;

pub(crate) struct Shared {
    pub(crate) engine: Engine<Switchboard>,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    pub(crate) tokens: Tokens,
    pub(crate) metrics: Metrics,
    pub(crate) core_count: usize,
    /// Open connections of all cores.
    pub(crate) connections: AtomicUsize,
    /// When the server started, for people.
    pub(crate) started_unix_ms: u64,
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

    /// Opens a session and writes it down. `None` at the limit.
    pub(crate) fn open_session(
        &self,
        client_name: &str,
        ttl_ms: u32,
        now: Tick,
    ) -> Option<Arc<Session>> {
        let id = self.engine.open_session(u64::from(ttl_ms), now).ok()?;
        let session = Arc::new(Session::new(
            id,
            new_secret(),
            client_name,
            ttl_ms,
            self.core_count,
            now,
        ));
        self.registry().insert(session.clone());
        // Its time may have run out before anybody could find it; then nobody else will take it down.
        if !self.engine.is_open(id, self.clock.now()) {
            self.end_session(id);
        }
        Some(session)
    }

    /// Ends a session now: its locks go to those who wait for them.
    pub(crate) fn end_session(&self, session: SessionId) {
        self.engine.end_session(session);
        self.engine.host().end_session(session);
    }
}

fn new_secret() -> SessionSecret {
    let mut bytes = [0; SessionSecret::BYTES];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    SessionSecret::new(bytes)
}
