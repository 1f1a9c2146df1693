//! The opening of a connection: a hello in time, a token if one is needed, a session. Until then a
//! peer costs one small buffer.

use crate::conn::connection::Connection;
use crate::conn::places::{OPERATOR_NAME, Place, Stranger};
use crate::conn::socket::Socket;
use crate::core::Core;
use crate::core::cluster_view::ClusterView;
use crate::core::mail::Mail;
use crate::core::pauses::Pause;
use crate::native::stray::Stray;
use crate::native::voice::NativeVoice;
use crate::observe::notices::Notice;
use crate::serve::conversation;
use crate::serve::stopping;
use crate::session::Session;
use crate::session::actor::Actor;
use crate::session::outcomes::REMEMBERED_MAX;
use bytes::{Buf, BytesMut};
use protocol::{
    DecodeError, ErrorCode, Frame, Hello, Message, NodeAddress, NodeAddresses, Opening,
    PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Reply, Request, RequestId, ServerName, SessionKey,
    Welcome, limits,
};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

/// Why a client that speaks TLS is not let in where there is no certificate.
const SPEAKS_TLS: &str = "the client speaks TLS, and this port does not: give the server a certificate with --tls-cert-file, \
     or connect without TLS";

/// Why a peer was not let in.
struct Refusal {
    code: ErrorCode,
    message: String,
    /// Where the leader is, if this node does not lead; otherwise empty.
    leader: String,
    /// It speaks another protocol, and is answered in that.
    stray: Option<Stray>,
    /// The name of the token that it showed.
    token_name: Option<Arc<str>>,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Refusal {
            code,
            message: message.into(),
            leader: String::new(),
            stray: None,
            token_name: None,
        }
    }

    /// Of bytes that are no frame.
    fn no_frame(bytes: &[u8], error: DecodeError) -> Self {
        let stray = Stray::recognise(bytes);
        let message = stray.map_or_else(|| error.to_string(), |stray| stray.message().to_owned());
        Refusal {
            stray,
            ..Refusal::new(ErrorCode::MALFORMED, message)
        }
    }
}

/// A peer that was let in.
pub(super) struct Opened {
    pub(super) connection: Rc<Connection>,
    pub(super) voice: Rc<NativeVoice>,
    pub(super) place: Place,
}

/// Does the opening. `None`: the peer was told why not, or had to give way to newer ones, and is
/// gone. What came behind the hello stays in `unread`.
pub(super) async fn open(
    core: &Rc<Core>,
    stream: &mut Socket,
    address: SocketAddr,
    unread: &mut BytesMut,
    stranger: Stranger,
) -> Option<Opened> {
    tokio::select! {
        biased;
        opened = introduce(core, stream, address, unread, &stranger) => opened,
        () = stranger.gives_way() => None,
    }
}

/// Hears the hello and answers it. May be dropped half-way: nothing waits between the decision to
/// let a peer in and the end.
async fn introduce(
    core: &Rc<Core>,
    stream: &mut Socket,
    address: SocketAddr,
    unread: &mut BytesMut,
    stranger: &Stranger,
) -> Option<Opened> {
    let heard = tokio::select! {
        biased;
        () = core.shared.stop.cancelled() => Err(why_closed(core)),
        heard = hear(stream, unread) => heard,
        () = stranger.is_late() => {
            Err(Refusal::new(ErrorCode::TOO_SLOW, "no complete hello came in time"))
        }
    };
    let result = match heard {
        Ok(Some(frame_bytes)) => {
            let names = stream.certificate_names();
            let result = admit(core, &unread[..frame_bytes], address, &names).await;
            unread.advance(frame_bytes);
            result
        }
        // It went without a word.
        Ok(None) => return None,
        Err(refusal) => Err((RequestId::NONE, refusal)),
    };
    match result {
        Ok(opened) => Some(opened),
        Err((request_id, refusal)) => {
            core.metrics().hellos_refused.bump();
            let speaks_tls = tls::is_client_hello(unread);
            let notice = match refusal.code {
                ErrorCode::AT_CAPACITY => Notice::NoPlace,
                _ if speaks_tls => Notice::OnlyPlain,
                _ => Notice::HelloRefused,
            };
            let is_no_right = [ErrorCode::UNAUTHENTICATED, ErrorCode::FORBIDDEN];
            if is_no_right.contains(&refusal.code) {
                core.shared.rights.count_refused();
                if let Some(audit) = core.shared.audit() {
                    let (address, why) = (address.to_string(), refusal.message.clone());
                    let name = refusal.token_name.clone();
                    audit.refused_stranger(&address, name, "hello", why);
                }
            }
            core.shared.notices.say(notice, |unsaid| {
                let (code, message) = (refusal.code, &refusal.message);
                tracing::info!(%address, %code, unsaid, "hello refused: {message}");
            });
            let mut out = BytesMut::new();
            let reply = Reply::HelloRefused {
                code: refusal.code,
                version_min: PROTOCOL_VERSION_MIN,
                version_max: PROTOCOL_VERSION,
                message: Message::clipped(&refusal.message),
                leader: NodeAddress::clipped(&refusal.leader),
            };
            match refusal.stray {
                _ if speaks_tls => out.extend_from_slice(&tls::ALERT_REFUSED),
                Some(stray) => out.extend_from_slice(stray.answer().as_bytes()),
                None => reply.append(request_id, &mut out),
            }
            conversation::finish(stream, &out).await;
            None
        }
    }
}

