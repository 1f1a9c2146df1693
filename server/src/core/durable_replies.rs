//! Replies that wait for the disk: what was decided is written down first, and acknowledged when
//! that is synced.
//!
//! A core collects the records of what it decides. When a turn is over, a batch of requests or of
//! mail, it appends them to the log, all at once or the last of them, and holds back what the turn
//! wrote to its connections. The log's writer rings the core's bell when something is synced, and
//! the core lets go of what waited for it. Once a connection is held back, everything behind that
//! waits too, so that replies leave in the order in which they were decided.
//!
//! Without a log, and for nearly all turns with `durability = fence`, there are no records and
//! nothing is held back. In a cluster every turn that tells something is held back, records or not,
//! and with it what the audit log is to say of it
//! ([`Journal::holds_all_replies`](crate::storage::Journal::holds_all_replies)): another node may
//! lead already. A leader that was deposed drops what it holds (`serve/stopping.rs`).

use crate::conn::connection::Connection;
use crate::conn::dialect::News;
use crate::core::pauses::Pause;
use crate::core::shared::Shared;
use crate::observe::audit;
use crate::storage::Storage;
use bytes::BytesMut;
use engine::Tick;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use wal::{Batch, Record, Ticket};

/// What one core has written down, and the replies that wait for it.
pub(crate) struct DurableReplies {
    core: usize,
    shared: Arc<Shared>,
    unsynced: RefCell<Unsynced>,
}

#[derive(Default)]
struct Unsynced {
    /// The records of this turn.
    records: Batch,
    /// What this turn's replies wait for besides them: records of this turn that were appended
    /// before its end, or those that a repeated answer was first given for.
    appended: Option<Ticket>,
    /// The horizon among them.
    horizon: Option<Tick>,
    /// Connections that were told something in this turn.
    told: Vec<Rc<Connection>>,
    /// What is to be done once this turn is settled.
    afterwards: Vec<Afterwards>,
    /// Earlier turns, in the order of their tickets.
    turns: VecDeque<Turn>,
}

type Afterwards = Box<dyn FnOnce()>;

struct Turn {
    ticket: Ticket,
    horizon: Option<Tick>,
    told: Vec<Rc<Connection>>,
    afterwards: Vec<Afterwards>,
    /// What the audit log is to say of it.
    events: Vec<audit::Event>,
}

impl DurableReplies {
    pub(crate) fn new(core: usize, shared: Arc<Shared>) -> Rc<Self> {
        if holds_all(&shared) {
            audit::hold_events();
        }
        Rc::new(DurableReplies {
            core,
            shared,
            unsynced: RefCell::default(),
        })
    }

    /// Adds a record to this turn's.
    pub(crate) fn push_record(&self, record: &Record<'_>) {
        self.unsynced.borrow_mut().records.push(record);
    }

    /// Sees to it that the horizon covers a lease, or a session, that is about to be promised until
    /// then.
    #[inline]
    pub(crate) fn cover(&self, storage: &Storage, until: Tick) {
        if !storage.covers(until) {
            self.ask_horizon(storage, until);
        }
    }

    #[cold]
    fn ask_horizon(&self, storage: &Storage, until: Tick) {
        let mut unsynced = self.unsynced.borrow_mut();
        if unsynced.horizon.is_none_or(|horizon| horizon < until) {
            let horizon = Storage::horizon_for(until);
            unsynced.records.push(&storage.ask_horizon(horizon));
            unsynced.horizon = Some(horizon);
        }
    }

    /// Tells a connection something that follows from what was decided in this turn.
    pub(crate) fn answer(&self, connection: &Rc<Connection>, write: impl FnOnce(&mut BytesMut)) {
        if !self.must_hold(connection) {
            return connection.send_now(self.shared.metrics.core(self.core), write);
        }
        let mut bytes = BytesMut::new();
        write(&mut bytes);
        connection.out.hold(bytes);
    }

    /// Tells a connection news that follow from what this core saw, and from no record of this
    /// turn.
    pub(crate) fn tell_seen(&self, connection: &Rc<Connection>, news: &News<'_>) {
        match holds_all(&self.shared) {
            true => self.answer(connection, |out| connection.voice.say(news, out)),
            false => connection.tell(news),
        }
    }

    /// The same for what stands in the connection's out-buffer from `start` on.
    pub(crate) fn hold_back(&self, connection: &Rc<Connection>, out: &mut BytesMut, start: usize) {
        if out.len() > start && self.must_hold(connection) {
            connection.out.hold(out.split_off(start));
        }
    }

    /// Does something, such as telling another thread, once what was decided in this turn is
    /// settled; at once if there is nothing to wait for.
    pub(crate) fn once_settled(&self, act: impl FnOnce() + 'static) {
        match holds_all(&self.shared) || self.has_recorded() {
            true => self.unsynced.borrow_mut().afterwards.push(Box::new(act)),
            false => act(),
        }
    }

