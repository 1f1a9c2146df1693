//! The loop of a connection: read what is there, decide all of it, write once.
//!
//! A connection's task owns its socket. Others of the same core (mail, shutdown) append to its
//! out-buffer and ring its bell.
//!
//! Bounds: the in-buffer holds one read at most beyond what has been decided. Nothing is decided
//! and nothing read while the out-buffer is above its high mark, so only mail can bring it to
//! `out_buffer_bytes_max`, where the peer is cut off. A message that does not complete and a peer
//! that does not read are cut off in time. So is a stranger that does not introduce itself.

use super::stopping;
use crate::conn::connection::{Connection, Footing};
use crate::conn::dialect::{Decided, Dialect, News};
use crate::conn::places::{Overdue, Stranger};
use crate::conn::socket::{ReadHalf, Socket, WriteHalf};
use crate::core::Core;
use crate::observe::notices::Notice;
use bytes::{Buf, BytesMut};
use protocol::ErrorCode;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// How much is read at once: some hundreds of requests.
const READ_BYTES: usize = 32 * 1024;

/// A peer that sends this much at once lets others on the core go first.
const READ_BYTES_MANY: usize = READ_BYTES / 4;

/// While this much waits to be written, nothing more is decided.
const OUT_BYTES_HIGH: usize = 128 * 1024;

/// While the server stops, a connection is closed when nothing has come for so long: what was under
/// way has arrived by then.
const QUIET: Duration = Duration::from_millis(20);

/// How long a connection that was told goodbye may take to hear it.
const LINGER: Duration = Duration::from_millis(500);

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The peer closed it, or the network did.
    Closed,
    /// The peer does not keep up.
    TooSlow(&'static str),
    /// A stranger speaks TLS, and this port does not.
    SpeaksTls,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Closed
    }
}

/// Serves a connection to its end. `unread` is what its opening has read too much.
pub(crate) async fn serve<D: Dialect>(
    core: &Rc<Core>,
    connection: &Rc<Connection>,
    dialect: &mut D,
    socket: Socket,
    address: &(impl fmt::Display + ?Sized),
    mut unread: BytesMut,
) {
    let (mut reader, writer) = socket.split();
    let writer = Rc::new(writer);
    connection.set_writer(Some(writer.clone()));
    let mut conversation = Conversation::new(core, connection, dialect);
    let end = conversation.run(&mut reader, &writer, &mut unread).await;
    // The connection is out of everything: its waits are cancelled, its locks live on.
    core.remove(connection.id);
    core.abandon_waits(connection);
    dialect.leave();
    connection.set_writer(None);
    let writer = Rc::into_inner(writer).expect("`send_now` lets go of it at once");
    let mut socket = Socket::join(reader, writer);
    match end {
        Ok(()) => finish(&mut socket, &[]).await,
        Err(End::Closed) => {}
        Err(End::SpeaksTls) => {
            core.shared.notices.say(Notice::OnlyPlain, |unsaid| {
                tracing::info!(
                    %address,
                    unsaid,
                    "a client speaks TLS, and this port does not: give the server a certificate with --tls-cert-file, \
                     or connect without TLS"
                );
            });
            finish(&mut socket, &tls::ALERT_REFUSED).await;
        }
        Err(End::TooSlow(why)) => {
            core.metrics().connections_too_slow.bump();
            core.shared.notices.say(Notice::TooSlow, |unsaid| {
                let client = &*connection.session.client_name;
                tracing::info!(%address, client, unsaid, "connection cut off: {why}");
            });
            // What was not written may begin in the middle of a message. Anything behind that
            // would be taken for the rest of it, a fence perhaps.
            if connection.out.ready_bytes() == 0 {
                let mut last = BytesMut::new();
                let (code, message) = (ErrorCode::TOO_SLOW, why);
                (connection.voice).say(&News::Closing { code, message }, &mut last);
                if !last.is_empty() {
                    finish(&mut socket, &last).await;
                }
            }
        }
    }
}

