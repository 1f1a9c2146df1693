//! One office: a stretch of time in which this node leads, or does not. Its engine, cores, keeper
//! and connections begin and end with it; listeners, rights and the audit log stay.

use crate::config::Config;
use crate::conn::places::Places;
use crate::conn::secure::Certificates;
use crate::core::cluster_view::ClusterView;
use crate::core::losses::Losses;
use crate::core::mail::Post;
use crate::core::shared::Shared;
use crate::core::switchboard::Switchboard;
use crate::core::wakeup::Wakeup;
use crate::durability::{self, Keeper, Known, Restored};
use crate::observe::audit::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::notices::Notices;
use crate::redis::{self, Port};
use crate::rights::Rights;
use crate::session::detached::Detached;
use crate::session::secret::SessionKeys;
use crate::start::cores::{Doors, RedisDoors, run_core};
use crate::start::prefault::Prefaulter;
use crate::start::preflight::{Threads, clock_floor, engine_settings};
use crate::start::start_error::StartError;
use crate::storage::{Alarm, Journal, LogClock, LongLeases, Recovery, Storage};
use crate::system::clock::Clock;
use crate::system::panics::Failure;
use cluster::node::Node;
use cluster::peer::PeerTls;
use cluster::propose::Reign;
use cluster::types::LeaderId;
use engine::{Engine, Fence, Settings};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use wal::Ledger;

/// What outlives offices.
pub(super) struct Lasting {
    pub(super) config: Config,
    pub(super) rights: Arc<Rights>,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) places: Arc<Places>,
    pub(super) failure: Arc<Failure>,
    pub(super) clock: Clock,
    pub(super) audit: Option<Arc<Audit>>,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) redis_listeners: redis::Listeners,
    /// Cancelled when the node is to stop.
    pub(super) stop: CancellationToken,
    pub(super) started_unix_ms: u64,
    pub(super) node: Node,
    pub(super) peer_tls: Option<Arc<PeerTls>>,
    /// openraft's runtime.
    pub(super) runtime: Handle,
}

/// An office that has begun.
pub(super) struct Office {
    pub(super) shared: Arc<Shared>,
    /// `None`: this node follows.
    pub(super) reign: Option<Arc<Reign>>,
    threads: Vec<JoinHandle<()>>,
    keeper: Option<Keeper>,
    prefaulter: Option<Prefaulter>,
}

/// Why an office did not begin.
pub(super) enum NotBegun {
    /// Another node leads by now.
    NotLeader,
    /// The server cannot go on.
    Failed(StartError),
}

impl From<StartError> for NotBegun {
    fn from(error: StartError) -> Self {
        NotBegun::Failed(error)
    }
}

impl Lasting {
    fn core_count(&self) -> usize {
        self.listeners.len()
    }

    /// What cores share in one office, without its storage.
    fn shared(
        &self,
        settings: Settings,
        keys: SessionKeys,
        alarm: Option<Arc<Alarm>>,
        posts: Arc<[Post]>,
        leads: bool,
    ) -> Shared {
        let losses = Losses::new(self.audit.clone(), None);
        let switchboard = Switchboard::new(posts, losses, alarm);
        Shared {
            engine: Engine::new(settings, switchboard),
            clock: self.clock,
            rights: self.rights.clone(),
            certificates: self.certificates.clone(),
            keys,
            storage: None,
            recovery: Recovery::default(),
            detached: Detached::default(),
            prefaulter: OnceLock::new(),
            metrics: Metrics::new(self.core_count()),
            core_count: self.core_count(),
            places: self.places.clone(),
            notices: Notices::default(),
            failure: self.failure.clone(),
            on_admission: None,
            on_pause: None,
            serves_since: self.clock.now(),
            started_unix_ms: self.started_unix_ms,
            // Not a child of the node's: a leader that is told to stop serves until it has handed
            // over, and then sends its clients on at once.
            stop: CancellationToken::new(),
            lease_max_ms: self.config.lease_max_ms(),
            cluster: Some(ClusterView::new(
                self.node.clone(),
                self.peer_tls.clone(),
                leads,
                &self.config,
            )),
            config: Config {
                // A client of a cluster waits for a commit, which takes longer than waking a core:
                // a core that looks around meanwhile keeps the processor from what makes the
                // commit.
                spin: Duration::ZERO,
                ..self.config.clone()
            },
        }
    }