    fn must_hold(&self, connection: &Rc<Connection>) -> bool {
        let Some(storage) = &self.shared.storage else {
            return false;
        };
        if !storage.journal.holds_all_replies() && !self.has_recorded() {
            return connection.out.is_held_back();
        }
        let mut unsynced = self.unsynced.borrow_mut();
        let is_told = unsynced
            .told
            .last()
            .is_some_and(|last| Rc::ptr_eq(last, connection));
        if !is_told {
            unsynced.told.push(connection.clone());
        }
        true
    }

    pub(crate) fn pause_before_append(&self) {
        if self.shared.on_pause.is_some() && self.has_recorded() {
            self.shared.pause(Pause::BeforeAppend);
        }
    }

    /// Whether this turn's replies wait for something.
    fn has_recorded(&self) -> bool {
        let unsynced = self.unsynced.borrow();
        !unsynced.records.is_empty() || unsynced.appended.is_some()
    }

    /// Appends what this turn has recorded so far. For what must be in the log before another core
    /// may go on.
    pub(crate) fn append_now(&self) {
        if let Some(storage) = &self.shared.storage {
            let mut unsynced = self.unsynced.borrow_mut();
            if !unsynced.records.is_empty() {
                let records = std::mem::take(&mut unsynced.records);
                unsynced.appended = Some(storage.append(records));
            }
        }
    }

    /// Has this turn's replies wait for everything that any core has appended by now.
    pub(crate) fn await_appended(&self) {
        if let Some(storage) = &self.shared.storage {
            self.append_now();
            self.unsynced.borrow_mut().appended = Some(storage.journal.barrier());
        }
    }

    /// Ends a turn: its records go to the log.
    pub(crate) fn end_turn(&self) {
        let Some(storage) = &self.shared.storage else {
            return;
        };
        self.pause_before_append();
        self.append_now();
        let events = audit::take_held();
        let mut unsynced = self.unsynced.borrow_mut();
        let has_followers =
            !unsynced.told.is_empty() || !events.is_empty() || !unsynced.afterwards.is_empty();
        if unsynced.appended.is_none() && has_followers {
            // Nothing was recorded, and what follows from it waits all the same: see `must_hold`.
            unsynced.appended = Some(storage.journal.append_batch(Batch::new()));
        }
        let Some(ticket) = unsynced.appended.take() else {
            return;
        };
        let horizon = unsynced.horizon.take();
        let told = std::mem::take(&mut unsynced.told);
        let afterwards = std::mem::take(&mut unsynced.afterwards);
        told.iter()
            .for_each(|connection| connection.out.seal(ticket));
        unsynced.turns.push_back(Turn {
            ticket,
            horizon,
            told,
            afterwards,
            events,
        });
        drop(unsynced);
        self.await_sync(storage);
    }

    /// Has the writer ring when something is synced; looks whether something is already.
    fn await_sync(&self, storage: &Storage) {
        let post = &self.shared.engine.host().posts[self.core];
        // Either the writer sees that we wait, in `Wakeup::wake`, or we see what is synced.
        post.awaits_sync.raise();
        self.let_go(storage);
    }

    /// The bell rang: lets go of what is synced.
    pub(crate) fn hear_of_sync(&self) {
        if let Some(storage) = &self.shared.storage
            && !self.unsynced.borrow().turns.is_empty()
        {
            self.await_sync(storage);
        }
    }

    fn let_go(&self, storage: &Storage) {
        let synced = storage.journal.settled();
        let mut unsynced = self.unsynced.borrow_mut();
        while let Some(turn) = unsynced.turns.front()
            && turn.ticket <= synced
        {
            let turn = unsynced.turns.pop_front().expect("it is the front");
            if let Some(horizon) = turn.horizon {
                storage.horizon_synced(horizon);
            }
            if let Some(audit) = self.shared.audit() {
                let leave = |event| audit.leave_settled(event);
                turn.events.into_iter().for_each(leave);
            }
            for connection in turn.told {
                connection.out.let_go(synced);
                connection.bell.notify_one();
            }
            turn.afterwards.into_iter().for_each(|act| act());
        }
    }

    /// Whether the disk does not keep up: then a connection that waits for it is not read from.
    pub(crate) fn is_congested(&self) -> bool {
        let storage = self.shared.storage.as_ref();
        storage.is_some_and(|storage| storage.journal.is_congested())
    }
}

/// Whether everything waits that follows from what this core saw: see
/// [`Journal::holds_all_replies`](crate::storage::Journal::holds_all_replies).
fn holds_all(shared: &Shared) -> bool {
    let storage = shared.storage.as_ref();
    storage.is_some_and(|storage| storage.journal.holds_all_replies())
}
