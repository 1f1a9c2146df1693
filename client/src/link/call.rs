//! One request on its way: what is asked, where the answer goes, and when it was sent.

use crate::clock::Moment;
use crate::error::{Error, Loss};
use crate::info::{Contention, KeyState, LockInfo, PageOf, SessionInfo, Stat};
use crate::session::grant::{EndedHold, Grant};
use crate::session::lease::Lease;
use bytes::BytesMut;
use protocol::{
    Acquire, Claim, Cursor, Fence, Key, Metadata, Mode, NotHeldReason, Prefix, Request, RequestId,
    SessionId, TraceId, limits::WAIT_MS_MAX,
};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// What is asked, owned, so that it can be sent again. Every length was checked when it was made.
#[derive(Debug)]
pub(crate) enum Ask {
    Ping,
    KeepAlive,
    Goodbye,
    Acquire(Wish),
    Renew {
        key: Arc<[u8]>,
        fence: Fence,
        lease: protocol::Lease,
    },
    Release {
        key: Arc<[u8]>,
        fence: Fence,
        /// No other guard of this client has a hold under the same fence.
        is_last: bool,
    },
    Downgrade {
        key: Arc<[u8]>,
        fence: Fence,
    },
    Cancel {
        acquire_id: RequestId,
    },
    Claim {
        lease: Arc<Lease>,
        wanted: protocol::Lease,
        hold_count: u32,
    },
    Query {
        key: Arc<[u8]>,
    },
    List {
        prefix: Vec<u8>,
        cursor: Vec<u8>,
        limit: u16,
    },
    Sessions {
        cursor: Vec<u8>,
        limit: u16,
    },
    Stats,
    ForceRelease {
        key: Arc<[u8]>,
        fence: Fence,
        trace_id: Option<Arc<str>>,
    },
    EndSession {
        session_id: u64,
    },
}

/// A wish for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) key: Arc<[u8]>,
    pub(crate) mode: Mode,
    pub(crate) lease: protocol::Lease,
    /// Until when to stand in line; `None` wants an answer at once. A moment, not a length of time:
    /// a request that is sent late, or again, waits only for the rest.
    pub(crate) wait_until: Option<Moment>,
    /// Since when the caller has stood in line under earlier ids, if it has.
    pub(crate) waits_since: Option<Moment>,
    pub(crate) is_reentrant: bool,
    /// The lock is to belong to no session.
    pub(crate) is_detached: bool,
    pub(crate) is_auto_renewed: bool,
    pub(crate) metadata: Arc<[u8]>,
    pub(crate) trace_id: Option<Arc<str>>,
}

const CHECKED: &str = "its length was checked when it was taken from the caller";

impl Ask {
    pub(crate) fn release(hold: EndedHold) -> Self {
        Self::Release {
            key: hold.key,
            fence: hold.fence,
            is_last: hold.is_last,
        }
    }

