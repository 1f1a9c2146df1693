//! What the audit log tells of: events as the cores leave them.

use crate::observe::history::files::Tail;
use crate::session::Session;
use crate::session::actor::Actor;
use crate::session::operator::Operator;
use crate::session::redis_form;
use crate::session::waiter::Terms;
use engine::{Grant, Lost, Mode, Span, Tick};
use serde::Serialize;
use std::sync::Arc;

/// How many of the locks that a start or a reign puts back have a line of their own. Beyond it
/// they are only counted: a line for each of ten million locks would hold up the start.
const RESTORED_LINES_MAX: usize = 100_000;

/// Something that happened.
pub(crate) struct Event {
    pub(super) at: Tick,
    pub(super) about: About,
}

pub(super) enum About {
    Lock(LockEvent),
    Server(ServerEvent),
    Refusal(Box<Refused>),
}

/// What a client asked for without the right to it.
pub(super) struct Refused {
    pub(super) who: Who,
    /// `None`: it named no key.
    pub(super) key: Option<Box<[u8]>>,
    /// The request or the command.
    pub(super) what: &'static str,
    /// What it lacks.
    pub(super) why: String,
}

/// What happened to a lock.
pub(super) struct LockEvent {
    pub(super) key: Arc<[u8]>,
    pub(super) fence: u64,
    /// The client that holds or held the lock. For `Force`, the client that took it away.
    pub(super) who: Who,
    pub(super) what: What,
}

pub(super) enum Who {
    /// It did so on this connection.
    Client(Arc<Actor>),
    /// It acted over HTTP, without a session.
    Operator(Arc<Operator>),
    /// It did nothing itself.
    Session(Arc<Session>),
    /// A session that was not put back.
    Gone { session_id: u64 },
    /// Its session has ended.
    Unknown,
    /// It has no session: it asked over HTTP, or was not let in.
    Stranger {
        /// Empty if it is not known.
        address: Box<str>,
        token_name: Option<Arc<str>>,
    },
}

pub(super) enum What {
    Grant(Begun),
    /// A holder from before the start said what it had held.
    Claim(Begun),
    /// It was held at the last stop and is held again.
    Restore {
        mode: Mode,
        /// Since its grant; at the server's own, and of a claimed lock since its claim.
        held_ms: u64,
        /// `None`: as long as its session.
        ttl_ms: Option<u32>,
        owner_token: Option<Box<[u8]>>,
    },
    /// It was held at the last stop, and its lease ran out while no server ran.
    Lapse,
    Release {
        held_ms: u64,
        /// The counts of a reentrant hold that are left; zero ends it.
        hold_count: u32,
        /// The server released it, because the client had gone when its grant came.
        is_returned: bool,
    },
    Loss {
        why: Lost,
        held_ms: u64,
        late_ms: u64,
    },
    /// An operator took the lock away; the loss has a line of its own.
    Force {
        /// The operator's.
        trace_id: Option<Arc<str>>,
    },
}

/// A hold that begins.
pub(super) struct Begun {
    pub(super) mode: Mode,
    /// `None`: as long as its session.
    pub(super) ttl_ms: Option<u32>,
    pub(super) wait_ms: u64,
    pub(super) hold_count: u32,
    pub(super) trace_id: Option<Arc<str>>,
    /// What a client of Redis set.
    pub(super) owner_token: Option<Box<[u8]>>,
}

impl Begun {
    pub(super) fn new(session: &Session, terms: &Terms<'_>, grant: &Grant, wait_ms: u64) -> Self {
        Begun {
            owner_token: owner_token(session.public_id, terms.note),
            ..Begun::without_session(terms, grant, wait_ms)
        }
    }

    /// The same where the session has ended.
    pub(super) fn without_session(terms: &Terms<'_>, grant: &Grant, wait_ms: u64) -> Self {
        Begun {
            mode: terms.mode,
            ttl_ms: ttl_ms(terms.span),
            wait_ms,
            hold_count: grant.count,
            trace_id: (!terms.trace_id.is_empty()).then(|| terms.trace_id.into()),
            owner_token: None,
        }
    }
}

