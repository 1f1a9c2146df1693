//! A connection, as everything on its core may touch it. Its own task has the socket's reading half
//! and the loop (`serve/conversation.rs`).

use super::dialect::{News, Voice};
use super::out_buffer::OutBuffer;
use super::socket::WriteHalf;
use crate::observe::metrics::CoreMetrics;
use crate::rights::{Entitlement, Reservation, Rights};
use crate::session::ConnectionId;
use crate::session::Session;
use crate::session::actor::Actor;
use bytes::BytesMut;
use engine::{Seat, Ticket};
use hashbrown::HashMap;
use protocol::ErrorCode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// What a request in line counts for.
pub(crate) struct ReservedWait {
    /// The lock that it may be granted at any moment.
    pub(crate) held: Reservation,
    pub(crate) waiting: Reservation,
}

pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) session: Arc<Session>,
    /// For the audit log.
    actor: RefCell<Arc<Actor>>,
    pub(crate) seat: Rc<RefCell<Seat>>,
    pub(crate) voice: Rc<dyn Voice>,
    /// Acquires that wait, by request id.
    pub(crate) waits: RefCell<HashMap<u64, Ticket>>,
    /// What those of them count for that are subject to a quota.
    reserved: RefCell<HashMap<u64, ReservedWait>>,
    pub(crate) out: OutBuffer,
    /// Wakes the connection's task.
    pub(crate) bell: Notify,
    /// The socket, from the first turn of the loop until its last.
    writer: RefCell<Option<Rc<WriteHalf>>>,
    closing: Cell<bool>,
    draining: Cell<bool>,
    /// What the peer may do. Counted by this core alone: all connections of a name share it, and a
    /// count that all cores write would be waited for.
    entitlement: RefCell<OwnCount<Entitlement>>,
    /// Whether that has to be checked at each request.
    is_bounded: Cell<bool>,
    /// By which book of rights.
    rights_generation: Cell<u64>,
}

/// What a change of rights has left of those of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Footing {
    /// All of them, at least.
    Kept,
    /// It has lost a role or a prefix.
    Narrowed,
    /// Its name is not known any more, and it may do nothing.
    Gone,
}

