//! Mailboxes: what one core has to tell another, or the engine a core.

use crate::conn::dialect::Message;
use crate::session::ConnectionId;
use crate::session::operator::Operator;
use crate::session::waiter::Waiter;
use engine::{Fence, GaveUp, Grant, Mailbox, NotHeld, Posted, SessionId, SleepFlag};
use protocol::LostReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, mpsc, oneshot};

/// How many droppable messages (losses) a core's mailbox takes. A client that misses one finds out
/// by itself: its lease has a deadline, and its next renewal is refused.
const MAIL_MAX: u32 = 100_000;

/// What lies in a core's mailbox.
pub(crate) enum Mail {
    /// `since`: when the key's last holder was rid of it.
    Granted {
        waiter: Waiter,
        grant: Grant,
        since: Instant,
    },
    GaveUp {
        waiter: Waiter,
        why: GaveUp,
    },
    Lost {
        connection: ConnectionId,
        key: Box<[u8]>,
        fence: engine::Fence,
        reason: LostReason,
    },
    /// The session is over: vacate its seat here. The core that brings the count to zero forgets
    /// the session and closes its connections: what the other cores had to tell them is in the
    /// mailboxes by then, in front of that.
    SessionEnded {
        session: SessionId,
        cores_left: Arc<AtomicUsize>,
    },
    /// Close this connection: its session is over, and it has been told of all it lost.
    SessionGone {
        connection: ConnectionId,
    },
    /// Close this connection: another one resumes its session, and waits for `done` to be dropped.
    Superseded {
        connection: ConnectionId,
        done: mpsc::Sender<()>,
    },
    /// Append what is recorded and not yet in the log, then drop `done`.
    AppendNow {
        done: std::sync::mpsc::Sender<()>,
    },
    /// Take this lock away.
    Force(Box<ForceOrder>),
    /// Look again: something was left in a signal list that this connection waits for.
    ListReady {
        connection: ConnectionId,
    },
    /// A message of a channel that this connection listens to.
    Published {
        connection: ConnectionId,
        message: Arc<Message>,
    },
}

/// A lock that an operator takes away.
pub(crate) struct ForceOrder {
    pub(crate) key: Box<[u8]>,
    pub(crate) fence: Fence,
    pub(crate) operator: Arc<Operator>,
    /// Answered once what was decided is settled.
    pub(crate) answer: oneshot::Sender<Forced>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// It is taken away.
    Done,
    /// It was not held under that fence.
    NotHeld(NotHeld),
}

/// One core's mailbox and its bell.
pub(crate) struct Post {
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) bell: Notify,
    /// Rung when the core's wheels must be turned before it meant to.
    pub(crate) wheel_bell: Notify,
    /// The core waits for the log: ring when something is synced.
    pub(crate) awaits_sync: SleepFlag,
    pub(crate) dropped: AtomicU64,
}

impl Post {
    pub(crate) fn new() -> Self {
        Post {
            mailbox: Mailbox::new(MAIL_MAX),
            bell: Notify::new(),
            wheel_bell: Notify::new(),
            awaits_sync: SleepFlag::new(),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn send(&self, mail: Mail) {
        if self.mailbox.post(mail) == Posted::Wake {
            self.bell.notify_one();
        }
    }

    pub(crate) fn send_droppable(&self, mail: Mail) {
        match self.mailbox.try_post(mail) {
            Ok(Posted::Wake) => self.bell.notify_one(),
            Ok(Posted::AlreadySignalled) => {}
            Err(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
