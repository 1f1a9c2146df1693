//! The session that all connections of a client belong to, and how a connection is opened into it.
//!
//! The first connection opens the session; further ones join it. After a break, the first
//! connection to come back resumes it, the others join again. If the server no longer knows it, a
//! new one is opened and everything that was held is lost at once: the client fails closed.
//!
//! Resuming does more than joining: before its welcome, the server ends all connections that the
//! session still has. A connection that broke for us may still be open for the server. A request
//! that the server reads there after we have repeated it would take effect a second time. So a
//! connection with requests to repeat resumes, unless another has resumed since its predecessor
//! broke. The [`Era`] of a connection tells: which of the client's sessions it belongs to, and how
//! often that had been resumed.
//!
//! # A server that was restarted
//!
//! In its grace period a server believes what clients claim, because it does not know better. So
//! the client must know: a session whose life has passed by the client's own clock may have ended
//! on the server before the restart, and its locks may have been granted to others. Such a session
//! is not brought back: everything it held is lost, and the next connection opens a new one. (A
//! server without a grace period knows its sessions, and its word decides.)
//!
//! The connection that resumes the session claims its locks. A kill breaks all connections of a
//! client, but their tasks notice one after the other: the first to come back may find the others
//! still counted as open, and join. Then no connection would ever claim. So a connection that
//! joins and hears of a grace period resumes instead, unless another connection has resumed the
//! session since its own predecessor broke.
//!
//! # A leader that moved
//!
//! A session of a cluster is resumed at whichever node leads. The first connection to find the next
//! leader resumes it there even if others still seem to be open at the last one: those then end at
//! once and follow, with what they have to repeat, instead of waiting for a node that has nothing
//! more to tell. Nothing is lost by that: leases and the session go on by their own time.

pub(crate) mod dial;
pub(crate) mod grant;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod nodes;

use crate::clock::Moment;
use crate::error::{ConnectError, Loss};
use crate::limits::IN_FLIGHT_MIN;
use crate::metrics::Counters;
use crate::session::dial::{Dialer, Dialled, connect, timed_out, unreachable};
use crate::session::lease::SessionLife;
use crate::session::leases::Leases;
use crate::session::nodes::Nodes;
use crate::settings::Settings;
use crate::spans;
use crate::stream::Stream;
use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use protocol::{
    ClientName, ErrorCode, Frame, Hello, Opening, Reply, Request, RequestId, SessionKey, Token,
    Welcome, limits,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Where to look for the server.
    pub(crate) nodes: Nodes,
    /// What the client counts.
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
    /// Held from the decision how to open until the welcome, so that two connections cannot both
    /// open a session.
    opening: tokio::sync::Mutex<()>,
}

/// When a connection was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Era {
    /// Counts the client's sessions. Leases of an earlier one are lost.
    pub(crate) epoch: u64,
    /// Counts how often the session was resumed. Connections of an earlier round are over.
    round: u64,
}

#[derive(Debug, Default)]
struct State {
    era: Era,
    /// `None` before the first session, and after one ended until the next begins.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    key: SessionKey,
    /// The node of a cluster that the present connections lead to; `None` for a server of its own.
    leader: Option<Arc<str>>,
    life: Arc<SessionLife>,
    /// Connections of the present round that are open.
    connection_count: usize,
    /// The server restarted and has not heard any claims. Kept until the session is resumed, in
    /// case the attempt to do so fails.
    must_resume: bool,
}

/// The connection that a task lost, for the decision how to open the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub(crate) era: Era,
    /// It left requests unanswered, which the next one repeats.
    pub(crate) has_backlog: bool,
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Where it leads.
    pub(crate) address: Arc<str>,
    pub(crate) stream: Stream,
    /// What came behind the welcome.
    pub(crate) input: BytesMut,
    pub(crate) era: Era,
    pub(crate) life: Arc<SessionLife>,
    pub(crate) bounds: Bounds,
    /// The server restarted and does not know the holders: claim the locks, on this connection.
    pub(crate) must_claim: bool,
    /// The same, also where another connection claims them.
    pub(crate) is_in_grace: bool,
    /// The server is one node of several.
    pub(crate) is_cluster: bool,
}

/// How many requests may be unanswered on one connection. Waiting ones have a bound of their own: a
/// crowd of waiters must never keep a holder from releasing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests that wait at the server.
    pub(crate) waiting_max: usize,
    /// Requests that are not about locks already held.
    pub(crate) prompt_max: usize,
    /// Those and all that are about locks already held.
    pub(crate) answered_max: usize,
}