    fn posts(&self) -> Arc<[Post]> {
        (0..self.core_count()).map(|_| Post::new()).collect()
    }

    /// Begins an office in which this node only tells clients who leads.
    pub(super) fn follow(&self) -> Result<Office, StartError> {
        let settings = engine_settings(&self.config, self.clock, clock_floor());
        let shared = self.shared(settings, SessionKeys::fleeting(), None, self.posts(), false);
        shared.engine.finish_restoring();
        let port = self.port(&shared)?;
        let office = self.open(shared, port.clone(), Restored::default(), None)?;
        if let Some(port) = port {
            let announcing = redis::announce_switches(office.shared.clone(), port);
            self.runtime.spawn(announcing);
        }
        Ok(office)
    }

    /// Begins to reign: restores an engine from the ledger behind this leadership's marker.
    pub(super) fn lead(&self, leader: LeaderId) -> Result<Office, NotBegun> {
        let begun = Instant::now();
        // Without a majority it may take for ever, and the node can be told to stop meanwhile.
        let index = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Err(NotBegun::NotLeader),
                index = self.node.begin_reign(leader) => index.map_err(|_| NotBegun::NotLeader),
            }
        })?;
        let mut state = self.node.ledger().hold_blocking();
        state.ledger.settle();
        let Some(birth) = state.birth.clone() else {
            return Err(NotBegun::NotLeader);
        };
        let now_ms = state.clock.now_ms(Instant::now());
        let clock = LogClock::of_cluster(self.clock, now_ms.max(state.ledger.clock_ms()));
        let sessions = state.ledger.sessions();
        let locks = state.ledger.keys() as u64;
        // A new cluster begins where a server without a log would; then every reign begins above
        // all ceilings before it.
        let floor = match Fence::granted(state.ledger.ceiling_max()) {
            Some(ceiling) => ceiling,
            None => clock_floor(),
        };
        let mut settings = engine_settings(&self.config, self.clock, floor);
        settings.ceiling = floor;
        settings.keys_expected = locks;
        settings.keys_restored = locks;
        let session_count = u32::try_from(sessions.len()).unwrap_or(u32::MAX - 2);
        settings.sessions_max = settings.sessions_max.max(session_count + 2);
        let alarm = Arc::new(Alarm::new(settings.shards));
        let posts = self.posts();
        let keys = SessionKeys::new(birth.session_key);
        let mut shared = self.shared(settings, keys, Some(alarm.clone()), posts.clone(), true);
        let long = Arc::new(LongLeases::new());
        let known = Known {
            sessions: &sessions,
            leases: state.ledger.parts(),
            clock: &clock,
            scope: Ledger::SCOPE,
            lease_ms_max: u32::MAX,
            long: &long,
            knows_answers: true,
        };
        let mut restored = durability::restore(&shared, &known).map_err(StartError::Restore)?;
        shared.engine.finish_restoring();
        shared.resume_detached().map_err(StartError::Restore)?;
        let port = self.port(&shared)?;
        let wakeup = Wakeup {
            posts,
            late_acks: None,
        };
        let reign = self.node.reign(
            &mut state,
            index,
            leader,
            Box::new(move |_| wakeup.wake()),
            Box::new(clock.reader()),
            &self.runtime,
        );
        drop(state);
        let Some(reign) = reign else {
            return Err(NotBegun::NotLeader);
        };
        let journal = Journal::Group(reign.clone(), self.node.wal().clone());
        let storage = Storage::new(journal, Ledger::SCOPE, clock, u32::MAX, long);
        let storage = Arc::new(storage);
        shared.storage = Some(storage.clone());
        shared.record_lasting(port.as_ref().map(|port| &port.space.session));
        let allowed = durability::allow_first_fences(&storage, &shared.engine, shared.clock.now());
        if allowed.is_err() {
            return Err(NotBegun::NotLeader);
        }
        tracing::info!(
            node = self.node.id(),
            term = leader.term,
            sessions = restored.sessions,
            locks = restored.locks,
            took_ms = begun.elapsed().as_millis() as u64,
            "this node leads and serves clients"
        );
        if let Some(audit) = &self.audit {
            audit.leads(leader.term, std::mem::take(&mut restored.told));
        }
        let office = self.open(shared, port, restored, Some((reign, storage, alarm)))?;
        Ok(office)
    }

    fn port(&self, shared: &Shared) -> Result<Option<Arc<Port>>, StartError> {
        match self.redis_listeners.is_open() {
            true => Ok(Some(Port::open(shared).map_err(StartError::Restore)?)),
            false => Ok(None),
        }
    }

    /// Lets clients in.
    fn open(
        &self,
        mut shared: Shared,
        port: Option<Arc<Port>>,
        mut restored: Restored,
        leading: Option<(Arc<Reign>, Arc<Storage>, Arc<Alarm>)>,
    ) -> Result<Office, StartError> {
        let threads = Threads::get(self.core_count(), false, leading.is_some());
        let threads = threads.map_err(StartError::System)?;
        shared.serves_since = shared.clock.now();
        let shared = Arc::new(shared);
        let mut office = Office {
            shared: shared.clone(),
            reign: None,
            threads: Vec::new(),
            keeper: None,
            prefaulter: None,
        };
        if let Some((reign, storage, alarm)) = leading {
            office.reign = Some(reign);
            let prefaulter = Prefaulter::start(threads.prefaulter, shared.clone());
            office.prefaulter = Some(prefaulter);
            if let Some(standby) = threads.keeper {
                let keeper = Keeper::start(standby, shared.clone(), storage, alarm);
                office.keeper = Some(keeper);
            }
        }
        for (id, (standby, runtime)) in threads.cores.into_iter().enumerate() {
            let doors = self.doors(id, port.as_ref()).map_err(StartError::System)?;
            let seats = restored.seats.get_mut(id).map(std::mem::take);
            let (shared, seats) = (shared.clone(), seats.unwrap_or_default());
            let thread = standby.begin(move || run_core(id, &runtime, shared, doors, seats));
            office.threads.push(thread);
        }
        Ok(office)
    }

    /// The listeners of one core, for one office.
    fn doors(&self, core: usize, port: Option<&Arc<Port>>) -> io::Result<Doors> {
        let redis = match port {
            None => None,
            Some(port) => {
                let tcp = self.redis_listeners.tcp.get(core);
                let unix = self.redis_listeners.unix.get(core);
                Some(RedisDoors {
                    port: port.clone(),
                    tcp: tcp.map(TcpListener::try_clone).transpose()?,
                    unix: unix.map(|unix| unix.try_clone()).transpose()?,
                })
            }
        };
        let native = self.listeners[core].try_clone()?;
        Ok(Doors { native, redis })
    }
}

impl Office {
    /// Ends it. Clients hear that this node does not lead any more, or, if the node stops, that it
    /// does.
    pub(super) fn end(mut self, is_stopping: bool) {
        if let (false, Some(view)) = (is_stopping, &self.shared.cluster) {
            view.depose();
        }
        self.shared.stop.cancel();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a core ended with a panic");
            }
        }
        if let Some(reign) = &self.reign {
            reign.end("the office has ended");
        }
        self.keeper = None;
        self.prefaulter = None;
        if let (Some(_), Some(audit)) = (&self.reign, self.shared.audit()) {
            audit.follows();
        }
    }
}

impl Drop for Office {
    /// No core outlives its office, also if the thread that holds it panics.
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
