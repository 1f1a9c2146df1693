//! One connection: read what is there, decide all of it, write once.
//!
//! A connection's task owns its socket. Others of the same core (mail, shutdown) append to its out-buffer and ring its
//! bell. Bounds: the in-buffer holds one read at most beyond what has been decided; nothing is decided and nothing read
//! while the out-buffer is above its high mark, so that only mail can bring it to `out_buffer_bytes_max`, where the peer is
//! cut off; a frame that does not complete and a peer that does not read are cut off in time.

use crate::conn::id::ConnectionId;
use crate::conn::places::InLine;
use crate::conn::stopping;
use crate::core::Core;
use crate::core::durable_replies::Held;
use crate::core::waiter::Waiter;
use crate::native::dispatch::{Batch, Decided};
use crate::native::{opening, reply};
use crate::observe::metrics::CoreMetrics;
use crate::observe::notices::Notice;
use crate::session::registry::{Outcomes, Remembered, Session};
use bytes::{Buf, BytesMut};
use engine::{Grant, Seat, Ticket};
use hashbrown::HashMap;
use parking_lot::Mutex;
use protocol::resp::Version;
use protocol::{ErrorCode, Reply, RequestId, limits};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, tcp, unix};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How much is read at once: some hundreds of requests.
pub(crate) const READ_BYTES: usize = 32 * 1024;

/// Whoever sends this much at once lets others on the core go first.
pub(crate) const READ_BYTES_MANY: usize = READ_BYTES / 4;

/// While this much waits to be written, nothing more is decided.
pub(crate) const OUT_BYTES_HIGH: usize = 128 * 1024;

/// An out-buffer that has grown beyond this is given back once it is empty.
const OUT_BYTES_KEPT: usize = 64 * 1024;

/// While the server stops, a connection is closed when nothing has come for so long: what was under way has arrived by then.
pub(crate) const QUIET: Duration = Duration::from_millis(20);

/// A batch of so few requests comes from a client that waits for each answer.
pub(crate) const STIRRING_MAX: u64 = 2;

/// How long a connection that was told goodbye may take to hear it.
const LINGER: Duration = Duration::from_millis(500);

/// What others on the same core may touch.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) session: Arc<Session>,
    pub(crate) seat: Rc<RefCell<Seat>>,
    /// Locked while a batch is decided and while a grant is delivered: see `Session::recall`.
    pub(crate) outcomes: Arc<Mutex<Outcomes>>,
    /// Acquires that wait, by request id.
    pub(crate) waits: RefCell<HashMap<u64, Ticket>>,
    pub(crate) out: RefCell<BytesMut>,
    /// Behind that, what waits for the disk: see `holdback.rs`.
    pub(crate) held: RefCell<VecDeque<Held>>,
    pub(crate) held_bytes: Cell<usize>,
    pub(crate) bell: Notify,
    speech: Cell<Speech>,
    /// Something was left in a signal list that this connection waits for.
    pub(crate) list_ready: Cell<bool>,
    /// The socket, once the hello is over and until the end; none for a client of Redis.
    writer: RefCell<Option<Rc<OwnedWriteHalf>>>,
    closing: Cell<bool>,
    said_goodbye: Cell<bool>,
    draining: Cell<bool>,
}