impl Bounds {
    fn new(welcome: &Welcome<'_>, connection_count: usize) -> Self {
        let in_flight_max = (welcome.in_flight_max as usize).max(IN_FLIGHT_MIN);
        // Requests that are unanswered when a connection breaks are repeated, and the server must
        // still remember their outcomes. A request that waits has none yet.
        let remembered_max =
            (welcome.remembered_max as usize / connection_count).max(IN_FLIGHT_MIN);
        let answered_max = (in_flight_max / 2).min(remembered_max);
        Self {
            waiting_max: in_flight_max / 2,
            prompt_max: answered_max * 3 / 4,
            answered_max,
        }
    }
}

impl Session {
    /// The id that the server knows the present session by.
    pub(crate) fn id(&self) -> Option<u64> {
        let state = self.state.lock();
        state
            .current
            .as_ref()
            .map(|current| current.key.session_id.get())
    }

    /// How long the present session outlives its last sign of life.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.current.as_ref().map(|current| current.life.ttl())
    }

    /// Whether connections of this era can still be used.
    pub(crate) fn is_current(&self, era: Era) -> bool {
        let state = self.state.lock();
        state.era == era && state.current.is_some()
    }

    /// A connection of this era is gone.
    pub(crate) fn disconnected(&self, era: Era) {
        let mut state = self.state.lock();
        if state.era == era
            && let Some(current) = &mut state.current
        {
            current.connection_count -= 1;
        }
    }

    /// The server says that session `epoch` is over. Everything it held is lost; the next
    /// connection opens a new one.
    pub(crate) fn end(&self, epoch: u64, leases: &Leases) {
        let mut state = self.state.lock();
        if state.era.epoch == epoch {
            state.current = None;
            leases.lose_all(epoch, Loss::SessionEnded, Moment::now());
        }
    }

    /// Opens a connection to the first address that welcomes us, in place of `broken`. Dropping it
    /// half-way closes what was opened; a session opened in that moment ends by itself.
    pub(crate) async fn open(
        &self,
        settings: &Settings,
        leases: &Leases,
        broken: Option<Broken>,
        next_id: impl Fn() -> RequestId,
    ) -> Result<Opened, ConnectError> {
        let addresses = self.nodes.in_order(&settings.addresses);
        let mut dialer = Dialer::new(
            addresses,
            settings.connect_timeout,
            settings.security.clone(),
        );
        while let Some(dialled) = dialer.next().await {
            let address = Arc::clone(&dialled.address);
            let terms = Terms {
                settings,
                broken,
                is_only_address: dialer.has_one(),
            };
            let error = match self.open_at(dialled, terms, leases, &next_id).await {
                Ok(opened) => {
                    self.counters.count_connection(broken.is_some());
                    spans::connected(&opened.address, broken.is_some());
                    return Ok(opened);
                }
                Err(error) => error,
            };
            if let ConnectError::NotLeader { leader, .. } = &error {
                self.nodes.note_not_leader(&address, leader.as_deref());
                if let Some(leader) = leader {
                    dialer.follow(leader);
                }
            }
            dialer.note_failure(error);
        }
        Err(dialer.into_error())
    }

    async fn open_at(
        &self,
        dialled: Dialled,
        terms: Terms<'_>,
        leases: &Leases,
        next_id: impl Fn() -> RequestId,
    ) -> Result<Opened, ConnectError> {
        let Dialled {
            address,
            mut stream,
            deadline,
        } = dialled;
        let connect_timeout = terms.settings.connect_timeout;
        // One that had to wait for the hellos to other nodes has its time from now on.
        let deadline = match terms.is_only_address {
            true => deadline,
            false => Instant::now() + connect_timeout,
        };
        let is_late = |_elapsed| timed_out(&address, connect_timeout);
        let one_at_a_time = timeout_at(deadline, self.opening.lock()).await;
        let _one_at_a_time = one_at_a_time.map_err(is_late)?;
        let mut opening = self.state.lock().next_opening(&address, terms.broken);
        let greeting = async {
            loop {
                let greeting = Greeting {
                    address: &address,
                    settings: terms.settings,
                    opening,
                    broken: terms.broken,
                };
                match self.greet(stream, &greeting, leases, next_id()).await? {
                    Greeted::Opened(opened) => return Ok(opened),
                    Greeted::MustResume(key) => {
                        opening = Opening::Resume(key);
                        stream = connect(&address, &terms.settings.security).await?;
                    }
                }
            }
        };
        if terms.is_only_address {
            return timeout_at(deadline, greeting).await.map_err(is_late)?;
        }
        // One hello at a time, also where there are several nodes to ask: two of the addresses may
        // lead to the same one, which would take the second for a client that lost the first.
        let overdue_after = self.nodes.overdue_after(&address, connect_timeout);
        match timeout(overdue_after, greeting).await {
            Ok(result) => result,
            Err(_elapsed) => {
                self.nodes.note_overdue(&address);
                Err(timed_out(&address, overdue_after))
            }
        }
    }

    /// Says hello on a new stream and hears the answer.
    async fn greet(
        &self,
        mut stream: Stream,
        greeting: &Greeting<'_>,
        leases: &Leases,
        id: RequestId,
    ) -> Result<Greeted, ConnectError> {
        let Greeting {
            address,
            settings,
            opening,
            ..
        } = *greeting;
        let unreachable = |error: io::Error| unreachable(address, &error);
        let hello = Hello {
            session_ttl_ms: settings.session_ttl_ms,
            token: Token::new(&settings.token)?,
            opening,
            ..Hello::new(ClientName::new(&settings.name)?)
        };
        let mut out = BytesMut::new();
        Request::Hello(hello).append(id, &mut out);
        let sent = Moment::now();
        stream.write_all(&out).await.map_err(unreachable)?;
        stream.flush().await.map_err(unreachable)?;

        let mut input = BytesMut::with_capacity(limits::HELLO_FRAME_BYTES_MAX as usize);
        let no_fencepost = |why| ConnectError::NotFencepost {
            address: address.to_string(),
            why,
        };
        loop {
            let mut unread = &input[..];
            let frame = Frame::split(&mut unread, limits::HELLO_FRAME_BYTES_MAX)
                .map_err(|error| no_fencepost(Some(error)))?;
            if let Some(frame) = frame {
                let frame_bytes = frame.frame_bytes();
                let reply = Reply::decode(&frame).map_err(|error| no_fencepost(Some(error)))?;
                let (code, message, leader) = match reply {
                    Reply::Welcome(welcome) => {
                        let moments = Moments {
                            sent,
                            now: Moment::now(),
                        };
                        return match self.welcomed(greeting, &welcome, moments, leases) {
                            Heard::Welcomed(welcomed) => {
                                self.nodes.note_welcome(address, welcome.addresses);
                                input.advance(frame_bytes);
                                let address = Arc::clone(address);
                                Ok(Greeted::Opened(
                                    welcomed.into_opened(address, stream, input),
                                ))
                            }
                            Heard::MustResume(key) => Ok(Greeted::MustResume(key)),
                            Heard::TooLate => Err(ConnectError::Refused {
                                address: address.to_string(),
                                code: ErrorCode::SESSION_ENDED,
                                message: TOO_LATE.to_owned(),
                            }),
                        };
                    }
                    Reply::HelloRefused {
                        code,
                        message,
                        leader,
                        ..
                    }
                    | Reply::Error {
                        code,
                        message,
                        leader,
                    } => (code, message.as_str(), leader.as_str()),
                    _ => return Err(no_fencepost(None)),
                };
                if code == ErrorCode::NOT_LEADER {
                    return Err(ConnectError::NotLeader {
                        address: address.to_string(),
                        leader: (!leader.is_empty()).then(|| leader.to_owned()),
                    });
                }
                if code == ErrorCode::SESSION_UNKNOWN {
                    self.end_of(opening, leases);
                }
                return Err(ConnectError::Refused {
                    address: address.to_string(),
                    code,
                    message: message.to_owned(),
                });
            }
            if stream.read_buf(&mut input).await.map_err(unreachable)? == 0 {
                return Err(unreachable(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Takes note of a welcome.
    fn welcomed(
        &self,
        greeting: &Greeting<'_>,
        welcome: &Welcome<'_>,
        Moments { sent, now }: Moments,
        leases: &Leases,
    ) -> Heard {
        let opening = greeting.opening;
        let mut state = self.state.lock();
        let has_lapsed = |current: &Current| current.life.deadline() <= now;
        if opening != Opening::New
            && welcome.grace_ms.is_some()
            && state.current.as_ref().is_some_and(has_lapsed)
        {
            state.current = None;
            leases.lose_all(state.era.epoch, Loss::DeadlinePassed, now);
            return Heard::TooLate;
        }
        if let Opening::Join(key) = opening
            && welcome.grace_ms.is_some()
            && greeting
                .broken
                .is_some_and(|broken| broken.era == state.era)
        {
            if let Some(current) = &mut state.current {
                current.must_resume = true;
            }
            return Heard::MustResume(key);
        }
        let ttl = Duration::from_millis(welcome.session_ttl_ms.into());
        let is_resume = matches!(opening, Opening::Resume(_));
        let is_same = match opening {
            Opening::New => false,
            Opening::Resume(key) | Opening::Join(key) => {
                welcome.is_resumed && welcome.session.session_id == key.session_id
            }
        };
        // It may have been declared over while the welcome was under way.
        if !is_same || state.current.is_none() {
            leases.lose_all(state.era.epoch, Loss::SessionEnded, now);
            state.era.epoch += 1;
            self.counters.count_session();
            let life = SessionLife::new(ttl, sent).counted_by(Arc::clone(&self.counters));
            state.current = Some(Current {
                key: welcome.session,
                leader: None,
                life: Arc::new(life),
                connection_count: 0,
                must_resume: false,
            });
        }
        if is_resume {
            state.era.round += 1;
        }
        let era = state.era;
        let current = state
            .current
            .as_mut()
            .expect("opened above if there was none");
        if is_resume {
            // The server has ended all others.
            current.connection_count = 0;
            current.must_resume = false;
        }
        current.key = welcome.session;
        let is_cluster = !welcome.addresses.as_str().is_empty();
        current.leader = is_cluster.then(|| Arc::clone(greeting.address));
        current.life.kept(sent, ttl);
        current.connection_count += 1;
        Heard::Welcomed(Welcomed {
            era,
            life: Arc::clone(&current.life),
            bounds: Bounds::new(welcome, greeting.settings.connection_count),
            must_claim: welcome.grace_ms.is_some() && is_resume,
            is_in_grace: welcome.grace_ms.is_some(),
            is_cluster,
        })
    }

    /// The session that was to be joined or resumed is unknown to the server.
    fn end_of(&self, opening: Opening, leases: &Leases) {
        let (Opening::Resume(key) | Opening::Join(key)) = opening else {
            return;
        };
        let mut state = self.state.lock();
        if state
            .current
            .as_ref()
            .is_some_and(|current| current.key.session_id == key.session_id)
        {
            state.current = None;
            leases.lose_all(state.era.epoch, Loss::SessionEnded, Moment::now());
        }
    }
}

impl State {
    fn next_opening(&self, address: &str, broken: Option<Broken>) -> Opening {
        let must_repeat = broken.is_some_and(|it| it.has_backlog && it.era == self.era);
        let Some(current) = &self.current else {
            return Opening::New;
        };
        let has_moved = matches!(&current.leader, Some(leader) if **leader != *address);
        match current.connection_count == 0 || current.must_resume || must_repeat || has_moved {
            true => Opening::Resume(current.key),
            false => Opening::Join(current.key),
        }
    }
}

/// What is said of a session that the client itself gives up.
const TOO_LATE: &str =
    "the server was restarted, and by the client's clock the session had ended by then";

/// What all attempts of one round have in common.
#[derive(Clone, Copy)]
struct Terms<'a> {
    settings: &'a Settings,
    broken: Option<Broken>,
    /// There is no other node to ask.
    is_only_address: bool,
}

/// A hello, and why it says what it says.
#[derive(Clone, Copy)]
struct Greeting<'a> {
    address: &'a Arc<str>,
    settings: &'a Settings,
    opening: Opening,
    broken: Option<Broken>,
}

/// What came of a greeting.
enum Greeted {
    Opened(Opened),
    /// The session was joined and must be resumed: say hello again, on another stream.
    MustResume(SessionKey),
}

/// What a welcome means.
enum Heard {
    Welcomed(Welcomed),
    /// As [`Greeted::MustResume`].
    MustResume(SessionKey),
    /// The session is over by our own clock, and the server cannot know.
    TooLate,
}

/// When a hello was sent, and when its answer was read.
#[derive(Clone, Copy)]
struct Moments {
    sent: Moment,
    now: Moment,
}

struct Welcomed {
    era: Era,
    life: Arc<SessionLife>,
    bounds: Bounds,
    must_claim: bool,
    is_in_grace: bool,
    is_cluster: bool,
}

impl Welcomed {
    fn into_opened(self, address: Arc<str>, stream: Stream, input: BytesMut) -> Opened {
        Opened {
            address,
            stream,
            input,
            era: self.era,
            life: self.life,
            bounds: self.bounds,
            must_claim: self.must_claim,
            is_in_grace: self.is_in_grace,
            is_cluster: self.is_cluster,
        }
    }
}

#[cfg(test)]
mod tests;
