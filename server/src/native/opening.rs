//! The opening of a connection: a hello in time, a token if one is needed, a session. Until then a
//! peer costs one small buffer.

use crate::conn::connection::Connection;
use crate::conn::conversation;
use crate::conn::places::{OPERATOR_NAME, Place, Stranger};
use crate::conn::stopping;
use crate::core::Core;
use crate::core::mail::Mail;
use crate::native::voice::NativeVoice;
use crate::observe::notices::Notice;
use crate::session::Session;
use crate::session::outcomes::REMEMBERED_MAX;
use bytes::{Buf, BytesMut};
use protocol::{
    DecodeError, ErrorCode, Frame, Hello, Message, Opening, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN,
    Reply, Request, RequestId, ServerName, SessionKey, SessionSecret, Welcome, limits,
};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Why a peer was not let in.
struct Refusal {
    code: ErrorCode,
    message: String,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Refusal {
            code,
            message: message.into(),
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
    stream: &mut TcpStream,
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
    stream: &mut TcpStream,
    address: SocketAddr,
    unread: &mut BytesMut,
    stranger: &Stranger,
) -> Option<Opened> {
    let heard = tokio::select! {
        biased;
        () = core.shared.stop.cancelled() => Err(shutting_down()),
        heard = hear(stream, unread) => heard,
        () = stranger.is_late() => {
            Err(Refusal::new(ErrorCode::TOO_SLOW, "no complete hello came in time"))
        }
    };
    let result = match heard {
        Ok(Some(frame_bytes)) => {
            let result = admit(core, &unread[..frame_bytes], address).await;
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
            let notice = match refusal.code {
                ErrorCode::AT_CAPACITY => Notice::NoPlace,
                _ => Notice::HelloRefused,
            };
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
            };
            reply.append(request_id, &mut out);
            conversation::finish(stream, &out).await;
            None
        }
    }
}

/// Reads until one frame is there. Returns its size; `None` at the end of the stream.
async fn hear(stream: &mut TcpStream, unread: &mut BytesMut) -> Result<Option<usize>, Refusal> {
    unread.reserve(limits::HELLO_FRAME_BYTES_MAX as usize);
    loop {
        let mut rest = &unread[..];
        let before = rest.len();
        match Frame::split(&mut rest, limits::HELLO_FRAME_BYTES_MAX) {
            Ok(Some(_)) => return Ok(Some(before - rest.len())),
            Ok(None) => {}
            Err(error) => return Err(Refusal::new(ErrorCode::MALFORMED, error.to_string())),
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

/// Decides about a hello, and puts the welcome into the new connection's out-buffer.
async fn admit(
    core: &Rc<Core>,
    frame: &[u8],
    address: SocketAddr,
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
    if !core.shared.tokens.accepts(hello.token.as_bytes()) {
        return Err(refuse(Refusal::new(
            ErrorCode::UNAUTHENTICATED,
            "this server needs a token, and not this one",
        )));
    }
    if let Opening::Resume(key) = &hello.opening
        && let Some(session) = find_session(core, key)
    {
        supersede(core, &session).await;
    }
    // From here on nothing waits: either the shutdown finds this connection, or this finds the
    // shutdown.
    if core.shared.stop.is_cancelled() {
        return Err(refuse(shutting_down()));
    }
    let is_operator =
        address.ip().to_canonical().is_loopback() && hello.client_name.as_str() == OPERATOR_NAME;
    let Some(place) = core.shared.places.take(is_operator) else {
        core.metrics().busy_connections.bump();
        let connections_max = core.shared.config.connections_max;
        let message = format!("there are {connections_max} connections already, the limit");
        return Err(refuse(Refusal::new(ErrorCode::AT_CAPACITY, message)));
    };
    let (session, is_resumed) = choose_session(core, &hello).map_err(refuse)?;
    session.forget_before(request_id.get());
    let mut voice = None;
    let connection = core.insert(|id| {
        let outcomes = session.attach(id, address);
        let voice = voice.insert(Rc::new(NativeVoice::new(
            core.shared.clone(),
            session.clone(),
            outcomes,
        )));
        Connection::new(id, session.clone(), core.seat(session.id), voice.clone())
    });
    let voice = voice.expect("made with its connection");
    let config = &core.shared.config;
    let welcome = Welcome {
        version,
        is_resumed,
        session: SessionKey {
            session_id: protocol::SessionId::new(session.public_id),
            secret: session.secret,
        },
        session_ttl_ms: session.ttl_ms,
        frame_bytes_max: limits::REQUEST_FRAME_BYTES_MAX,
        in_flight_max: config.in_flight_max,
        remembered_max: REMEMBERED_MAX as u32,
        server_name: ServerName::clipped(&config.server_name),
        grace_ms: (core.shared.recovery.remaining_ms(core.shared.clock.now()))
            .map(|left_ms| u32::try_from(left_ms).unwrap_or(u32::MAX)),
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

fn shutting_down() -> Refusal {
    Refusal::new(ErrorCode::SHUTTING_DOWN, stopping::MESSAGE)
}

/// The session of this key, if it lives.
fn find_session(core: &Core, key: &SessionKey) -> Option<Arc<Session>> {
    let shared = &core.shared;
    let session = shared.registry().find_public(key.session_id.get())?;
    // Secrets are compared in a time that does not depend on their bytes.
    let is_known = session.secret == key.secret;
    (is_known && !session.is_ending() && shared.engine.is_open(session.id, shared.clock.now()))
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

fn choose_session(core: &Core, hello: &Hello<'_>) -> Result<(Arc<Session>, bool), Refusal> {
    let shared = &core.shared;
    let (key, must_live) = match &hello.opening {
        Opening::New => {
            return new_session(core, hello, None).map(|session| (session, false));
        }
        Opening::Resume(key) => (key, false),
        Opening::Join(key) => (key, true),
    };
    match find_session(core, key).filter(|session| keep_alive(core, session)) {
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
            && shared.keys.secret(key.session_id.get()) == key.secret =>
        {
            let name = (key.session_id.get(), key.secret);
            new_session(core, hello, Some(name)).map(|session| (session, true))
        }
        None if must_live => Err(Refusal::new(
            ErrorCode::SESSION_UNKNOWN,
            "there is no such session to join",
        )),
        None => new_session(core, hello, None).map(|session| (session, false)),
    }
}

/// Keeps a session alive that a connection comes to. `false`: it has ended since it was found.
fn keep_alive(core: &Core, session: &Session) -> bool {
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
    name: Option<(u64, SessionSecret)>,
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
    match shared.open_session(name, hello.client_name.as_str(), ttl_ms, shared.clock.now()) {
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
