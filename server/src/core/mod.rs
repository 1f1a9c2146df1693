//! One core: its connections, its seats, its mail and its share of the wheels. Everything here belongs to one thread.

pub(crate) mod books;
pub(crate) mod durable_replies;
pub(crate) mod mail;
pub(crate) mod pauses;
pub(crate) mod shared;
pub(crate) mod waiter;
pub(crate) mod wakeup;

use crate::conn::connection::{Connection, STIRRING_MAX, Speech};
use crate::conn::id::ConnectionId;
use crate::conn::places::{Line, strangers_max};
use crate::core::books::Books;
use crate::core::durable_replies::DurableReplies;
use crate::core::mail::Mail;
use crate::core::shared::Shared;
use crate::core::waiter::Waiter;
use crate::native::reply;
use crate::observe::metrics::CoreMetrics;
use crate::redis;
use engine::{GaveUp, Grant, Key, Progress, Release, Seat, SessionId, Tick};
use hashbrown::HashMap;
use protocol::resp::Writer;
use protocol::{ErrorCode, Push, Reply, RequestId, UnavailableReason};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How many steps of expiry a core does before it looks at its sockets again: a tenth of a millisecond.
const ADVANCE_BUDGET: u32 = 128;

/// How often the wheels are turned while requests come, here or to shards that live here: what those leave in the inboxes is
/// taken out a little at a time.
const TICK: Duration = Duration::from_millis(1);

/// The longest rest of a core that nothing is asked of. What is due earlier wakes it; this is for what is in no hurry: keys
/// that were made and never granted, memory to be given back. It also bounds how late a core notices that its machine was
/// suspended.
const REST_MS_MAX: u64 = 1_000;

/// How many messages are taken from the mailbox before the core looks at its sockets again.
const MAIL_BATCH: usize = 1024;

pub(crate) struct Core {
    pub(crate) id: usize,
    pub(crate) shared: Arc<Shared>,
    connections: RefCell<Connections>,
    seats: RefCell<HashMap<SessionId, Rc<RefCell<Seat>>>>,
    /// Sockets that somebody here still serves, those without a hello and those that are closing among them.
    pub(crate) sockets: Cell<usize>,
    /// The server goes: nothing new is granted.
    pub(crate) is_stopping: Cell<bool>,
    /// Peers that have not introduced themselves.
    pub(crate) strangers: Arc<Line>,
    /// What is counted, audited and written down.
    pub(crate) books: Books,
    /// What is written down and not on the disk yet, and the replies that wait for it.
    pub(crate) replies: Rc<DurableReplies>,
    /// Something happened: stay awake for a while.
    stir: Notify,
    stirred: Cell<bool>,
    /// Requests were served since the wheels were last turned.
    has_served: Cell<bool>,
    /// The wheels rest for longer than a tick.
    is_resting: Cell<bool>,
}

/// Connections by slot; a slot's generation tells one connection from the next.
#[derive(Default)]
struct Connections {
    slots: Vec<(u32, Option<Rc<Connection>>)>,
    free: Vec<u32>,
}

impl Core {
    /// `seats` are those of sessions that outlived a restart.
    pub(crate) fn new(id: usize, shared: Arc<Shared>, seats: HashMap<SessionId, Seat>) -> Rc<Self> {
        let seats = seats.into_iter();
        let seats = seats.map(|(session, seat)| (session, Rc::new(RefCell::new(seat))));
        let replies = DurableReplies::new(id, shared.clone());
        Rc::new(Core {
            id,
            books: Books::new(id, shared.clone(), replies.clone()),
            replies,
            strangers: Line::new(strangers_max(&shared.config)),
            shared,
            connections: RefCell::default(),
            seats: RefCell::new(seats.collect()),
            sockets: Cell::new(0),
            stir: Notify::new(),
            stirred: Cell::new(false),
            has_served: Cell::new(false),
            is_resting: Cell::new(false),
            is_stopping: Cell::new(false),
        })
    }

    pub(crate) fn metrics(&self) -> &CoreMetrics {
        self.shared.metrics.core(self.id)
    }

    /// The seat of a session on this core, made if it has none.
    pub(crate) fn seat(&self, session: SessionId) -> Rc<RefCell<Seat>> {
        self.seats
            .borrow_mut()
            .entry(session)
            .or_insert_with(|| Rc::new(RefCell::new(Seat::new(session))))
            .clone()
    }

