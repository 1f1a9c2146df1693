//! What the engine tells the server: every message goes to the core that has the connection, through its mailbox.
//!
//! The engine calls these with a shard's mutex held, so they only look things up and post.

use crate::conn::id::ConnectionId;
use crate::observe::audit::Audit;
use crate::observe::metrics::Durations;
use crate::redis::Message;
use crate::session::registry::Registry;
use crate::storage::{Alarm, LongLeases};
use crossbeam_utils::CachePadded;
use engine::{GaveUp, Grant, Host, Loss, Lost, Mailbox, Mode, Posted, SessionId, SleepFlag, Tick};
use protocol::{Lease, LostReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// How many droppable messages (losses) a core's mailbox takes. A client that misses one finds out by itself: its lease
/// has a deadline, and its next renewal is refused.
const MAIL_MAX: u32 = 100_000;

/// A waiting acquire: whom to tell, and what for.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
    pub(crate) request_id: u64,
    /// It came again, after its connection broke.
    pub(crate) is_repeat: bool,
    pub(crate) key: Arc<[u8]>,
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    /// As it was given with the request; empty unless it is to be written down.
    pub(crate) note: Box<[u8]>,
    pub(crate) trace_id: Option<Arc<str>>,
    pub(crate) asked: Tick,
}

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
    /// On lines of its own: the rest here is read by every request and hardly ever written.
    pub(crate) losses: CachePadded<Losses>,
    /// `None`, unless the settings ask for an audit log.
    pub(crate) audit: Option<Arc<Audit>>,
    /// `None` without a log: then fences never run low.
    alarm: Option<Arc<Alarm>>,
    /// Leases that are written down one by one. `None` without a log.
    long: Option<Arc<LongLeases>>,
}

/// Locks lost, by reason. Counted here because no core asked for them.
#[derive(Default)]
pub(crate) struct Losses {
    pub(crate) expired: AtomicU64,
    pub(crate) session_ended: AtomicU64,
    pub(crate) forced: AtomicU64,
    pub(crate) superseded: AtomicU64,
    /// How long they had been held.
    pub(crate) held: Durations,
}

impl Switchboard {
    pub(crate) fn new(
        posts: Arc<[Post]>,
        audit: Option<Arc<Audit>>,
        alarm: Option<Arc<Alarm>>,
        long: Option<Arc<LongLeases>>,
    ) -> Self {
        Switchboard {
            posts,
            registry: Registry::new(),
            losses: CachePadded::default(),
            audit,
            alarm,
            long,
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
        let (counter, reason) = match loss.why {
            Lost::Expired => (&self.losses.expired, LostReason::EXPIRED),
            Lost::SessionEnded => (&self.losses.session_ended, LostReason::SESSION_ENDED),
            Lost::Forced => (&self.losses.forced, LostReason::FORCED),
            Lost::Superseded => (&self.losses.superseded, LostReason::SUPERSEDED),
        };
        // The ends of leases and sessions are in the log already. A core that takes a lock away
        // writes that down when the engine is done.
        if let Some(long) = &self.long {
            let (key, fence) = (loss.key.bytes(), loss.fence.get());
            match loss.why {
                Lost::Expired | Lost::SessionEnded => {
                    long.remove(key, fence);
                }
                Lost::Superseded | Lost::Forced => long.take_away(key, fence),
            }
        }
        counter.fetch_add(1, Ordering::Relaxed);
        self.losses.held.record_shared(loss.held_ms);
        let session = self.registry.find(loss.owner);
        if let Some(audit) = &self.audit {
            audit.lost(session.clone(), loss);
        }
        if let Some(session) = session {
            session.lost.fetch_add(1, Ordering::Relaxed);
            if let Some(connection) = session.latest_connection() {
                let mail = Mail::Lost {
                    connection,
                    key: loss.key.bytes().into(),
                    fence: loss.fence,
                    reason,
                };
                self.post(connection).send_droppable(mail);
            }
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
        let switchboard = Switchboard::new(posts, None, None, None);
        for shard in 0..8 {
            switchboard.wake(shard);
            let rung: Vec<bool> = switchboard.posts.iter().map(is_rung).collect();
            let home: Vec<bool> = (0..3).map(|core| core == shard % 3).collect();
            assert_eq!(rung, home, "shard {shard}");
        }
    }
}
