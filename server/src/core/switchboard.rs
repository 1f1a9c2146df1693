//! What the engine tells the server: every message goes to the core that has the connection,
//! through its mailbox.
//!
//! The engine calls these with a shard's mutex held, so they only look things up and post.

use super::losses::Losses;
use super::mail::{Mail, Post};
use crate::session::ConnectionId;
use crate::session::registry::Registry;
use crate::session::waiter::Waiter;
use crate::storage::Alarm;
use engine::{GaveUp, Grant, Host, Loss, Lost, SessionId};
use protocol::LostReason;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

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

    /// Has every core vacate its seat of a session that has ended. Does so once, however often it
    /// is said.
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

    fn waiter_bytes(&self, waiter: &Waiter) -> u64 {
        waiter.kept_bytes() as u64
    }

    fn granted(&self, waiter: Waiter, grant: Grant) {
        // Whether the connection is still there only its core knows; if not, it gives the lock
        // back.
        self.post(waiter.connection).send(Mail::Granted {
            waiter,
            grant,
            since: Instant::now(),
        });
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