    /// As the wire has it, if it is sent now, after it has stood in line for `waited_ms`.
    pub(crate) fn as_request(&self, now: Moment, waited_ms: u32) -> Request<'_> {
        fn key_of(key: &[u8]) -> Key<'_> {
            Key::new(key).expect(CHECKED)
        }
        fn trace_of(trace_id: &Option<Arc<str>>) -> TraceId<'_> {
            let named = trace_id.as_deref().unwrap_or_default();
            TraceId::new(named).expect(CHECKED)
        }
        match self {
            Self::Ping => Request::Ping,
            Self::KeepAlive => Request::KeepAlive,
            Self::Goodbye => Request::Goodbye,
            Self::Acquire(wish) => Request::Acquire(Acquire {
                key: key_of(&wish.key),
                mode: wish.mode,
                lease: wish.lease,
                wait_ms: wish.wait_ms(now),
                is_reentrant: wish.is_reentrant,
                is_detached: wish.is_detached,
                metadata: Metadata::new(&wish.metadata).expect(CHECKED),
                trace_id: trace_of(&wish.trace_id),
                waited_ms,
            }),
            Self::Renew { key, fence, lease } => Request::Renew {
                key: key_of(key),
                fence: *fence,
                lease: *lease,
            },
            Self::Release { key, fence, .. } => Request::Release {
                key: key_of(key),
                fence: *fence,
            },
            Self::Downgrade { key, fence } => Request::Downgrade {
                key: key_of(key),
                fence: *fence,
            },
            Self::Cancel { acquire_id } => Request::Cancel {
                acquire_id: *acquire_id,
            },
            Self::Claim {
                lease,
                wanted,
                hold_count,
            } => Request::Claim(Claim {
                key: key_of(&lease.key),
                fence: lease.fence(),
                mode: lease.mode(),
                lease: *wanted,
                hold_count: *hold_count,
                metadata: Metadata::new(&lease.metadata).expect(CHECKED),
                trace_id: trace_of(&lease.trace_id),
            }),
            Self::Query { key } => Request::Query { key: key_of(key) },
            Self::List {
                prefix,
                cursor,
                limit,
            } => Request::List {
                prefix: Prefix::new(prefix).expect(CHECKED),
                cursor: Cursor::new(cursor).expect(CHECKED),
                limit: *limit,
            },
            Self::Sessions { cursor, limit } => Request::Sessions {
                cursor: Cursor::new(cursor).expect(CHECKED),
                limit: *limit,
            },
            Self::Stats => Request::Stats,
            Self::ForceRelease {
                key,
                fence,
                trace_id,
            } => Request::ForceRelease {
                key: key_of(key),
                fence: *fence,
                trace_id: trace_of(trace_id),
            },
            Self::EndSession { session_id } => Request::EndSession {
                session_id: SessionId::new(*session_id),
            },
        }
    }

    /// For error messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ping => "a ping",
            Self::KeepAlive => "a keep-alive",
            Self::Goodbye => "a goodbye",
            Self::Acquire(_) => "an acquire",
            Self::Renew { .. } => "a renewal",
            Self::Release { .. } => "a release",
            Self::Downgrade { .. } => "a downgrade",
            Self::Cancel { .. } => "a cancellation",
            Self::Claim { .. } => "a claim",
            Self::Query { .. } => "a query",
            Self::List { .. } => "a list",
            Self::Sessions { .. } => "a list of sessions",
            Self::Stats => "a request for statistics",
            Self::ForceRelease { .. } => "a forced release",
            Self::EndSession { .. } => "the end of a session",
        }
    }

    fn class(&self) -> Class {
        match self {
            Self::Acquire(wish) if wish.wait_until.is_some() => Class::Waiting,
            Self::Acquire(_)
            | Self::Ping
            | Self::Query { .. }
            | Self::List { .. }
            | Self::Sessions { .. }
            | Self::Stats
            | Self::ForceRelease { .. }
            | Self::EndSession { .. } => Class::Prompt,
            Self::KeepAlive
            | Self::Goodbye
            | Self::Renew { .. }
            | Self::Release { .. }
            | Self::Downgrade { .. }
            | Self::Cancel { .. }
            | Self::Claim { .. } => Class::Urgent,
        }
    }
}

impl Wish {
    /// For how long it has stood in line, if it was first sent then: nothing if it does not wait.
    fn waited_ms(&self, sent: Option<Moment>, now: Moment) -> u32 {
        let since = self.waits_since.or(sent);
        let waited = match (self.wait_until, since) {
            (Some(_), Some(since)) => now.since(since).as_millis(),
            _ => 0,
        };
        u32::try_from(waited).map_or(WAIT_MS_MAX, |waited_ms| waited_ms.min(WAIT_MS_MAX))
    }

    fn wait_ms(&self, now: Moment) -> u32 {
        let left = self
            .wait_until
            .map_or_else(Default::default, |until| until.since(now));
        // A part of a millisecond is still a wish to wait.
        let wait_ms = left.as_millis() + u128::from(!left.subsec_nanos().is_multiple_of(1_000_000));
        u32::try_from(wait_ms).expect("checked against WAIT_MS_MAX when it was asked for")
    }
}

/// In which queue a request stands, and against which bound of unanswered requests it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// About locks that exist. Never waits for a place: there are only so many locks.
    Urgent,
    /// Answered at once.
    Prompt,
    /// Answered when its turn has come.
    Waiting,
}

/// Where the answer goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A caller, unless it has gone away.
    Caller(oneshot::Sender<Result<Answer, Error>>),
    /// The caller of an acquire, once the renewal that confirms its grant is through.
    Confirm(Grant, oneshot::Sender<Result<Answer, Error>>),
    /// To no caller: all that has to be done is done when the answer is read.
    Nowhere,
}