struct Conversation<'a, D> {
    core: &'a Rc<Core>,
    connection: &'a Rc<Connection>,
    dialect: &'a mut D,
    out_high: usize,
    out_max: usize,
    /// When the message that has begun must be complete.
    message_due: Option<Instant>,
    /// When the peer must have read something.
    write_due: Option<Instant>,
}

impl<'a, D: Dialect> Conversation<'a, D> {
    fn new(core: &'a Rc<Core>, connection: &'a Rc<Connection>, dialect: &'a mut D) -> Self {
        let out_bytes_max = core.shared.config.out_buffer_bytes_max;
        let out_high = OUT_BYTES_HIGH.min(out_bytes_max / 2);
        Conversation {
            core,
            connection,
            dialect,
            out_high,
            out_max: out_bytes_max.max(out_high + D::MESSAGE_BYTES_MAX),
            message_due: None,
            write_due: None,
        }
    }

    /// Reads, decides and writes until one side ends it. Dropped half-way only when the whole
    /// server goes.
    async fn run(
        &mut self,
        reader: &mut ReadHalf,
        writer: &WriteHalf,
        unread: &mut BytesMut,
    ) -> Result<(), End> {
        let (core, connection) = (self.core, self.connection);
        loop {
            if self.dialect.stranger().is_some() && tls::is_client_hello(unread) {
                return Err(End::SpeaksTls);
            }
            let decided = self.decide(unread);
            self.expect_rest_of_message(&decided, unread);
            let progress = connection.out.write_some(writer, core.metrics())?;
            let out_bytes = connection.out.ready_bytes();
            let waiting_bytes = out_bytes + connection.out.held_bytes();
            if waiting_bytes > self.out_max {
                let why = "its replies pile up because it does not read them";
                return Err(End::TooSlow(why));
            }
            let is_unsent = out_bytes > 0 || writer.has_unsent();
            if waiting_bytes == 0 && connection.is_closing() {
                return Ok(());
            }
            if !is_unsent {
                self.write_due = None;
            } else if progress || self.write_due.is_none() {
                let timeout = core.shared.config.write_stall_timeout;
                self.write_due = Some(Instant::now() + timeout);
            }
            if decided.more && waiting_bytes < self.out_high {
                // Other connections first: what takes long must not hold up a whole core.
                tokio::task::yield_now().await;
                continue;
            }
            let may_read = self.may_read(waiting_bytes, unread);
            self.wait(reader, writer, unread, may_read).await?;
            self.dialect.look_again();
        }
    }

