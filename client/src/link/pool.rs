//! What all handles, guards and tasks of one client share: its lanes, its session, its leases.

use crate::clock::Moment;
use crate::error::{Error, Loss};
use crate::link::call::{Answer, Ask, Call, Class, Sink};
use crate::link::lane::{Lane, Status};
use crate::metrics::Metrics;
use crate::session::Session;
use crate::session::grant::{EndedHold, Releaser};
use crate::session::lease::Lease;
use crate::session::leases::Leases;
use crate::settings::Settings;
use protocol::RequestId;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// No session comes after this one.
const LAST_EPOCH: u64 = u64::MAX - 1;

pub(crate) struct Pool {
    pub(crate) settings: Settings,
    pub(crate) session: Session,
    pub(crate) leases: Leases,
    lanes: Box<[Lane]>,
    /// Request ids count up over all connections and all sessions, so none comes twice in any of
    /// them.
    last_id: AtomicU64,
    key_hasher: RandomState,
    /// Since when the client is closing.
    closing_since: watch::Sender<Option<Instant>>,
    /// Connection tasks that have not ended.
    running: watch::Sender<usize>,
    /// Wakes calls that give up when there is no connection.
    went_down: Notify,
}

/// How long a call waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From here on it fails while there is no connection.
    pub(crate) connected_by: Instant,
    /// From here on it fails in any case.
    pub(crate) deadline: Instant,
}

impl Patience {
    /// A connection may be late by as much as the answer.
    pub(crate) fn until(deadline: Instant) -> Self {
        Self {
            connected_by: deadline,
            deadline,
        }
    }
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Self {
        let connection_count = settings.connection_count;
        let now = Instant::now();
        Self {
            settings,
            session: Session::default(),
            leases: Leases::default(),
            lanes: (0..connection_count).map(|_| Lane::new(now)).collect(),
            last_id: AtomicU64::new(0),
            key_hasher: RandomState::new(),
            closing_since: watch::Sender::new(None),
            running: watch::Sender::new(connection_count),
            went_down: Notify::new(),
        }
    }