/// In which words a connection is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speech {
    /// Those of `docs/protocol.md`.
    Native,
    /// Those of Redis.
    Redis(Version),
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed it, or the network did.
    Closed,
    /// The peer does not keep up.
    TooSlow(&'static str),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Closed
    }
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        session: Arc<Session>,
        seat: Rc<RefCell<Seat>>,
        outcomes: Arc<Mutex<Outcomes>>,
        speech: Speech,
    ) -> Rc<Self> {
        Rc::new(Connection {
            id,
            session,
            seat,
            outcomes,
            waits: RefCell::default(),
            out: RefCell::default(),
            held: RefCell::default(),
            held_bytes: Cell::new(0),
            bell: Notify::new(),
            speech: Cell::new(speech),
            list_ready: Cell::new(false),
            writer: RefCell::default(),
            closing: Cell::new(false),
            said_goodbye: Cell::new(false),
            draining: Cell::new(false),
        })
    }

    /// Appends to the out-buffer, or to what waits for the disk if anything does, and has it written.
    pub(crate) fn send(&self, write: impl FnOnce(&mut BytesMut)) {
        if self.is_held_back() {
            self.append_held(write);
        } else {
            write(&mut self.out.borrow_mut());
        }
        self.bell.notify_one();
    }

    /// How this connection is spoken to.
    pub(crate) fn speech(&self) -> Speech {
        self.speech.get()
    }

    /// A Redis client has chosen its version.
    pub(crate) fn speak(&self, version: Version) {
        self.speech.set(Speech::Redis(version));
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Lets whoever decides append to the out-buffer.
    pub(crate) fn with_out<T>(&self, write: impl FnOnce(&mut BytesMut) -> T) -> T {
        write(&mut self.out.borrow_mut())
    }

    /// How many bytes are ready to be written.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out.borrow().len()
    }

    /// As `send`, but writes at once and leaves to the connection's task only what the socket does not take: somebody is
    /// handed a lock, and every microsecond until they know is one in which nobody has it.
    pub(crate) fn send_now(&self, metrics: &CoreMetrics, write: impl FnOnce(&mut BytesMut)) {
        let writer = self.writer.borrow();
        let Some(writer) = writer.as_ref().filter(|_| !self.is_held_back()) else {
            return self.send(write);
        };
        write(&mut self.out.borrow_mut());
        // An error comes again when the task writes, and it is the task that deals with it.
        let _ = write_some(metrics, self, &**writer);
        if !self.out.borrow().is_empty() {
            self.bell.notify_one();
        }
    }

    /// Says why, then closes. A client that said goodbye knows why, and one of Redis's would take it for an answer.
    pub(crate) fn close_with(&self, code: ErrorCode, message: &str) {
        if self.closing.replace(true) {
            return;
        }
        if !self.said_goodbye.get() && self.speech() == Speech::Native {
            self.send(|out| reply::error(code, message).append(RequestId::NONE, out));
        }
        self.bell.notify_one();
    }

    /// The client ended its session. The connection closes once all who shared it know.
    pub(crate) fn say_goodbye(&self) {
        self.said_goodbye.set(true);
    }

    /// Has what is still under way answered, and the connection closed when nothing more comes.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.bell.notify_one();
    }

    /// Takes a wait off the list. `false`: it is not waited for any more.
    pub(crate) fn finish_wait(&self, request_id: u64) -> bool {
        let waited = self.waits.borrow_mut().remove(&request_id).is_some();
        if waited {
            self.session.count_waiting(-1);
        }
        waited
    }

    pub(crate) fn start_wait(&self, request_id: u64, ticket: Ticket) {
        self.session.count_waiting(1);
        self.waits.borrow_mut().insert(request_id, ticket);
    }

    /// Takes the grant of a wait that is over, unless the request came again on another connection and is waited for there.
    pub(crate) fn accept(&self, waiter: &Waiter, grant: Grant) -> bool {
        let mut outcomes = self.outcomes.lock();
        if !waiter.is_repeat && self.session.was_repeated(waiter.request_id) {
            let id = RequestId::new(waiter.request_id);
            self.send(|out| Reply::Cancelled.append(id, out));
            return false;
        }
        outcomes.extend([(waiter.request_id, Remembered::Granted(grant))]);
        true
    }
}

