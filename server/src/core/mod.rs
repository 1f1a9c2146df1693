//! One core: an I/O thread with its connections, its seats, its mail and its share of the wheels.
//! Everything here belongs to one thread.
//!
//! | file                 | what                                                              |
//! |----------------------|-------------------------------------------------------------------|
//! | `mod.rs`             | the connections and seats of a core                               |
//! | `delivery.rs`        | mail from other cores, and what becomes of waits                  |
//! | `wheels.rs`          | turning the wheels of the shards that live here, and resting      |
//! | `awake.rs`           | staying awake for a client that waits                             |
//! | `books/`             | what is counted, audited and written down                         |
//! | `durable_replies.rs` | replies that wait for the disk                                    |
//! | `forcing.rs`         | locks that an operator takes away over HTTP                       |
//! | `mail.rs`            | mailboxes; `switchboard.rs`: what the engine tells the server     |
//! | `losses.rs`          | locks that the engine takes from their owners                     |
//! | `wakeup.rs`          | the log's writer wakes the cores that wait for it                 |
//! | `cluster_view.rs`    | what connections see of the cluster that this node is part of     |
//! | `shared.rs`          | what all cores share; `pauses.rs`: where a test may hold it up    |

mod awake;
pub(crate) mod books;
pub(crate) mod cluster_view;
mod delivery;
pub(crate) mod durable_replies;
pub(crate) mod forcing;
pub(crate) mod losses;
pub(crate) mod mail;
pub(crate) mod pauses;
pub(crate) mod shared;
pub(crate) mod switchboard;
pub(crate) mod wakeup;
mod wheels;

use crate::conn::connection::Connection;
use crate::conn::places::{Line, strangers_max};
use crate::observe::metrics::CoreMetrics;
use crate::session::ConnectionId;
use awake::Awake;
use books::Books;
use durable_replies::DurableReplies;
use engine::{Seat, SessionId, Tick};
use hashbrown::HashMap;
use shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use wheels::Pace;

pub(crate) struct Core {
    pub(crate) id: usize,
    pub(crate) shared: Arc<Shared>,
    /// What is counted, audited and written down.
    pub(crate) books: Books,
    /// What is written down and not on the disk yet, and the replies that wait for it.
    pub(crate) replies: Rc<DurableReplies>,
    connections: RefCell<Connections>,
    seats: RefCell<HashMap<SessionId, Rc<RefCell<Seat>>>>,
    /// Sockets that are open here, those without a hello and those that are closing among them.
    pub(crate) sockets: Cell<usize>,
    /// The server goes: nothing new is granted.
    pub(crate) is_stopping: Cell<bool>,
    /// Peers that have not introduced themselves.
    pub(crate) strangers: Arc<Line>,
    /// One step of a handshake at a time.
    pub(crate) handshake_turns: Semaphore,
    awake: Awake,
    pace: Pace,
    /// By which book of rights the connections here go.
    rights_generation: Cell<u64>,
    /// Batches until the next one that is timed.
    untimed: Cell<u32>,
}

/// Of so many batches of requests on a core one is timed: the others cost a count, and no reading
/// of the clock.
const TIMED_EVERY: u32 = 64;

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
        let rights_generation = shared.rights.generation();
        Rc::new(Core {
            id,
            books: Books::new(id, shared.clone(), replies.clone()),
            replies,
            strangers: Line::new(strangers_max(&shared.config)),
            handshake_turns: Semaphore::new(1),
            shared,
            connections: RefCell::default(),
            seats: RefCell::new(seats.collect()),
            sockets: Cell::new(0),
            is_stopping: Cell::new(false),
            awake: Awake::default(),
            pace: Pace::default(),
            rights_generation: Cell::new(rights_generation),
            untimed: Cell::new(0),
        })
    }

    /// Wakes all connections when rights have changed, so that those close that may do nothing any
    /// more, also if their peers only wait.
    fn hear_of_rights(&self) {
        let generation = self.shared.rights.generation();
        if self.rights_generation.replace(generation) != generation {
            for connection in self.all() {
                connection.bell.notify_one();
            }
        }
    }

    /// The time, if the batch of requests that begins now is one that is timed.
    #[inline]
    pub(crate) fn start_timer(&self) -> Option<Instant> {
        match self.untimed.get() {
            0 => {
                self.untimed.set(TIMED_EVERY - 1);
                Some(Instant::now())
            }
            left => {
                self.untimed.set(left - 1);
                None
            }
        }
    }

    pub(crate) fn metrics(&self) -> &CoreMetrics {
        self.shared.metrics.core(self.id)
    }

    /// An acquire had to wait for this key, or was refused because it is held.
    pub(crate) fn note_contended(&self, key: &[u8], now: Tick) {
        self.shared.metrics.hot_keys.note(self.id, key, now);
    }

    /// The seat of a session on this core, made if it has none.
    pub(crate) fn seat(&self, session: SessionId) -> Rc<RefCell<Seat>> {
        self.seats
            .borrow_mut()
            .entry(session)
            .or_insert_with(|| Rc::new(RefCell::new(Seat::new(session))))
            .clone()
    }

    /// Asks the engine as the owner of all detached locks would. `None`: there are none.
    #[cold]
    pub(crate) fn ask_as_detached<T>(&self, ask: impl FnOnce(&mut Seat) -> T) -> Option<T> {
        let session = self.shared.detached()?;
        let seat = self.seat(session.id);
        let mut seat = seat.borrow_mut();
        // The session lasts as long as the server, so there is nothing to sweep at its end.
        seat.stop_remembering();
        Some(ask(&mut seat))
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
}