    /// Why the connection must end, if rights have changed. What a peer waits for or listens to was
    /// asked for with the rights that it had then; one that has lost some of them comes back, asks
    /// again, and hears which.
    #[inline]
    fn lost_rights(&self) -> Option<&'static str> {
        match self.connection.go_by(&self.core.shared.rights) {
            Footing::Narrowed if self.connection.is_waiting() || self.dialect.is_listening() => {
                Some("rights of this token have been taken away; come back and ask again")
            }
            Footing::Gone => Some("the rights of this token have been taken away"),
            Footing::Kept | Footing::Narrowed => None,
        }
    }

    /// Decides what was read, unless the peer is blocked or goes.
    fn decide(&mut self, unread: &mut BytesMut) -> Decided {
        let (core, connection) = (self.core, self.connection);
        let lost = match connection.is_closing() {
            true => None,
            false => self.lost_rights(),
        };
        if let Some(message) = lost {
            unread.clear();
            connection.close_with(ErrorCode::UNAUTHENTICATED, message);
            core.abandon_waits(connection);
        }
        if connection.is_closing() || self.dialect.is_blocked() {
            return Decided::default();
        }
        let room = (self.out_high).saturating_sub(connection.out.held_bytes());
        let out = &connection.out;
        let timer = match unread.is_empty() {
            true => None,
            false => core.start_timer(),
        };
        let result = out.with_ready(|out| self.dialect.decide(unread, out, room));
        core.replies.end_turn();
        // A lock that was handed on here is on its way before its last holder hears that it is rid
        // of it.
        core.hand_over();
        match result {
            Ok(decided) => {
                core.note_served(decided.requests);
                if let Some(since) = timer
                    && decided.requests > 0
                {
                    out.time(since);
                }
                unread.advance(decided.bytes);
                if decided.is_last {
                    connection.close();
                }
                decided
            }
            // Where the next message begins is lost: what was decided before is answered, then why
            // it ends.
            Err(error) => {
                core.metrics().malformed.bump();
                unread.clear();
                connection.close_with(ErrorCode::MALFORMED, &error.to_string());
                core.abandon_waits(connection);
                Decided::default()
            }
        }
    }

    /// What is left over is the beginning of a message, unless it is the server that is behind.
    fn expect_rest_of_message(&mut self, decided: &Decided, unread: &BytesMut) {
        self.message_due = match self.message_due {
            _ if unread.is_empty() || decided.more || self.dialect.is_blocked() => None,
            Some(due) if decided.bytes == 0 => Some(due),
            _ => Some(Instant::now() + self.core.shared.config.frame_timeout),
        };
    }

    fn may_read(&self, waiting_bytes: usize, unread: &BytesMut) -> bool {
        let (core, connection) = (self.core, self.connection);
        let must_wait = connection.out.held_bytes() > 0 && core.replies.is_congested();
        // A blocked peer is read from as well, a little, to hear when it goes.
        let is_full = self.dialect.is_blocked() && unread.len() >= READ_BYTES;
        waiting_bytes < self.out_high && !connection.is_closing() && !must_wait && !is_full
    }

    /// Waits until there is something to do: bytes to read, room to write, mail, a deadline.
    async fn wait(
        &mut self,
        reader: &mut ReadHalf,
        writer: &WriteHalf,
        unread: &mut BytesMut,
        may_read: bool,
    ) -> Result<(), End> {
        let connection = self.connection;
        let quiet_due = connection.is_draining().then(|| Instant::now() + QUIET);
        let block_due = self.dialect.blocked_until();
        let dues = [block_due, self.message_due, self.write_due, quiet_due];
        let due = dues.into_iter().flatten().min();
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
                self.core.metrics().bytes_in.add(read_bytes as u64);
                if read_bytes >= READ_BYTES_MANY {
                    // Without this a client that never stops sending has the core for a hundred
                    // batches in a row.
                    tokio::task::yield_now().await;
                }
            }
            () = connection.bell.notified() => {}
            writable = writer.writable(), if self.write_due.is_some() => writable?,
            overdue = must_go(self.dialect.stranger()) => {
                return Err(End::TooSlow(match overdue {
                    Overdue::GaveWay => "it had not introduced itself, and newer ones came",
                    Overdue::TooLate => "it did not introduce itself in time",
                }));
            }
            () = sleep_until(due) => {
                if due == block_due {
                    self.dialect.end_block();
                } else if due == self.message_due {
                    return Err(End::TooSlow(D::INCOMPLETE));
                } else if due == self.write_due {
                    return Err(End::TooSlow("it does not read its replies"));
                } else {
                    connection.close_with(ErrorCode::SHUTTING_DOWN, stopping::MESSAGE);
                }
            }
        }
        Ok(())
    }
}

/// Waits until a stranger has to go. For ever, for a peer that has introduced itself.
async fn must_go(stranger: Option<&Stranger>) -> Overdue {
    match stranger {
        Some(stranger) => stranger.must_go().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Writes the last bytes, then waits a moment for the peer to close: closing at once with unread
/// input would reset the connection and take our last words with it.
pub(crate) async fn finish<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S, last: &[u8]) {
    let farewell = async {
        socket.write_all(last).await?;
        socket.shutdown().await?;
        let mut ignored = [0; 1024];
        while socket.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it was heard changes nothing for us.
    let _ = tokio::time::timeout(LINGER, farewell).await;
}
