//! What a native client is told unasked, in the words of `docs/protocol.md`.

use super::reply;
use crate::conn::dialect::{News, Voice};
use crate::core::cluster_view::ClusterView;
use crate::core::shared::Shared;
use crate::session::Session;
use crate::session::outcomes::{Outcomes, Remembered};
use crate::session::waiter::Waiter;
use bytes::BytesMut;
use engine::{GaveUp, Grant, Key};
use parking_lot::Mutex;
use protocol::{ErrorCode, Message, NodeAddress, Push, Reply, RequestId, UnavailableReason};
use std::cell::Cell;
use std::sync::Arc;

pub(crate) struct NativeVoice {
    shared: Arc<Shared>,
    session: Arc<Session>,
    /// Locked while a batch is decided and while a grant is delivered: see `Session::recall`.
    pub(super) outcomes: Arc<Mutex<Outcomes>>,
    said_goodbye: Cell<bool>,
}

impl NativeVoice {
    pub(super) fn new(
        shared: Arc<Shared>,
        session: Arc<Session>,
        outcomes: Arc<Mutex<Outcomes>>,
    ) -> Self {
        NativeVoice {
            shared,
            session,
            outcomes,
            said_goodbye: Cell::new(false),
        }
    }

    /// The client ended its session, and need not be told that it has ended. Its connections close
    /// once every core has heard of it.
    pub(super) fn hear_goodbye(&self) {
        self.said_goodbye.set(true);
    }

    fn say_gave_up(&self, waiter: &Waiter, why: GaveUp, out: &mut BytesMut) {
        let request_id = RequestId::new(waiter.request_id);
        match why {
            GaveUp::TimedOut => {
                let shared = &self.shared;
                let now = shared.clock.now();
                let key = Key::new(&waiter.key).expect("it was a key when it was asked for");
                let state = shared.engine.query(key, now);
                let (state, you) = (state.as_ref(), self.session.id);
                reply::with_contention(shared, state, you, now, |contention| {
                    Reply::TimedOut(contention).append(request_id, out);
                });
            }
            GaveUp::SessionEnded => {
                let message = "the session has ended";
                reply::error(ErrorCode::SESSION_ENDED, message).append(request_id, out);
            }
        }
    }
}

impl NativeVoice {
    /// Where the leader of this node's cluster is. Empty: that is not known, or there is none.
    fn leader(&self) -> String {
        let cluster = self.shared.cluster.as_ref();
        cluster.map(ClusterView::leader_client).unwrap_or_default()
    }
}

impl Voice for NativeVoice {
    fn say(&self, news: &News<'_>, out: &mut BytesMut) {
        match *news {
            News::Granted {
                request_id,
                grant,
                now,
            } => reply::granted(grant, now).append(RequestId::new(request_id), out),
            News::GaveUp { waiter, why } => self.say_gave_up(waiter, why, out),
            News::WaitsElsewhere { request_id } => {
                Reply::Cancelled.append(RequestId::new(request_id), out);
            }
            News::WaitStopped { request_id } => {
                let reply = Reply::Unavailable {
                    reason: UnavailableReason::SHUTTING_DOWN,
                    retry_after_ms: 0,
                };
                reply.append(RequestId::new(request_id), out);
            }
            News::Lost { key, fence, reason } => {
                let key = Key::new(key).expect("it was a key when it was granted");
                Push::Lost { key, fence, reason }.append(out);
            }
            News::Stopping { grace_ms } => {
                let leader = self.leader();
                let leader = NodeAddress::clipped(&leader);
                Push::Shutdown { grace_ms, leader }.append(out);
            }
            News::Closing { code, message } => {
                // A client that said goodbye knows why.
                if !self.said_goodbye.get() {
                    let leader = match code {
                        ErrorCode::NOT_LEADER => self.leader(),
                        _ => String::new(),
                    };
                    let reply = Reply::Error {
                        code,
                        message: Message::clipped(message),
                        leader: NodeAddress::clipped(&leader),
                    };
                    reply.append(RequestId::NONE, out);
                }
            }
            // Only the Redis port has signal lists and channels.
            News::ListReady | News::Published(_) => {}
        }
    }

    fn accepts(&self, waiter: &Waiter, grant: &Grant) -> bool {
        let mut outcomes = self.outcomes.lock();
        if !waiter.is_repeat && self.session.was_repeated(waiter.request_id) {
            return false;
        }
        outcomes.extend([(waiter.request_id, Remembered::Granted(*grant))]);
        true
    }

    fn is_blocked_by_waits(&self) -> bool {
        false
    }

    fn announces_stop(&self) -> bool {
        true
    }
}
