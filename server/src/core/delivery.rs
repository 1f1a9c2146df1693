//! Mail from other cores, and what becomes of waits: a grant that finds its connection is booked
//! and told, one that does not is given back.

use super::Core;
use super::mail::Mail;
use crate::conn::connection::Connection;
use crate::conn::dialect::News;
use crate::session::ConnectionId;
use crate::session::waiter::Waiter;
use engine::{GaveUp, Grant, Key, Release, Seat, SessionId};
use protocol::ErrorCode;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How many messages are taken from the mailbox before the core looks at its sockets again.
pub(super) const MAIL_BATCH: usize = 1024;

impl Core {
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
    pub(super) fn open_some(&self) -> usize {
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

    /// Opens what lies in the mailbox without waiting for the bell, which may not ring while this
    /// core is awake.
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
            Mail::Granted {
                waiter,
                grant,
                since,
            } => self.deliver_grant(&waiter, grant, since),
            Mail::GaveUp { waiter, why } => self.deliver_timeout(&waiter, why),
            Mail::Lost {
                connection,
                key,
                fence,
                reason,
            } => {
                let key = &*key;
                self.tell(connection, &News::Lost { key, fence, reason });
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
                    let message = "the session has ended; open a new one";
                    connection.close_with(ErrorCode::SESSION_ENDED, message);
                }
            }
            Mail::Superseded { connection, done } => {
                if let Some(connection) = self.find(connection) {
                    let message = "another connection has resumed this session";
                    connection.close_with(ErrorCode::OUT_OF_TURN, message);
                    // Its peer may take its time to hear that. What waits must not stand in the way
                    // of what is repeated.
                    self.abandon_waits(&connection);
                }
                drop(done);
            }
            Mail::AppendNow { done } => {
                self.replies.append_now();
                drop(done);
            }
            Mail::Force(order) => self.force(*order),
            Mail::ListReady { connection } => self.tell(connection, &News::ListReady),
            Mail::Published {
                connection,
                message,
            } => self.tell(connection, &News::Published(&message)),
        }
    }

    /// Tells a peer something, if it is still there.
    fn tell(&self, connection: ConnectionId, news: &News<'_>) {
        if let Some(connection) = self.find(connection) {
            connection.tell(news);
        }
    }

    fn deliver_grant(&self, waiter: &Waiter, grant: Grant, since: Instant) {
        let waiting = self.find(waiter.connection);
        let reserved =
            (waiting.as_ref()).and_then(|connection| connection.take_reserved(waiter.request_id));
        let waiting = waiting.filter(|connection| connection.finish_wait(waiter.request_id));
        match waiting {
            Some(connection) if connection.voice.accepts(waiter, &grant) => {
                self.hand_off(&connection, waiter, &grant, since);
                if let Some(reserved) = reserved {
                    self.shared.keep_reserved(&waiter.key, &grant, reserved);
                }
            }
            Some(connection) => {
                let request_id = waiter.request_id;
                (self.replies).tell_seen(&connection, &News::WaitsElsewhere { request_id });
                self.give_back(waiter, &grant);
            }
            // The connection went while the grant was on its way. A client that stays and cancels
            // too late still waits for it, and gets it.
            None => self.give_back(waiter, &grant),
        }
    }

    /// Tells a waiter that it has its lock, whose last holder was rid of it at `since`.
    fn hand_off(
        &self,
        connection: &Rc<Connection>,
        waiter: &Waiter,
        grant: &Grant,
        since: Instant,
    ) {
        let instant = Instant::now();
        let now = self.shared.clock.at(instant);
        // That of the connection, unless the lock is detached.
        let owner = match self.shared.detached() {
            Some(detached) if detached.id == waiter.session => detached,
            _ => &connection.session,
        };
        let waited_ms = waiter.asked.ms_until(now);
        let (asker, terms) = (&connection.session, waiter.terms());
        (self.books).granted(owner, connection, &terms, grant, waited_ms, now);
        (self.books).handed_off(instant - since);
        (self.books).answered(asker, waiter.request_id, grant);
        let news = News::Granted {
            request_id: waiter.request_id,
            grant,
            now,
        };
        (self.replies).answer(connection, |out| connection.voice.say(&news, out));
        if connection.voice.is_blocked_by_waits() {
            connection.bell.notify_one();
        }
    }

    /// Gives a lock back that no connection takes.
    #[cold]
    fn give_back(&self, waiter: &Waiter, grant: &Grant) {
        let now = self.shared.clock.now();
        // The seat may be gone with its session; then there is nothing left to give back.
        let seat = self.seats.borrow().get(&waiter.session).cloned();
        let seat = seat.unwrap_or_else(|| Rc::new(Seat::new(waiter.session).into()));
        let key = Key::new(&waiter.key).expect("it was a key when it was asked for");
        let engine = &self.shared.engine;
        let (outcome, held_ms) =
            engine.release_timed(&mut seat.borrow_mut(), key, grant.fence, now);
        let session = self.shared.registry().find(waiter.session);
        let held_ms = matches!(outcome, Release::Released { .. }).then_some(held_ms);
        (self.books).returned(session, waiter, grant, held_ms, now);
    }

    fn deliver_timeout(&self, waiter: &Waiter, why: GaveUp) {
        if let Some(connection) = self.find(waiter.connection)
            && connection.finish_wait(waiter.request_id)
        {
            self.metrics().acquire_timeouts.bump();
            (self.replies).tell_seen(&connection, &News::GaveUp { waiter, why });
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
                connection.tell(&News::WaitStopped { request_id });
            }
        }
    }

    /// Takes all waits of a connection out of their queues without an answer: its peer reads none.
    pub(crate) fn abandon_waits(&self, connection: &Connection) {
        let now = self.shared.clock.now();
        let waits: Vec<_> = connection.waits.borrow_mut().drain().collect();
        connection.drop_reserved();
        for (_, ticket) in &waits {
            connection.session.count_waiting(-1);
            // One that is not waiting any more was granted, and the grant is in our mailbox: it
            // will be given back.
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
            let now = self.shared.clock.now();
            self.shared.engine.vacate(&mut seat.borrow_mut(), now);
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
}