/// Serves one accepted socket from hello to end.
pub(crate) async fn serve(
    core: Rc<Core>,
    mut stream: TcpStream,
    address: SocketAddr,
    stranger: InLine,
) {
    let mut unread = BytesMut::new();
    let opened = opening::open(&core, &mut stream, address, &mut unread, stranger).await;
    // The place is kept until the socket is closed.
    let Some((connection, _place)) = opened else {
        return;
    };
    let metrics = core.metrics();
    let (mut reader, writer) = stream.into_split();
    let writer = Rc::new(writer);
    *connection.writer.borrow_mut() = Some(writer.clone());
    let end = converse(&core, &connection, &mut reader, &writer, &mut unread).await;
    leave(&core, &connection);
    *connection.writer.borrow_mut() = None;
    let writer = Rc::into_inner(writer).expect("whoever hastens lets go of it at once");
    let mut stream = reader.reunite(writer).expect("they are of one socket");
    match end {
        Ok(()) => finish(&mut stream, &[]).await,
        Err(End::Closed) => {}
        Err(End::TooSlow(why)) => {
            metrics.connections_too_slow.bump();
            core.shared.notices.say(Notice::TooSlow, |unsaid| {
                let client = &*connection.session.client_name;
                tracing::info!(%address, client, unsaid, "connection cut off: {why}");
            });
            // What was not written may begin in the middle of a frame. Anything behind that would be taken for the rest of
            // it, a fence perhaps.
            if connection.out.borrow().is_empty() {
                say_last(&mut stream, ErrorCode::TOO_SLOW, why).await;
            }
        }
    }
}

/// Reads, decides and writes until somebody ends it. Dropped half-way only when the whole server goes.
async fn converse(
    core: &Rc<Core>,
    connection: &Rc<Connection>,
    reader: &mut OwnedReadHalf,
    writer: &OwnedWriteHalf,
    unread: &mut BytesMut,
) -> Result<(), End> {
    let config = &core.shared.config;
    let mut batch = Batch::new(core.clone(), connection.clone());
    let out_high = OUT_BYTES_HIGH.min(config.out_buffer_bytes_max / 2);
    let out_max = (config.out_buffer_bytes_max).max(out_high + limits::FRAME_BYTES_MAX as usize);
    // When the frame that has begun must be complete, and when the peer must have read something.
    let mut frame_due: Option<Instant> = None;
    let mut write_due: Option<Instant> = None;
    loop {
        let mut decided = Decided::default();
        if !connection.closing.get() {
            let room = out_high.saturating_sub(connection.held_bytes());
            let result = batch.decide(unread, &mut connection.out.borrow_mut(), room);
            core.replies.end_turn();
            // A lock that was handed on here is on its way before its last holder hears that it is rid of it.
            core.hand_over();
            match result {
                Ok(so_far) => {
                    core.note_served(so_far.requests);
                    unread.advance(so_far.bytes);
                    decided = so_far;
                }
                // Where the next frame begins is lost: what was decided before is answered, then why it ends.
                Err(error) => {
                    core.metrics().malformed.bump();
                    unread.clear();
                    connection.close_with(ErrorCode::MALFORMED, &error.to_string());
                    core.abandon_waits(connection);
                }
            }
        }
        // What is left over is the beginning of a frame, unless we are the ones who are behind.
        frame_due = match frame_due {
            _ if unread.is_empty() || decided.more => None,
            Some(due) if decided.bytes == 0 => Some(due),
            _ => Some(Instant::now() + config.frame_timeout),
        };
        let progress = write_some(core.metrics(), connection, writer)?;
        let out_bytes = connection.out.borrow().len();
        let waiting_bytes = out_bytes + connection.held_bytes();
        if waiting_bytes > out_max {
            return Err(End::TooSlow(
                "its replies pile up because it does not read them",
            ));
        }
        if waiting_bytes == 0 && connection.closing.get() {
            return Ok(());
        }
        if out_bytes == 0 {
            write_due = None;
        } else if progress || write_due.is_none() {
            write_due = Some(Instant::now() + config.write_stall_timeout);
        }
        if decided.more && waiting_bytes < out_high {
            // Somebody else's turn first: what takes long must not hold up a whole core.
            tokio::task::yield_now().await;
            continue;
        }
        let quiet_due = connection.draining.get().then(|| Instant::now() + QUIET);
        let due = [frame_due, write_due, quiet_due]
            .into_iter()
            .flatten()
            .min();
        let must_wait = connection.held_bytes() > 0 && core.replies.is_congested();
        let may_read = waiting_bytes < out_high && !connection.closing.get() && !must_wait;
        if may_read && unread.capacity() - unread.len() < READ_BYTES / 4 {
            unread.reserve(READ_BYTES);
        }
        tokio::select! {
            biased;
            read = reader.read_buf(unread), if may_read => {
                let read_bytes = read?;
                if read_bytes == 0 {
                    return Err(End::Closed);
                }
                core.metrics().bytes_in.add(read_bytes as u64);
                if read_bytes >= READ_BYTES_MANY {
                    // Without this a client that never stops sending has the core for a hundred batches in a row.
                    tokio::task::yield_now().await;
                }
            }
            () = connection.bell.notified() => {}
            writable = writer.writable(), if out_bytes > 0 => writable?,
            () = sleep_until(due) => {
                if due == frame_due {
                    return Err(End::TooSlow("a frame did not complete in time"));
                }
                if due == write_due {
                    return Err(End::TooSlow("it does not read its replies"));
                }
                connection.close_with(ErrorCode::SHUTTING_DOWN, stopping::MESSAGE);
            }
        }
    }
}