/// What the server tells of itself.
pub(super) enum ServerEvent {
    GraceOver {
        claimed: u64,
    },
    Lead {
        term: u64,
        counts: RestoredCounts,
    },
    Follow,
    /// An operator changed the cluster over HTTP.
    Changed {
        by: Arc<Operator>,
        change: String,
    },
}

/// How the server before this one stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LastStop {
    /// In good order.
    Clean,
    /// Without notice.
    Crash,
    /// There was none.
    None,
}

/// What the first line of a server says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Start {
    /// What the data directory says of the last stop. `None`: nothing; the audit log itself may.
    pub(crate) last_stop: Option<LastStop>,
    /// How long holders from before may claim what they held.
    pub(crate) grace_ms: u64,
    /// Its number in a cluster; zero for a server by itself.
    pub(crate) node_id: u64,
}

/// What the first line of a server is made of.
#[derive(Clone, Copy, Default)]
pub(super) struct FirstLine {
    pub(super) start: Start,
    pub(super) counts: RestoredCounts,
    /// How the file ended.
    pub(super) tail: Tail,
}

impl FirstLine {
    /// How the last server stopped: what the data directory says, or else the audit log itself.
    pub(super) fn last_stop(&self) -> LastStop {
        self.start.last_stop.unwrap_or(match self.tail {
            Tail { seq: 0, .. } => LastStop::None,
            Tail { is_stop: true, .. } => LastStop::Clean,
            _ => LastStop::Crash,
        })
    }
}

/// The locks that a start or a reign put back.
#[derive(Default)]
pub(crate) struct Restoration {
    pub(super) events: Vec<Event>,
    pub(super) counts: RestoredCounts,
}

#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct RestoredCounts {
    /// Locks that are held again.
    pub(super) restored: u64,
    /// Leases that ran out while no server ran.
    pub(super) lapsed: u64,
    /// Locks of either kind that have no line of their own.
    pub(super) untold: u64,
}

impl Restoration {
    /// A lock is held again.
    pub(crate) fn restored(&mut self, at: Tick, session: &Arc<Session>, old: &engine::OldHold<'_>) {
        self.counts.restored += 1;
        self.tell(|| {
            let what = What::Restore {
                mode: old.mode,
                held_ms: old.held_ms,
                ttl_ms: ttl_ms(old.span),
                owner_token: owner_token(session.public_id, old.metadata),
            };
            let (fence, who) = (old.fence.get(), Who::Session(session.clone()));
            let key = old.key.bytes().into();
            let lock = LockEvent {
                key,
                fence,
                who,
                what,
            };
            let about = About::Lock(lock);
            Event { at, about }
        });
    }

    /// A lease ran out while no server ran, or its session did.
    pub(crate) fn lapsed(&mut self, at: Tick, session_id: u64, key: &[u8], fence: u64) {
        self.counts.lapsed += 1;
        self.tell(|| {
            let lock = LockEvent {
                key: key.into(),
                fence,
                who: Who::Gone { session_id },
                what: What::Lapse,
            };
            let about = About::Lock(lock);
            Event { at, about }
        });
    }

    fn tell(&mut self, event: impl FnOnce() -> Event) {
        match self.events.len() < RESTORED_LINES_MAX {
            true => self.events.push(event()),
            false => self.counts.untold += 1,
        }
    }

    /// Adds what another core put back.
    pub(crate) fn add(&mut self, other: Restoration) {
        self.counts.restored += other.counts.restored;
        self.counts.lapsed += other.counts.lapsed;
        self.counts.untold += other.counts.untold;
        let room = RESTORED_LINES_MAX - self.events.len();
        let over = other.events.len().saturating_sub(room);
        self.counts.untold += over as u64;
        self.events.extend(other.events.into_iter().take(room));
    }
}

/// The owner token of a lock, if a client of Redis has it.
fn owner_token(session_id: u64, metadata: &[u8]) -> Option<Box<[u8]>> {
    // The metadata of such a lock is never empty; a request that counts it once more has none.
    (session_id == redis_form::SESSION_ID && !metadata.is_empty())
        .then(|| redis_form::Value::decode(metadata).owner().into())
}

/// `None`: no end of its own.
fn ttl_ms(span: Span) -> Option<u32> {
    match span {
        Span::Ms(ms) => Some(u32::try_from(ms).unwrap_or(u32::MAX)),
        Span::Session | Span::Forever => None,
    }
}
