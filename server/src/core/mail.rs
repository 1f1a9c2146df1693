//! What the engine tells the server: every message goes to the core that has the connection, through its mailbox.
//!
//! The engine calls these with a shard's mutex held, so they only look things up and post.

use crate::conn::id::ConnectionId;
use crate::core::books::Losses;
use crate::core::waiter::Waiter;
use crate::session::registry::Registry;
use crate::storage::Alarm;
use engine::{GaveUp, Grant, Host, Loss, Lost, Mailbox, Posted, SessionId, SleepFlag};
use protocol::LostReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// How many droppable messages (losses) a core's mailbox takes. A client that misses one finds out by itself: its lease
/// has a deadline, and its next renewal is refused.
const MAIL_MAX: u32 = 100_000;

/// What lies in a core's mailbox.
pub(crate) enum Mail {
    Granted {
        waiter: Waiter,
        grant: Grant,
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
    /// The session is over: vacate its seat here. Whoever brings the count to zero forgets the session and closes its
    /// connections: what the others had to tell them is in the mailboxes by then, in front of that.
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

/// One message on its way to one listener of a channel.
#[derive(Debug)]
pub(crate) struct Message {
    /// The pattern by which it was heard, if it was.
    pub(crate) pattern: Option<Box<[u8]>>,
    pub(crate) channel: Box<[u8]>,
    pub(crate) payload: Box<[u8]>,
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

/// The engine's view of the server.
pub(crate) struct Switchboard {
    pub(crate) posts: Arc<[Post]>,
    pub(crate) registry: Registry,
    pub(crate) losses: Losses,
    /// `None` without a log: then fences never run low.
    alarm: Option<Arc<Alarm>>,
}

impl Switchboard {
    pub(crate) fn new(posts: Arc<[Post]>, losses: Losses, alarm: Option<Arc<Alarm>>) -> Self {
        Switchboard {
            posts,
            registry: Registry::new(),
            losses,
            alarm,
        }
    }

    pub(crate) fn post(&self, connection: ConnectionId) -> &Post {
        &self.posts[usize::from(connection.core)]
    }

    /// Has every core vacate its seat of a session that has ended. Does so once, however often it is said.
    pub(crate) fn end_session(&self, session: SessionId) {
        if !self.registry.begin_ending(session) {
            return;
        }
        let cores_left = Arc::new(AtomicUsize::new(self.posts.len()));
        for post in &*self.posts {
            post.send(Mail::SessionEnded {
                session,
                cores_left: cores_left.clone(),
            });
        }
    }
}

impl Host for Switchboard {
    type Waiter = Waiter;

    fn granted(&self, waiter: Waiter, grant: Grant) {
        // Whether the connection is still there only its core knows; if not, it gives the lock back.
        self.post(waiter.connection)
            .send(Mail::Granted { waiter, grant });
    }

    fn gave_up(&self, waiter: Waiter, why: GaveUp) {
        self.post(waiter.connection)
            .send(Mail::GaveUp { waiter, why });
    }

    fn lost(&self, loss: &Loss<'_>) {
        let session = self.registry.find(loss.owner);
        self.losses.book(session.as_ref(), loss);
        if let Some(connection) = session.and_then(|session| session.latest_connection()) {
            let mail = Mail::Lost {
                connection,
                key: loss.key.bytes().into(),
                fence: loss.fence,
                reason: match loss.why {
                    Lost::Expired => LostReason::EXPIRED,
                    Lost::SessionEnded => LostReason::SESSION_ENDED,
                    Lost::Forced => LostReason::FORCED,
                    Lost::Superseded => LostReason::SUPERSEDED,
                },
            };
            self.post(connection).send_droppable(mail);
        }
    }

    fn session_ended(&self, session: SessionId) {
        self.end_session(session);
    }

    fn wake(&self, shard: usize) {
        // As `Core::shards` has it.
        self.posts[shard % self.posts.len()].wheel_bell.notify_one();
    }

    fn ceiling_low(&self, shard: usize) {
        if let Some(alarm) = &self.alarm {
            alarm.ring(shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_rung(post: &Post) -> bool {
        let rung = pin!(post.wheel_bell.notified());
        rung.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn the_core_that_a_shard_lives_on_is_woken_and_no_other() {
        let posts: Arc<[Post]> = (0..3).map(|_| Post::new()).collect();
        let switchboard = Switchboard::new(posts, Losses::default(), None);
        for shard in 0..8 {
            switchboard.wake(shard);
            let rung: Vec<bool> = switchboard.posts.iter().map(is_rung).collect();
            let home: Vec<bool> = (0..3).map(|core| core == shard % 3).collect();
            assert_eq!(rung, home, "shard {shard}");
        }
    }
}