    pub(crate) fn next_id(&self) -> RequestId {
        // Relaxed: only that no two are equal matters.
        RequestId::new(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    // ---- lanes

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The lane for requests about a key: always the same while it has a connection, so that the
    /// server sees a task's requests for a key in their order. A release by `drop` comes before the
    /// acquire after it.
    pub(crate) fn lane_of(&self, key: &[u8]) -> &Lane {
        let home = self.key_hasher.hash_one(key) % self.lanes.len() as u64;
        self.open_lane_near(home as usize)
    }

    /// This lane, or another if it has no connection and another has.
    pub(crate) fn open_lane_near(&self, index: usize) -> &Lane {
        let home = &self.lanes[index];
        if home.is_open() {
            return home;
        }
        self.lanes
            .iter()
            .find(|lane| lane.is_open())
            .unwrap_or(home)
    }

    /// A lane with a connection that is not `index`.
    pub(crate) fn other_open_lane(&self, index: usize) -> Option<&Lane> {
        let others = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        others.map(|(_, lane)| lane).find(|lane| lane.is_open())
    }

    /// What the client has counted, and what it has at this moment.
    pub(crate) fn metrics(&self) -> Metrics {
        let open = self.lanes.iter().filter(|lane| lane.is_open()).count();
        let held = self.leases.count();
        self.session.counters.snapshot(held as u64, open as u64)
    }

    /// A connection is gone, and calls must see whether there is another.
    pub(crate) fn note_down(&self) {
        self.went_down.notify_waiters();
    }

    /// Completes while no lane has a connection. May be dropped at any time.
    async fn disconnected(&self) {
        loop {
            let went_down = self.went_down.notified();
            tokio::pin!(went_down);
            // From here on no end is missed: a lane is down before its end is told.
            went_down.as_mut().enable();
            if !self.lanes.iter().any(Lane::is_open) {
                return;
            }
            went_down.await;
        }
    }

    // ---- requests

    /// Asks, and waits for the answer for as long as `patience` says.
    ///
    /// Dropping it gives up waiting for the answer. The request itself is taken back only if it was
    /// not sent yet: a grant that no caller takes is released, and a waiting acquire is cancelled.
    pub(crate) async fn call(
        &self,
        lane: &Lane,
        ask: Ask,
        lease: Option<&Arc<Lease>>,
        patience: Patience,
    ) -> Result<Answer, Error> {
        let start = Instant::now();
        let (caller, answer) = oneshot::channel();
        let mut call = Call::new(self.next_id(), ask, Sink::Caller(caller));
        call.lease = lease.cloned();
        if !lane.is_open()
            && let Status::Down { since, why } = lane.status()
            && since + self.settings.request_timeout <= start
        {
            // Connecting has failed for as long as a request may take: this one need not wait to
            // find out. A request about a lock that exists is sent when it can be, though.
            if call.class == Class::Urgent {
                lane.push(call);
            }
            return Err(Error::Disconnected { why });
        }
        let mut pending = Pending {
            pool: self,
            acquire_id: (call.class == Class::Waiting).then_some(call.id),
        };
        let answered = async {
            call.place = lane.place(call.class).await?;
            lane.push(call);
            // The lane's task always answers, unless its runtime is gone.
            answer.await.unwrap_or(Err(Error::Closed))
        };
        let given_up = async {
            sleep_until(patience.connected_by).await;
            let disconnected = timeout_at(patience.deadline, self.disconnected()).await;
            disconnected.is_ok()
        };
        let answered = tokio::select! {
            biased;
            answer = answered => Ok(answer),
            is_disconnected = given_up => Err(is_disconnected),
        };
        match answered {
            Ok(answer) => {
                pending.acquire_id = None;
                answer
            }
            Err(is_disconnected) => Err(match lane.status() {
                // It came back at this very moment.
                Status::Open if is_disconnected => Error::Disconnected { why: None },
                Status::Open => Error::NoAnswer {
                    after: start.elapsed(),
                },
                Status::Down { why, .. } => Error::Disconnected { why },
                Status::Closed => Error::Closed,
            }),
        }
    }

    /// As [`Self::call`], with the time that a request has by default.
    pub(crate) async fn call_soon(
        &self,
        lane: &Lane,
        ask: Ask,
        lease: Option<&Arc<Lease>>,
    ) -> Result<Answer, Error> {
        let deadline = Instant::now() + self.settings.request_timeout;
        self.call(lane, ask, lease, Patience::until(deadline)).await
    }

    /// Asks without waiting for anything, from anywhere.
    pub(crate) fn post(&self, lane: &Lane, ask: Ask) {
        lane.push(Call::new(self.next_id(), ask, Sink::Nowhere));
    }

    /// Renews a lease on behalf of `sink`.
    pub(crate) fn post_renewal(&self, lease: &Arc<Lease>, sink: Sink) {
        self.lane_of(&lease.key)
            .push(Call::renew(self.next_id(), lease, sink));
    }

    // ---- the end

    /// Since when the client is closing, if it is.
    pub(crate) fn closing_since(&self) -> Option<Instant> {
        *self.closing_since.borrow()
    }

    /// Completes when the client closes. May be dropped at any time.
    pub(crate) async fn closing(&self) {
        let mut closing_since = self.closing_since.subscribe();
        closing_since
            .wait_for(Option::is_some)
            .await
            .expect("the sender lives in self");
    }

    /// Ends all tasks and tells the server that the session is over: at once if there is a
    /// connection, otherwise when one opens within a request's time. Never waits. Gives the answer
    /// to the goodbye; `None` if the client was closing already.
    pub(crate) fn close(&self) -> Option<oneshot::Receiver<Result<Answer, Error>>> {
        let now = Instant::now();
        let is_first = self.closing_since.send_if_modified(|since| {
            let is_first = since.is_none();
            since.get_or_insert(now);
            is_first
        });
        if !is_first {
            return None;
        }
        self.leases
            .lose_all(LAST_EPOCH, Loss::Closed, Moment::now());
        let (sink, answer) = oneshot::channel();
        let goodbye = Call::new(self.next_id(), Ask::Goodbye, Sink::Caller(sink));
        let speaker = self.lanes.iter().position(Lane::is_open).unwrap_or(0);
        self.lanes[speaker].leave(Some(goodbye));
        for (index, lane) in self.lanes.iter().enumerate() {
            if index != speaker {
                lane.leave(None);
            }
        }
        Some(answer)
    }

    /// Completes when all connection tasks have ended. May be dropped at any time.
    pub(crate) async fn ended(&self) {
        let mut running = self.running.subscribe();
        running
            .wait_for(|count| *count == 0)
            .await
            .expect("the sender lives in self");
    }

    /// A connection's task ended. After the last one no lease can be renewed.
    pub(crate) fn connection_ended(&self, now: Moment) {
        self.running.send_modify(|count| {
            *count -= 1;
            if *count == 0 {
                self.leases.lose_all(LAST_EPOCH, Loss::Closed, now);
            }
        });
    }
}

impl Releaser for Pool {
    fn leases(&self) -> &Leases {
        &self.leases
    }

    fn post_release(&self, hold: EndedHold) {
        let lane = self.lane_of(&hold.key);
        self.post(lane, Ask::release(hold));
    }
}

/// Keeps a client going: clients, lock requests and guards hold one. The last one to go ends the
/// session.
pub(crate) struct Handle {
    pool: Arc<Pool>,
}

impl Handle {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Under the name of the public type.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.pool.settings.name)
            .field("addresses", &self.pool.settings.addresses)
            .field("session_id", &self.pool.session.id())
            .finish_non_exhaustive()
    }
}

/// Cancels an acquire that waits at the server when its caller goes away before the answer.
struct Pending<'a> {
    pool: &'a Pool,
    acquire_id: Option<RequestId>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(acquire_id) = self.acquire_id {
            // On every lane: after a reconnect it may have moved to another one. A lane that does
            // not know it ignores it.
            for lane in &self.pool.lanes {
                lane.cancel(acquire_id);
            }
        }
    }
}