/// The writing half of a socket of either kind.
pub(crate) trait WriteHalf {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    async fn writable(&self) -> io::Result<()>;
}

impl WriteHalf for OwnedWriteHalf {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        OwnedWriteHalf::try_write(self, bytes)
    }
    async fn writable(&self) -> io::Result<()> {
        OwnedWriteHalf::writable(self).await
    }
}

impl WriteHalf for tcp::WriteHalf<'_> {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        tcp::WriteHalf::try_write(self, bytes)
    }
    async fn writable(&self) -> io::Result<()> {
        tcp::WriteHalf::writable(self).await
    }
}

impl WriteHalf for unix::WriteHalf<'_> {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        unix::WriteHalf::try_write(self, bytes)
    }
    async fn writable(&self) -> io::Result<()> {
        unix::WriteHalf::writable(self).await
    }
}

/// Writes as much as the socket takes. `true`: it took something.
pub(crate) fn write_some(
    metrics: &CoreMetrics,
    connection: &Connection,
    writer: &impl WriteHalf,
) -> Result<bool, End> {
    let mut out = connection.out.borrow_mut();
    let mut progress = false;
    while !out.is_empty() {
        match writer.try_write(&out) {
            Ok(0) => return Err(End::Closed),
            Ok(written) => {
                out.advance(written);
                metrics.bytes_out.add(written as u64);
                progress = true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    if out.is_empty() && out.capacity() > OUT_BYTES_KEPT {
        *out = BytesMut::new();
    }
    Ok(progress)
}

pub(crate) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Takes a connection out of everything: its waits are cancelled, its locks live on.
fn leave(core: &Core, connection: &Connection) {
    core.remove(connection.id);
    core.abandon_waits(connection);
    connection.session.detach(connection.id);
}

/// Tells a peer why it is cut off, as far as it listens, and closes in a way that lets it hear.
pub(crate) async fn say_last(stream: &mut TcpStream, code: ErrorCode, message: &str) {
    let mut out = BytesMut::new();
    reply::error(code, message).append(RequestId::NONE, &mut out);
    finish(stream, &out).await;
}

/// Writes the last bytes, then waits a moment for the peer to close: closing at once with unread input would reset the
/// connection and take our last words with it.
pub(crate) async fn finish<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, last: &[u8]) {
    let farewell = async {
        stream.write_all(last).await?;
        stream.shutdown().await?;
        let mut ignored = [0; 1024];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it was heard changes nothing for us.
    let _ = tokio::time::timeout(LINGER, farewell).await;
}