/// What a caller is told. Owned: the buffer it came in is long gone.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    /// Another session has it, now or still.
    Contended(Contention),
    /// The lock that was asked about, or just granted, is gone.
    Lost(Loss),
    Cancelled,
    /// Done, and there is nothing to say about it: pong, bye, renewed, downgraded.
    Done,
    Released,
    NotHeld(NotHeldReason),
    Key(KeyState),
    Locks(PageOf<LockInfo>),
    Sessions(PageOf<SessionInfo>),
    Stats(Vec<Stat>),
}

/// One request and its way through the client.
#[derive(Debug)]
pub(crate) struct Call {
    /// Unique over all sessions of this client.
    pub(crate) id: RequestId,
    pub(crate) ask: Ask,
    pub(crate) class: Class,
    pub(crate) sink: Sink,
    /// The lease that the answer changes.
    pub(crate) lease: Option<Arc<Lease>>,
    /// Its place in the queue; given back when it is sent.
    pub(crate) place: Option<OwnedSemaphorePermit>,
    /// `None` until it is sent.
    pub(crate) sent: Option<Sent>,
}

/// When a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The first time under this id: what it did may have been done then.
    pub(crate) first: Moment,
    /// On the present connection.
    pub(crate) last: Moment,
    /// In which session.
    pub(crate) epoch: u64,
}

impl Call {
    pub(crate) fn new(id: RequestId, ask: Ask, sink: Sink) -> Self {
        Self {
            id,
            class: ask.class(),
            ask,
            sink,
            lease: None,
            place: None,
            sent: None,
        }
    }

    /// A renewal of `lease`.
    pub(crate) fn renew(id: RequestId, lease: &Arc<Lease>, sink: Sink) -> Self {
        let ask = Ask::Renew {
            key: Arc::clone(&lease.key),
            fence: lease.fence(),
            lease: lease.wanted(),
        };
        Self::new(id, ask, sink).about(lease)
    }

    pub(crate) fn about(mut self, lease: &Arc<Lease>) -> Self {
        self.lease = Some(Arc::clone(lease));
        self
    }

    /// Whether it need not be sent any more, because its caller has stopped waiting for the answer.
    /// A release or a goodbye is sent in any case.
    pub(crate) fn is_abandoned(&self) -> bool {
        match (&self.ask, &self.sink) {
            (Ask::Release { .. } | Ask::Goodbye, _) | (_, Sink::Nowhere) => false,
            (_, Sink::Caller(caller) | Sink::Confirm(_, caller)) => caller.is_closed(),
        }
    }

    /// Appends it to `out`, marked as repeated if it has been sent in this session before. The
    /// leader of a cluster is told how long it has waited at others.
    pub(crate) fn send(&mut self, epoch: u64, is_cluster: bool, now: Moment, out: &mut BytesMut) {
        self.place = None;
        let waited_ms = match &self.ask {
            Ask::Acquire(wish) if is_cluster => {
                wish.waited_ms(self.sent.map(|sent| sent.first), now)
            }
            _ => 0,
        };
        let request = self.ask.as_request(now, waited_ms);
        match &mut self.sent {
            Some(sent) if sent.epoch == epoch => {
                request.append_repeat(self.id, out);
                sent.last = now;
            }
            sent => {
                request.append(self.id, out);
                *sent = Some(Sent {
                    first: now,
                    last: now,
                    epoch,
                });
            }
        }
    }

    /// Ends it without an answer from the server.
    pub(crate) fn fail(self, error: Error) {
        if let Some(lease) = &self.lease
            && matches!(self.sink, Sink::Nowhere)
        {
            lease.stop_renewing();
        }
        self.sink.send(Err(error));
    }
}

impl Sink {
    /// Hands the answer over. A grant without a caller is dropped on the way, which releases it.
    pub(crate) fn send(self, answer: Result<Answer, Error>) {
        match self {
            Self::Caller(caller) | Self::Confirm(_, caller) => drop(caller.send(answer)),
            Self::Nowhere => drop(answer),
        }
    }
}

#[cfg(test)]
mod tests;
