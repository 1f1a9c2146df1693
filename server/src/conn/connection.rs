//! A connection, as everything on its core may touch it. Its own task has the socket's reading half
//! and the loop (`conversation.rs`).

use super::dialect::{News, Voice};
use super::out_buffer::OutBuffer;
use super::socket::WriteHalf;
use crate::conn::id::ConnectionId;
use crate::observe::metrics::CoreMetrics;
use crate::session::Session;
use bytes::BytesMut;
use engine::{Seat, Ticket};
use hashbrown::HashMap;
use protocol::ErrorCode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) session: Arc<Session>,
    pub(crate) seat: Rc<RefCell<Seat>>,
    pub(crate) voice: Rc<dyn Voice>,
    /// Acquires that wait, by request id.
    pub(crate) waits: RefCell<HashMap<u64, Ticket>>,
    pub(crate) out: OutBuffer,
    /// Wakes the connection's task.
    pub(crate) bell: Notify,
    /// The socket, from the first turn of the loop until its last.
    writer: RefCell<Option<Rc<WriteHalf>>>,
    closing: Cell<bool>,
    draining: Cell<bool>,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        session: Arc<Session>,
        seat: Rc<RefCell<Seat>>,
        voice: Rc<dyn Voice>,
    ) -> Rc<Self> {
        Rc::new(Connection {
            id,
            session,
            seat,
            voice,
            waits: RefCell::default(),
            out: OutBuffer::default(),
            bell: Notify::new(),
            writer: RefCell::default(),
            closing: Cell::new(false),
            draining: Cell::new(false),
        })
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
        if self.out.ready_bytes() > 0 {
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

    /// Takes a wait off the list. `false`: it is not waited for any more.
    pub(crate) fn finish_wait(&self, request_id: u64) -> bool {
        let waited = self.waits.borrow_mut().remove(&request_id).is_some();
        if waited {
            self.session.count_waiting(-1);
        }
        waited
    }
}