/// Reads until one frame is there. Returns its size; `None` at the end of the stream.
async fn hear(stream: &mut Socket, unread: &mut BytesMut) -> Result<Option<usize>, Refusal> {
    unread.reserve(limits::HELLO_FRAME_BYTES_MAX as usize);
    loop {
        let mut rest = &unread[..];
        let before = rest.len();
        match Frame::split(&mut rest, limits::HELLO_FRAME_BYTES_MAX) {
            Ok(Some(_)) => return Ok(Some(before - rest.len())),
            Ok(None) => {}
            Err(_) if tls::is_client_hello(unread) => {
                return Err(Refusal::new(ErrorCode::MALFORMED, SPEAKS_TLS));
            }
            Err(error) => return Err(Refusal::no_frame(unread, error)),
        }
        // The buffer never grows: a hello fits, and a longer frame was refused by its length alone.
        let mut limited =
            (&mut *stream).take((limits::HELLO_FRAME_BYTES_MAX as usize - unread.len()) as u64);
        match limited.read_buf(unread).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

/// Decides about a hello, and puts the welcome into the new connection's out-buffer. `names` are
/// those of the client's certificate.
async fn admit(
    core: &Rc<Core>,
    frame: &[u8],
    address: SocketAddr,
    names: &[String],
) -> Result<Opened, (RequestId, Refusal)> {
    let mut rest = frame;
    let split = Frame::split(&mut rest, limits::HELLO_FRAME_BYTES_MAX);
    let frame = split.ok().flatten().expect("it was split a moment ago");
    let request_id = frame.request_id;
    let refuse = |refusal| (request_id, refusal);
    let hello = match Request::decode(&frame) {
        Ok(Request::Hello(hello)) => hello,
        Ok(_) => {
            let refusal = Refusal::new(
                ErrorCode::OUT_OF_TURN,
                "the first request on a connection is Hello",
            );
            return Err(refuse(refusal));
        }
        Err(error @ DecodeError::BadMagic { .. }) => {
            return Err(refuse(Refusal::new(
                ErrorCode::MALFORMED,
                format!("not a Fencepost client: {error}"),
            )));
        }
        Err(error) => {
            return Err(refuse(Refusal::new(
                ErrorCode::MALFORMED,
                error.to_string(),
            )));
        }
    };
    let version =
        protocol::choose_version(hello.version_min, hello.version_max).ok_or_else(|| {
            refuse(Refusal::new(
                ErrorCode::UNSUPPORTED_VERSION,
                format!("this server speaks versions {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"),
            ))
        })?;
    let rights = &core.shared.rights;
    // A certificate stands for a token that is not shown.
    let token = hello.token.as_bytes();
    let by_certificate = match token.is_empty() && !names.is_empty() {
        true => rights.of_certificate(names),
        false => None,
    };
    let Some(entitlement) = by_certificate.or_else(|| rights.of_token(token)) else {
        return Err(refuse(Refusal::new(
            ErrorCode::UNAUTHENTICATED,
            "this server needs a token, and not this one",
        )));
    };
    if let Some(cluster) = &core.shared.cluster
        && !cluster.leads
    {
        return Err(refuse(not_leader(cluster)));
    }
    let token_name = entitlement.session_name();
    if let Opening::Resume(key) | Opening::Join(key) = &hello.opening
        && is_of_another(core, key, &token_name)
    {
        let message = "this session was opened with a token of another name";
        return Err(refuse(Refusal {
            token_name: Some(entitlement.name().clone()),
            ..Refusal::new(ErrorCode::FORBIDDEN, message)
        }));
    }
    if let Opening::Resume(key) = &hello.opening
        && let Some(session) = find_session(core, key, &token_name)
    {
        supersede(core, &session).await;
    }
    // From here on nothing waits: either the shutdown finds this connection, or this finds the
    // shutdown.
    if core.shared.stop.is_cancelled() {
        return Err(refuse(why_closed(core)));
    }
    let is_operator =
        address.ip().to_canonical().is_loopback() && hello.client_name.as_str() == OPERATOR_NAME;
    let Some(place) = core.shared.places.take(is_operator) else {
        core.metrics().busy_connections.bump();
        let connections_max = core.shared.config.connections_max;
        let message = format!("there are {connections_max} connections already, the limit");
        return Err(refuse(Refusal::new(ErrorCode::AT_CAPACITY, message)));
    };
    let (session, is_resumed) = choose_session(core, &hello, &token_name).map_err(refuse)?;
    session.forget_before(request_id.get());
    let mut voice = None;
    let connection = core.insert(|id| {
        let outcomes = session.attach(id, address);
        let voice = voice.insert(Rc::new(NativeVoice::new(
            core.shared.clone(),
            session.clone(),
            outcomes,
        )));
        let actor = Actor {
            session: session.clone(),
            own_name: None,
            address: address.to_string().into(),
            token_name: None,
        };
        let (seat, entitled) = (core.seat(session.id), (&**rights, entitlement));
        Connection::new(id, actor, seat, voice.clone(), entitled)
    });
    let voice = voice.expect("made with its connection");
    let config = &core.shared.config;
    let cluster = core.shared.cluster.as_ref();
    let addresses = cluster.map(ClusterView::addresses).unwrap_or_default();
    let welcome = Welcome {
        version,
        is_resumed,
        session: SessionKey {
            session_id: protocol::SessionId::new(session.public_id),
            secret: (core.shared.keys).secret(session.public_id, &token_name),
        },
        session_ttl_ms: session.ttl_ms,
        frame_bytes_max: limits::REQUEST_FRAME_BYTES_MAX,
        in_flight_max: config.in_flight_max,
        remembered_max: REMEMBERED_MAX as u32,
        server_name: ServerName::clipped(&config.server_name),
        grace_ms: (core.shared.recovery.remaining_ms(core.shared.clock.now()))
            .map(|left_ms| u32::try_from(left_ms).unwrap_or(u32::MAX)),
        addresses: NodeAddresses::clipped(&addresses),
    };
    core.replies.answer(&connection, |out| {
        Reply::Welcome(welcome).append(request_id, out)
    });
    core.replies.end_turn();
    Ok(Opened {
        connection,
        voice,
        place,
    })
}

/// Why no client is let in any more. A node that begins or ceases to lead goes on: its clients are
/// told to look for the leader, not that the server stops.
fn why_closed(core: &Core) -> Refusal {
    match &core.shared.cluster {
        Some(cluster) if cluster.is_deposed() => not_leader(cluster),
        _ => shutting_down(),
    }
}

fn not_leader(cluster: &ClusterView) -> Refusal {
    Refusal {
        leader: cluster.leader_client(),
        ..Refusal::new(ErrorCode::NOT_LEADER, cluster.not_leader())
    }
}

fn shutting_down() -> Refusal {
    Refusal::new(ErrorCode::SHUTTING_DOWN, stopping::MESSAGE)
}

/// Whether this key opens a session, but not for clients with tokens of this name.
fn is_of_another(core: &Core, key: &SessionKey, token_name: &str) -> bool {
    let session_id = key.session_id.get();
    let session = core.shared.registry().find_public(session_id);
    let own = (session.as_ref()).and_then(|session| session.token_name());
    // Only a client that has its secret is told of it.
    own.is_some_and(|own| {
        **own != *token_name && core.shared.keys.secret(session_id, own) == key.secret
    })
}

/// The session of this key, if it lives and is one of clients with tokens of this name.
fn find_session(core: &Core, key: &SessionKey, token_name: &Arc<str>) -> Option<Arc<Session>> {
    let shared = &core.shared;
    let session_id = key.session_id.get();
    let session = shared.registry().find_public(session_id)?;
    // Secrets are compared in a time that does not depend on their bytes.
    let is_known = shared.keys.secret(session_id, token_name) == key.secret;
    (is_known
        && session.is_of(token_name)
        && !session.is_ending()
        && shared.engine.is_open(session.id, shared.clock.now()))
    .then_some(session)
}

/// Has the connections closed that a session still has when its client comes back to it: they are
/// dead as far as the client knows. Waits until each of their cores has seen to it. What they did
/// until then is remembered, and they do nothing any more, so that whatever the new connection
/// repeats takes effect once.
async fn supersede(core: &Core, session: &Session) {
    let (done, mut all_done) = mpsc::channel::<()>(1);
    for connection in session.connections() {
        let done = done.clone();
        let mail = Mail::Superseded { connection, done };
        core.shared.engine.host().post(connection).send(mail);
    }
    drop(done);
    // Nothing is ever sent: the channel closes when the last of the letters has been read.
    let closed = all_done.recv();
    let _ = tokio::time::timeout(core.shared.config.hello_timeout, closed).await;
}

fn choose_session(
    core: &Core,
    hello: &Hello<'_>,
    token_name: &Arc<str>,
) -> Result<(Arc<Session>, bool), Refusal> {
    let shared = &core.shared;
    let (key, must_live) = match &hello.opening {
        Opening::New => {
            return new_session(core, hello, token_name, None).map(|session| (session, false));
        }
        Opening::Resume(key) => (key, false),
        Opening::Join(key) => (key, true),
    };
    match find_session(core, key, token_name).filter(|session| keep_alive(core, session)) {
        Some(session) => {
            if !must_live {
                core.metrics().sessions_resumed.bump();
            }
            Ok((session, true))
        }
        // One that this server does not know because it was told nothing when it started: the
        // secret shows that it is the client's own, and from here on it lives again.
        None if shared.recovery.is_on()
            && shared
                .registry()
                .find_public(key.session_id.get())
                .is_none()
            && shared.keys.secret(key.session_id.get(), token_name) == key.secret =>
        {
            let public_id = key.session_id.get();
            new_session(core, hello, token_name, Some(public_id)).map(|session| (session, true))
        }
        None if must_live => Err(Refusal::new(
            ErrorCode::SESSION_UNKNOWN,
            "there is no such session to join",
        )),
        None => new_session(core, hello, token_name, None).map(|session| (session, false)),
    }
}

/// Keeps a session alive that a connection comes to. `false`: it has ended since it was found.
fn keep_alive(core: &Core, session: &Session) -> bool {
    core.shared.pause(Pause::BeforeKeepAlive);
    let (ttl_ms, now) = (u64::from(session.ttl_ms), core.shared.clock.now());
    let until = core.shared.engine.keep_alive(session.id, ttl_ms, now);
    if let Some(until) = until {
        core.books.session_kept(session, until);
    }
    until.is_some()
}

fn new_session(
    core: &Core,
    hello: &Hello<'_>,
    token_name: &Arc<str>,
    public_id: Option<u64>,
) -> Result<Arc<Session>, Refusal> {
    let shared = &core.shared;
    let ttl_ms = match hello.session_ttl_ms {
        0 => shared.config.session_ttl.as_millis() as u32,
        ttl_ms => ttl_ms.max(SESSION_TTL_MS_MIN),
    };
    if u64::from(ttl_ms) > shared.lease_max_ms {
        let message = format!(
            "a session of {ttl_ms} ms was asked for, at most {} are allowed here (lease_max)",
            shared.lease_max_ms
        );
        return Err(Refusal::new(ErrorCode::MALFORMED, message));
    }
    let (client_name, now) = (hello.client_name.as_str(), shared.clock.now());
    match shared.open_session(public_id, token_name, client_name, ttl_ms, now) {
        Some(session) => {
            core.books.session_opened(&session);
            Ok(session)
        }
        None => {
            core.metrics().busy_sessions.bump();
            let message = format!(
                "there are {} sessions already, the limit",
                shared.config.sessions_max
            );
            Err(Refusal::new(ErrorCode::AT_CAPACITY, message))
        }
    }
}

/// A session that lives shorter than this would be lost to any hiccup of the network.
const SESSION_TTL_MS_MIN: u32 = 100;