    /// Gives a connection its id and keeps it until `remove`.
    pub(crate) fn insert(
        &self,
        make: impl FnOnce(ConnectionId) -> Rc<Connection>,
    ) -> Rc<Connection> {
        let mut connections = self.connections.borrow_mut();
        let slot = connections.free.pop().unwrap_or_else(|| {
            connections.slots.push((0, None));
            connections.slots.len() as u32 - 1
        });
        let (generation, place) = &mut connections.slots[slot as usize];
        let connection = make(ConnectionId {
            core: self.id as u16,
            slot,
            generation: *generation,
        });
        *place = Some(connection.clone());
        connection
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        let mut connections = self.connections.borrow_mut();
        let (generation, place) = &mut connections.slots[id.slot as usize];
        assert_eq!(*generation, id.generation, "a connection is removed once");
        *place = None;
        *generation = generation.wrapping_add(1);
        connections.free.push(id.slot);
    }

    fn find(&self, id: ConnectionId) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        let (generation, connection) = connections.slots.get(id.slot as usize)?;
        connection
            .as_ref()
            .filter(|_| *generation == id.generation)
            .cloned()
    }

    pub(crate) fn all(&self) -> Vec<Rc<Connection>> {
        self.connections
            .borrow()
            .slots
            .iter()
            .filter_map(|(_, connection)| connection.clone())
            .collect()
    }

    /// Takes the mail as it comes, until the server stops.
    pub(crate) async fn take_mail(self: Rc<Self>) {
        let post = &self.shared.engine.host().posts[self.id];
        loop {
            post.bell.notified().await;
            self.replies.hear_of_sync();
            post.mailbox.begin();
            while self.open_some() == MAIL_BATCH {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Opens what lies in the mailbox, a batch of it at most. Returns how many there were.
    fn open_some(&self) -> usize {
        let mailbox = &self.shared.engine.host().posts[self.id].mailbox;
        let mut taken = 0;
        while taken < MAIL_BATCH
            && let Some(mail) = mailbox.take()
        {
            self.open(mail);
            taken += 1;
        }
        if taken > 0 {
            self.stir();
        }
        self.replies.end_turn();
        taken
    }

    /// Opens what lies in the mailbox without waiting for the bell, which may not ring while this core is awake.
    #[inline]
    pub(crate) fn hand_over(&self) {
        if !self.shared.engine.host().posts[self.id].mailbox.is_empty() {
            self.open_some();
        }
    }

    /// Opens all of it now: the server goes.
    pub(crate) fn open_all(&self) {
        while self.open_some() > 0 {}
    }

    fn open(&self, mail: Mail) {
        match mail {
            Mail::Granted { waiter, grant } => self.deliver_grant(waiter, grant),
            Mail::GaveUp { waiter, why } => self.deliver_timeout(&waiter, why),
            Mail::Lost {
                connection,
                key,
                fence,
                reason,
            } => {
                if let Some(connection) = self.find(connection)
                    && let Ok(key) = Key::new(&key)
                {
                    connection.send(|out| Push::Lost { key, fence, reason }.append(out));
                }
            }
            Mail::SessionEnded {
                session,
                cores_left,
            } => {
                self.vacate(session);
                if cores_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.forget(session);
                }
            }
            Mail::SessionGone { connection } => {
                if let Some(connection) = self.find(connection) {
                    connection.close_with(
                        ErrorCode::SESSION_ENDED,
                        "the session has ended; open a new one",
                    );
                }
            }
            Mail::Superseded { connection, done } => {
                if let Some(connection) = self.find(connection) {
                    connection.close_with(
                        ErrorCode::OUT_OF_TURN,
                        "another connection has resumed this session",
                    );
                    // Its peer may take its time to hear that; what waits must not stand in the way of what is repeated.
                    self.abandon_waits(&connection);
                }
                drop(done);
            }
            Mail::AppendNow { done } => {
                self.replies.append_now();
                drop(done);
            }
            Mail::ListReady { connection } => {
                if let Some(connection) = self.find(connection) {
                    connection.list_ready.set(true);
                    connection.bell.notify_one();
                }
            }
            Mail::Published {
                connection,
                message,
            } => {
                if let Some(connection) = self.find(connection)
                    && let Speech::Redis(version) = connection.speech()
                {
                    connection
                        .send(|out| redis::write_message(&message, &mut Writer::new(out, version)));
                }
            }
        }
    }

    fn deliver_grant(&self, waiter: Waiter, grant: Grant) {
        let now = self.shared.clock.now();
        let connection = self
            .find(waiter.connection)
            .filter(|connection| connection.finish_wait(waiter.request_id))
            .filter(|connection| connection.accept(&waiter, grant));
        match connection {
            Some(connection) => {
                // That of the connection, unless the lock is detached.
                let owner = match self.shared.detached() {
                    Some(detached) if detached.id == waiter.session => detached,
                    _ => &connection.session,
                };
                let waited_ms = waiter.asked.ms_until(now);
                let (asker, terms) = (&connection.session, waiter.terms());
                (self.books).granted(owner, asker, &terms, &grant, waited_ms, now);
                let speech = connection.speech();
                self.replies.answer(&connection, |out| match speech {
                    Speech::Native => {
                        reply::granted(&grant, now).append(RequestId::new(waiter.request_id), out)
                    }
                    Speech::Redis(version) => {
                        redis::write_grant(&grant, now, &mut Writer::new(out, version))
                    }
                });
            }
            // The connection went, or its client gave up, while the grant was on its way.
            None => {
                // The seat may be gone with its session; then there is nothing left to give back.
                let seat = self.seats.borrow().get(&waiter.session).cloned();
                let seat = seat.unwrap_or_else(|| Rc::new(Seat::new(waiter.session).into()));
                let key = Key::new(&waiter.key).expect("it was a key when it was asked for");
                let (outcome, held_ms) =
                    self.shared
                        .engine
                        .release_timed(&mut seat.borrow_mut(), key, grant.fence, now);
                let session = self.shared.registry().find(waiter.session);
                let held_ms = matches!(outcome, Release::Released { .. }).then_some(held_ms);
                (self.books).returned(session, &waiter, &grant, held_ms, now);
            }
        }
    }

    fn deliver_timeout(&self, waiter: &Waiter, why: GaveUp) {
        let Some(connection) = self.find(waiter.connection) else {
            return;
        };
        if !connection.finish_wait(waiter.request_id) {
            return;
        }
        self.metrics().acquire_timeouts.bump();
        if let Speech::Redis(version) = connection.speech() {
            return connection.send(|out| Writer::new(out, version).null_array());
        }
        let request_id = RequestId::new(waiter.request_id);
        match why {
            GaveUp::TimedOut => {
                let now = self.shared.clock.now();
                let key = Key::new(&waiter.key).expect("it was a key when it was asked for");
                let state = self.shared.engine.query(key, now);
                connection.send(|out| {
                    reply::with_contention(
                        &self.shared,
                        state.as_ref(),
                        connection.session.id,
                        now,
                        |contention| {
                            protocol::Reply::TimedOut(contention).append(request_id, out);
                        },
                    );
                });
            }
            GaveUp::SessionEnded => {
                connection.send(|out| {
                    reply::error(ErrorCode::SESSION_ENDED, "the session has ended")
                        .append(request_id, out)
                });
            }
        }
    }

    /// Takes all waits of a connection out of their queues and answers them: the server goes.
    pub(crate) fn end_waits(&self, connection: &Connection) {
        let now = self.shared.clock.now();
        let waits: Vec<_> = connection
            .waits
            .borrow()
            .iter()
            .map(|(id, ticket)| (*id, *ticket))
            .collect();
        for (request_id, ticket) in waits {
            // One that is not waiting any more has its grant in our mailbox.
            if self.shared.engine.cancel(ticket, now).is_some()
                && connection.finish_wait(request_id)
            {
                if let Speech::Redis(version) = connection.speech() {
                    connection.send(|out| redis::write_stopping(&mut Writer::new(out, version)));
                    continue;
                }
                let reason = UnavailableReason::SHUTTING_DOWN;
                let reply = Reply::Unavailable {
                    reason,
                    retry_after_ms: 0,
                };
                connection.send(|out| reply.append(RequestId::new(request_id), out));
            }
        }
    }

    /// Takes all waits of a connection out of their queues without an answer: nobody reads it any more.
    pub(crate) fn abandon_waits(&self, connection: &Connection) {
        let now = self.shared.clock.now();
        let waits: Vec<_> = connection.waits.borrow_mut().drain().collect();
        for (_, ticket) in &waits {
            connection.session.count_waiting(-1);
            // One that is not waiting any more was granted, and the grant is in our mailbox: it will be given back.
            self.shared.engine.cancel(*ticket, now);
            self.metrics().acquire_cancels.bump();
        }
        if !waits.is_empty() {
            let session = &connection.session;
            session.remember_unanswered(waits.iter().map(|(request_id, _)| *request_id));
        }
    }

    /// Frees what a session that has ended took through this core.
    fn vacate(&self, session: SessionId) {
        let seat = self.seats.borrow_mut().remove(&session);
        if let Some(seat) = seat {
            self.shared
                .engine
                .vacate(&mut seat.borrow_mut(), self.shared.clock.now());
        }
    }

    /// Forgets a session that every core has vacated, and has its connections closed.
    fn forget(&self, session: SessionId) {
        let forgotten = self.shared.registry().remove(session);
        self.shared.engine.forget_session(session);
        self.metrics().sessions_ended.bump();
        for connection in forgotten.iter().flat_map(|session| session.connections()) {
            let post = self.shared.engine.host().post(connection);
            post.send(Mail::SessionGone { connection });
        }
    }

    /// So many requests of one connection were decided at once.
    #[inline]
    pub(crate) fn note_served(&self, requests: u64) {
        // Who asks for one thing at a time is waiting for it. Who sends many at once keeps us awake anyway.
        if (1..=STIRRING_MAX).contains(&requests) {
            self.stir();
        }
        if requests > 0 {
            self.has_served.set(true);
            if self.is_resting.replace(false) {
                self.wheel_bell().notify_one();
            }
        }
    }

    fn wheel_bell(&self) -> &Notify {
        &self.shared.engine.host().posts[self.id].wheel_bell
    }

    /// There was something to do here, and there may be more in a moment.
    #[inline]
    fn stir(&self) {
        if !self.shared.config.spin.is_zero() && !self.stirred.replace(true) {
            self.stir.notify_one();
        }
    }

    /// Keeps this core awake for a while after it had something to do: a core that sleeps takes longer to wake than a hand-off
    /// does. Whoever else wants the processor gets it at every turn.
    pub(crate) async fn stay_awake(self: Rc<Self>) {
        loop {
            self.stir.notified().await;
            let mailbox = &self.shared.engine.host().posts[self.id].mailbox;
            mailbox.attend();
            while self.stirred.replace(false) {
                let begun = Instant::now();
                while begun.elapsed() < self.shared.config.spin && !self.stirred.get() {
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                    self.hand_over();
                }
            }
            mailbox.begin();
            while self.open_some() == MAIL_BATCH {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The shards that live here.
    fn shards(&self) -> impl Iterator<Item = usize> + use<> {
        (self.id..self.shared.engine.shard_count()).step_by(self.shared.core_count)
    }

    /// Serves those who wait, in all shards of this core. Between any two bursts of expiry: a lock that somebody waits for must
    /// not stand behind a million that nobody wants. `true`: more may be due.
    fn wake_waiters(&self) -> bool {
        let now = self.shared.clock.now();
        let wake = |shard| {
            let engine = &self.shared.engine;
            engine.advance_waiters(shard, now, &mut { ADVANCE_BUDGET })
        };
        self.shards().fold(false, |more, shard| more | wake(shard))
    }

    /// Turns the wheels of the shards that live here, until the server stops. Between two turns it rests until something is due;
    /// `Host::wake` rings if that is sooner than was known when it went to rest.
    pub(crate) async fn turn_wheels(self: Rc<Self>) {
        loop {
            let is_busy = self.has_served.replace(false);
            let now = self.shared.clock.now();
            let turn = self.turn_once(now).await;
            self.shared.look_after_stock();
            if turn.more {
                tokio::task::yield_now().await;
                continue;
            }
            if is_busy || turn.has_worked {
                tokio::time::sleep(TICK).await;
                continue;
            }
            let until = turn.next_due.min(now.plus_ms(REST_MS_MAX));
            if self.may_rest(until) {
                self.is_resting.set(true);
                let rest = self.shared.clock.left_until(until);
                let _ = tokio::time::timeout(rest, self.wheel_bell().notified()).await;
                self.is_resting.set(false);
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Does what is due by `now`, in all shards of this core.
    async fn turn_once(&self, now: Tick) -> Turn {
        let engine = &self.shared.engine;
        let mut turn = Turn {
            more: self.wake_waiters(),
            has_worked: false,
            next_due: Tick::NEVER,
        };
        if self.id == 0 {
            let mut budget = ADVANCE_BUDGET;
            turn.add(engine.advance_sessions(now, &mut budget));
            turn.has_worked |= budget < ADVANCE_BUDGET;
        }
        let mut budget = ADVANCE_BUDGET;
        for shard in self.shards() {
            turn.add(engine.advance_shard(shard, now, &mut budget));
            turn.has_worked |= budget < ADVANCE_BUDGET;
            if budget == 0 {
                // Somebody else's turn between two bursts: expiry must not starve those who ask, nor those who wait.
                // The thread's as well, for clients may run on the same machine.
                std::thread::yield_now();
                tokio::task::yield_now().await;
                turn.more |= self.wake_waiters();
                budget = ADVANCE_BUDGET;
            }
        }
        turn
    }

    /// Tells the engine that this core rests until then. `false`: something has come meanwhile.
    fn may_rest(&self, until: Tick) -> bool {
        let engine = &self.shared.engine;
        (self.id != 0 || engine.rest_sessions(until))
            && self.shards().all(|shard| engine.rest_shard(shard, until))
    }
}

/// How far one turn of a core's wheels came.
struct Turn {
    /// More is due already.
    more: bool,
    /// Something was due, or lay in an inbox.
    has_worked: bool,
    /// Nothing that is known is due before.
    next_due: Tick,
}

impl Turn {
    fn add(&mut self, progress: Progress) {
        self.more |= progress.more;
        self.next_due = progress.next_due.unwrap_or(Tick::NEVER).min(self.next_due);
    }
}