/// Shared by all cores, and counted by this one alone.
pub(crate) type OwnCount<T> = Rc<Arc<T>>;

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        actor: Actor,
        seat: Rc<RefCell<Seat>>,
        voice: Rc<dyn Voice>,
        (rights, entitlement): (&Rights, Arc<Entitlement>),
    ) -> Rc<Self> {
        let actor = Actor {
            token_name: token_name(&entitlement),
            ..actor
        };
        Rc::new(Connection {
            id,
            session: actor.session.clone(),
            actor: RefCell::new(Arc::new(actor)),
            seat,
            voice,
            waits: RefCell::default(),
            reserved: RefCell::default(),
            out: OutBuffer::default(),
            bell: Notify::new(),
            writer: RefCell::default(),
            closing: Cell::new(false),
            draining: Cell::new(false),
            is_bounded: Cell::new(entitlement.is_bounded()),
            entitlement: RefCell::new(Rc::new(entitlement)),
            rights_generation: Cell::new(rights.generation()),
        })
    }

    /// What the peer may do.
    pub(crate) fn entitlement(&self) -> OwnCount<Entitlement> {
        self.entitlement.borrow().clone()
    }

    /// What has to be checked before a request is carried out. `None`: nothing.
    #[inline]
    pub(crate) fn bounds(&self) -> Option<OwnCount<Entitlement>> {
        self.is_bounded.get().then(|| self.entitlement())
    }

    /// The peer has shown another token.
    pub(crate) fn entitle(&self, entitlement: Arc<Entitlement>) {
        self.is_bounded.set(entitlement.is_bounded());
        let mut actor = self.actor.borrow_mut();
        *actor = Arc::new(Actor {
            token_name: token_name(&entitlement),
            ..Actor::clone(&actor)
        });
        drop(actor);
        *self.entitlement.borrow_mut() = Rc::new(entitlement);
    }

    /// Goes by the latest book of rights.
    #[inline]
    pub(crate) fn go_by(&self, rights: &Rights) -> Footing {
        match self.rights_generation.get() == rights.generation() {
            true => Footing::Kept,
            false => self.look_up(rights),
        }
    }

    #[cold]
    fn look_up(&self, rights: &Rights) -> Footing {
        self.rights_generation.set(rights.generation());
        let before = self.entitlement();
        let name = before.name().clone();
        // A peer without a name has shown nothing yet.
        let found = match name.is_empty() {
            true => Some(rights.of_stranger().clone()),
            false => rights.of_name(&name),
        };
        let footing = match &found {
            None => Footing::Gone,
            Some(found) if !before.is_within(found) => Footing::Narrowed,
            Some(_) => Footing::Kept,
        };
        self.entitle(found.unwrap_or_else(|| rights.of_nothing().clone()));
        footing
    }

    /// Whether the peer waits for a lock.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waits.borrow().is_empty()
    }

    /// Who acts here, as the audit log names it.
    pub(crate) fn actor(&self) -> Arc<Actor> {
        self.actor.borrow().clone()
    }

    /// The client calls itself this from now on; `None`: it takes its name back.
    pub(crate) fn set_own_name(&self, own_name: Option<Box<str>>) {
        let mut actor = self.actor.borrow_mut();
        *actor = Arc::new(Actor {
            own_name,
            ..Actor::clone(&actor)
        });
    }

    /// Lets grants be written at once, or not any more.
    pub(crate) fn set_writer(&self, writer: Option<Rc<WriteHalf>>) {
        *self.writer.borrow_mut() = writer;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Appends behind everything else, and has it written.
    pub(crate) fn send(&self, write: impl FnOnce(&mut BytesMut)) {
        self.out.append(write);
        self.bell.notify_one();
    }

    /// Tells the peer something unasked.
    pub(crate) fn tell(&self, news: &News<'_>) {
        self.send(|out| self.voice.say(news, out));
    }

    /// As `send`, but writes at once and leaves to the connection's task only what the socket does
    /// not take. For hand-offs: until the next holder knows, no session makes use of the lock.
    pub(crate) fn send_now(&self, metrics: &CoreMetrics, write: impl FnOnce(&mut BytesMut)) {
        let writer = self.writer.borrow();
        let Some(writer) = writer.as_ref().filter(|_| !self.out.is_held_back()) else {
            return self.send(write);
        };
        self.out.with_ready(write);
        // An error comes again when the task writes, and it is the task that deals with it.
        let _ = self.out.write_some(writer, metrics);
        if self.out.ready_bytes() > 0 || writer.has_unsent() {
            self.bell.notify_one();
        }
    }

    /// Says why, if the protocol has words for it, and closes once everything is written.
    pub(crate) fn close_with(&self, code: ErrorCode, message: &str) {
        if !self.closing.replace(true) {
            self.tell(&News::Closing { code, message });
        }
    }

    /// Closes without a word once everything is written.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.bell.notify_one();
    }

    /// Has what is still under way answered, and the connection closed when nothing more comes.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.bell.notify_one();
    }

    pub(crate) fn start_wait(&self, request_id: u64, ticket: Ticket) {
        self.session.count_waiting(1);
        self.waits.borrow_mut().insert(request_id, ticket);
    }

    /// Keeps what a wait counts for, until it is finished.
    pub(crate) fn reserve(&self, request_id: u64, reserved: ReservedWait) {
        if reserved.held.is_counted() || reserved.waiting.is_counted() {
            self.reserved.borrow_mut().insert(request_id, reserved);
        }
    }

    /// The lock that a wait has counted for: its grant has come.
    pub(crate) fn take_reserved(&self, request_id: u64) -> Option<Reservation> {
        let mut reserved = self.reserved.borrow_mut();
        if reserved.is_empty() {
            return None;
        }
        reserved.remove(&request_id).map(|reserved| reserved.held)
    }

    /// All waits have been taken off the list.
    pub(crate) fn drop_reserved(&self) {
        self.reserved.borrow_mut().clear();
    }

    /// Takes a wait off the list. `false`: it is not waited for any more.
    pub(crate) fn finish_wait(&self, request_id: u64) -> bool {
        drop(self.take_reserved(request_id));
        let waited = self.waits.borrow_mut().remove(&request_id).is_some();
        if waited {
            self.session.count_waiting(-1);
        }
        waited
    }
}

/// The name of what the peer showed, if that has one.
fn token_name(entitlement: &Entitlement) -> Option<Arc<str>> {
    let name = entitlement.name();
    (!name.is_empty()).then(|| name.clone())
}
