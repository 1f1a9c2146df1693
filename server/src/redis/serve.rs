//! One connection of a Redis client: read what is there, decide all of it, write once. Like `conn/connection.rs`, except that a
//! command may block its connection, and that everything is answered in order.

use super::listener::Stream;
use super::talk::Talk;
use crate::conn::connection::{
    Connection, End, OUT_BYTES_HIGH, QUIET, READ_BYTES, READ_BYTES_MANY, Speech, WriteHalf, finish,
    sleep_until, write_some,
};
use crate::conn::places::InLine;
use crate::core::Core;
use crate::native::dispatch::Decided;
use crate::observe::notices::Notice;
use crate::session::registry::Outcomes;
use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use protocol::ErrorCode;
use protocol::resp::{Version, Writer, limits};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Serves one accepted socket to its end.
pub(crate) async fn serve(core: Rc<Core>, stream: Stream, stranger: InLine) {
    let address = stream.address();
    let shared = core.shared.clone();
    let Some(port) = shared.redis.get() else {
        return;
    };
    let session = port.session.clone();
    let connection = core.insert(|id| {
        // Nobody repeats anything on this port: what is remembered is of no use.
        let outcomes = Arc::new(Mutex::new(Outcomes::default()));
        // The session of all Redis clients lasts as long as the server.
        let seat = core.seat(session.id);
        seat.borrow_mut().stop_remembering();
        Connection::new(id, session, seat, outcomes, Speech::Redis(Version::V2))
    });
    let mut talk = Talk::new(
        core.clone(),
        connection.clone(),
        port.enter(address.clone()),
        stranger,
    );
    let mut unread = BytesMut::new();
    let end = match stream {
        Stream::Tcp(mut stream, _) => {
            let (reader, writer) = stream.split();
            let end = converse(&core, &mut talk, reader, &writer, &mut unread).await;
            if end.is_ok() {
                finish(&mut stream, &[]).await;
            }
            end
        }
        Stream::Unix(mut stream) => {
            let (reader, writer) = stream.split();
            let end = converse(&core, &mut talk, reader, &writer, &mut unread).await;
            if end.is_ok() {
                finish(&mut stream, &[]).await;
            }
            end
        }
    };
    talk.leave();
    port.leave(&talk.client.card);
    core.remove(connection.id);
    core.abandon_waits(&connection);
    if let Err(End::TooSlow(why)) = end {
        core.metrics().connections_too_slow.bump();
        shared.notices.say(Notice::TooSlow, |unsaid| {
            tracing::info!(%address, unsaid, "connection of a Redis client cut off: {why}");
        });
    }
}

/// Reads, decides and writes until somebody ends it. Dropped half-way only when the whole server goes.
async fn converse(
    core: &Rc<Core>,
    talk: &mut Talk,
    mut reader: impl AsyncRead + Unpin,
    writer: &impl WriteHalf,
    unread: &mut BytesMut,
) -> Result<(), End> {
    let config = &core.shared.config;
    let connection = talk.connection.clone();
    let out_high = OUT_BYTES_HIGH.min(config.out_buffer_bytes_max / 2);
    let out_max = (config.out_buffer_bytes_max).max(out_high + limits::COMMAND_BYTES_MAX);
    // When the peer must have introduced itself, from its first moment on.
    let hello_due = Instant::now() + config.hello_timeout;
    // When the command that has begun must be complete, and when the peer must have read something.
    let mut command_due: Option<Instant> = None;
    let mut write_due: Option<Instant> = None;
    loop {
        let mut decided = Decided::default();
        if !connection.is_closing() && !talk.is_blocked() {
            let room = out_high.saturating_sub(connection.held_bytes());
            let result = connection.with_out(|out| talk.decide(unread, out, room));
            core.replies.end_turn();
            match result {
                Ok(so_far) => {
                    core.note_served(so_far.requests);
                    unread.advance(so_far.bytes);
                    decided = so_far;
                }
                // Where the next command begins is lost: what was decided before is answered, then why it ends.
                Err(error) => {
                    core.metrics().malformed.bump();
                    unread.clear();
                    let version = talk.client.version;
                    let message = format!("ERR {error}");
                    connection.send(|out| Writer::new(out, version).error(&message));
                    talk.client.is_leaving = true;
                }
            }
        }
        if talk.client.is_leaving {
            // It has said all there is to say.
            connection.close_with(ErrorCode::MALFORMED, "");
        }
        // What is left over is the beginning of a command, unless we are the ones who are behind.
        command_due = match command_due {
            _ if unread.is_empty() || decided.more || talk.is_blocked() => None,
            Some(due) if decided.bytes == 0 => Some(due),
            _ => Some(Instant::now() + config.frame_timeout),
        };
        let progress = write_some(core.metrics(), &connection, writer)?;
        let out_bytes = connection.out_bytes();
        let waiting_bytes = out_bytes + connection.held_bytes();
        if waiting_bytes > out_max {
            return Err(End::TooSlow(
                "its replies pile up because it does not read them",
            ));
        }
        if waiting_bytes == 0 && connection.is_closing() {
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
        let quiet_due = connection.is_draining().then(|| Instant::now() + QUIET);
        let block_due = talk.block_due();
        let hello_due = talk.standing.stranger().map(|_| hello_due);
        let due = [command_due, write_due, quiet_due, block_due, hello_due];
        let due = due.into_iter().flatten().min();
        let must_wait = connection.held_bytes() > 0 && core.replies.is_congested();
        // Whoever is blocked is read from as well, a little, to hear when it goes.
        let is_full = talk.is_blocked() && unread.len() >= READ_BYTES;
        let may_read =
            waiting_bytes < out_high && !connection.is_closing() && !must_wait && !is_full;
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
                    tokio::task::yield_now().await;
                }
            }
            () = connection.bell.notified() => {}
            writable = writer.writable(), if out_bytes > 0 => writable?,
            () = gives_way(talk.standing.stranger()) => {
                return Err(End::TooSlow("it had not introduced itself, and newer ones came"));
            }
            () = sleep_until(due) => {
                if due == hello_due {
                    return Err(End::TooSlow("it did not introduce itself in time"));
                } else if due == block_due {
                    talk.stop_waiting();
                } else if due == command_due {
                    return Err(End::TooSlow("a command did not complete in time"));
                } else if due == write_due {
                    return Err(End::TooSlow("it does not read its replies"));
                } else {
                    connection.close_with(ErrorCode::SHUTTING_DOWN, "");
                }
            }
        }
        talk.look_again();
    }
}

/// Waits until a stranger has to give way. For ever, for one that has introduced itself.
async fn gives_way(stranger: Option<&InLine>) {
    match stranger {
        Some(stranger) => stranger.gives_way().await,
        None => std::future::pending().await,
    }
}
