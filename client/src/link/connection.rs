//! One connection: a task that owns a socket, writes the requests of its lane in batches, and
//! matches replies to requests.
//!
//! When the socket breaks, the task opens another one and goes on with the unanswered requests. In
//! the same session they are repeated under their ids and take effect once. In a new session,
//! requests about locks of the old one fail, because those locks are gone; the others are asked
//! afresh. While this task cannot connect and another lane can, that lane takes over.

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{ConnectError, Error, Loss};
use crate::limits::{OUT_BYTES_MAX, OVERDUE, READ_BYTES, RENEW_FRACTION, SILENCE_MIN};
use crate::link::call::{Ask, Call, Class, Sink};
use crate::link::lane::{Batch, Lane, Room};
use crate::link::pool::Pool;
use crate::link::reply::Arrival;
use crate::session::{Bounds, Broken, Era, Opened};
use crate::stream::Writer;
use bytes::{Buf, BytesMut};
use protocol::{DecodeError, Direction, ErrorCode, Frame, NodeAddress, Push, Reply, RequestId};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

pub(crate) struct Connection {
    pool: Arc<Pool>,
    index: usize,
    in_flight: InFlight,
    /// To be sent before anything else, oldest first: most of it was sent on a connection that
    /// broke.
    backlog: VecDeque<Call>,
    /// When the latest connection was opened.
    era: Era,
    /// Where it leads.
    address: Arc<str>,
    /// To a node of a cluster.
    is_cluster: bool,
    batch: Batch,
}

/// Requests that were sent on the present connection and have not been answered.
#[derive(Default)]
struct InFlight {
    calls: HashMap<RequestId, Call>,
    urgent: usize,
    prompt: usize,
    waiting: usize,
}

/// Why a connection ended.
enum End {
    /// The other side closed it, or the network did.
    Broken,
    /// Nothing came for too long while answers were due.
    Silent,
    /// Another connection has resumed the session or opened a new one.
    Superseded,
    /// The bytes made no sense.
    Garbled,
    /// The server says that the session is over.
    SessionOver,
    /// The node leads its cluster no more.
    Deposed,
    /// The client is closing.
    Left,
}

impl From<DecodeError> for End {
    fn from(_: DecodeError) -> Self {
        Self::Garbled
    }
}

impl Connection {
    pub(crate) fn new(pool: Arc<Pool>, index: usize) -> Self {
        Self {
            pool,
            index,
            in_flight: InFlight::default(),
            backlog: VecDeque::new(),
            era: Era::default(),
            address: Arc::from(""),
            is_cluster: false,
            batch: Batch::default(),
        }
    }

    fn lane(&self) -> &Lane {
        &self.pool.lanes()[self.index]
    }

    /// Connects, converses, reconnects, until the client closes.
    pub(crate) async fn run(mut self, mut opened: Option<Opened>) {
        let mut backoff = Backoff::default();
        loop {
            let connection = match opened.take() {
                Some(opened) => opened,
                None => match self.open(&mut backoff).await {
                    Some(opened) => opened,
                    None => return,
                },
            };
            self.era = connection.era;
            self.address = Arc::clone(&connection.address);
            self.is_cluster = connection.is_cluster;
            self.lane().set_open();
            let mut has_answered = false;
            let end = self.converse(connection, &mut has_answered).await;
            self.lane().set_down(None, Instant::now());
            self.pool.note_down();
            self.pool.session.disconnected(self.era);
            self.keep_unanswered();
            // A server that welcomes and then hangs up is called again soon, but not at full speed.
            if has_answered {
                backoff.reset();
            } else {
                backoff.ease();
            }
            match end {
                End::Left => return,
                End::SessionOver => self.pool.session.end(self.era.epoch, &self.pool.leases),
                // No loss: what it granted is good for as long as it was, wherever the next leader
                // is.
                End::Deposed | End::Silent => self.pool.session.nodes.doubt(&self.address),
                End::Broken | End::Superseded | End::Garbled => {}
            }
        }
    }

    /// Tries until there is a connection; `None` when the client closes and has nothing more to
    /// say, or cannot.
    async fn open(&mut self, backoff: &mut Backoff) -> Option<Opened> {
        let pool = Arc::clone(&self.pool);
        loop {
            let closing_since = pool.closing_since();
            if closing_since.is_some() && !self.has_last_word() {
                return None;
            }
            let broken = Broken {
                era: self.era,
                has_backlog: !self.backlog.is_empty(),
            };
            let attempt = async {
                sleep(backoff.next()).await;
                pool.session
                    .open(&pool.settings, &pool.leases, Some(broken), || {
                        pool.next_id()
                    })
                    .await
            };
            let result = match closing_since {
                None => tokio::select! {
                    result = attempt => result,
                    // Look again whether to go on.
                    () = pool.closing() => continue,
                },
                Some(since) => timeout_at(since + pool.settings.request_timeout, attempt)
                    .await
                    .ok()?,
            };
            match result {
                Ok(opened) => return Some(opened),
                Err(error) => {
                    backoff.note_failure(error.is_electing());
                    self.not_opened(error);
                }
            }
        }
    }

    /// Whether it is on this lane to end the session.
    fn has_last_word(&self) -> bool {
        let mut backlog = self.backlog.iter();
        self.lane().has_goodbye() || backlog.any(|call| matches!(call.ask, Ask::Goodbye))
    }

    /// There is no connection for now. Its requests move to a lane that has one, or fail if waiting
    /// is in vain.
    fn not_opened(&mut self, error: ConnectError) {
        let is_permanent = error.is_permanent();
        self.lane().set_down(Some(error.clone()), Instant::now());
        if self.pool.closing_since().is_some() {
            // Each lane has its own end.
        } else if let Some(other) = self.pool.other_open_lane(self.index) {
            let mut calls = Vec::new();
            // A request may be repeated only once the server is done with the connection it was
            // sent on.
            if !self.pool.session.is_current(self.era) {
                calls.extend(self.backlog.drain(..));
            }
            calls.extend(self.lane().take_all());
            other.adopt(calls);
        } else if is_permanent {
            let mut calls = self.lane().take_all();
            calls.extend(self.backlog.drain(..));
            for call in calls {
                call.fail(Error::Disconnected {
                    why: Some(error.clone()),
                });
            }
        }
    }

    /// Sends and receives until something ends it. Dropped half-way only with the whole runtime.
    async fn converse(&mut self, opened: Opened, has_answered: &mut bool) -> End {
        let Opened {
            stream,
            mut input,
            era,
            life,
            bounds,
            must_claim,
            is_in_grace,
            address: _,
            is_cluster: _,
        } = opened;
        let (mut reader, mut writer) = stream.split();
        // Bytes were written that may not have left.
        let mut is_unflushed = false;
        let is_direct = writer.is_direct();
        let mut out = BytesMut::new();
        if must_claim {
            self.claim_all();
        } else if !is_in_grace {
            // A `Lost` may have been on its way when the last connection broke. In a grace period
            // there is nothing to ask: the server does not know our locks before the connection
            // that resumed the session has claimed them.
            self.pool.leases.schedule_all(Moment::now());
        }
        // A dead connection must be noticed early enough for a second attempt, within a request's
        // time and before the session ends.
        let settings = &self.pool.settings;
        let mut silence_max = (settings.request_timeout / 2)
            .min(life.ttl() / RENEW_FRACTION)
            .max(SILENCE_MIN);
        // Where there is another node to ask, it may be the one that leads by now.
        if self.pool.session.nodes.has_several(&settings.addresses) {
            silence_max = silence_max.min(OVERDUE);
        }
        // Since when answers are due and nothing came.
        let mut quiet_since = Instant::now();
        // Fires before the true deadline and is then set anew: cheaper than moving it for every
        // batch.
        let alarm = sleep_until(quiet_since + silence_max);
        tokio::pin!(alarm);
        // Something may have come behind the welcome.
        let mut has_read = true;
        loop {
            if std::mem::take(&mut has_read) {
                let arrival = Arrival {
                    pool: &Arc::clone(&self.pool),
                    epoch: era.epoch,
                    life: &life,
                    now: Moment::now(),
                };
                quiet_since = Instant::now();
                match self.read_frames(&arrival, &mut input) {
                    Ok(answered) => *has_answered |= answered,
                    Err(end) => return end,
                }
            }
            if !self.in_flight.has_answers_due() {
                quiet_since = Instant::now();
            }
            let is_leaving = self.send_some(era.epoch, bounds, &mut out);
            if is_leaving && !self.in_flight.has_answers_due() {
                return End::Left;
            }
            if !is_leaving && !self.pool.session.is_current(era) {
                return End::Superseded;
            }
            input.reserve(READ_BYTES);
            let is_flush = out.is_empty();
            tokio::select! {
                read = reader.read_buf(&mut input) => match read {
                    Ok(0) | Err(_) => return End::Broken,
                    Ok(_) => has_read = true,
                },
                sent = send(&mut writer, &mut out), if !is_flush || is_unflushed => match sent {
                    Err(_) => return End::Broken,
                    Ok(()) => is_unflushed = !is_flush && !is_direct,
                },
                () = self.pool.lanes()[self.index].woken() => {}
                () = &mut alarm => {
                    let deadline = quiet_since + silence_max;
                    if self.in_flight.has_answers_due() && Instant::now() >= deadline {
                        return End::Silent;
                    }
                    alarm.as_mut().reset(Instant::now().max(quiet_since) + silence_max / 4);
                }
            }
        }
    }

    /// Takes every complete frame out of `input`. Says whether a request was answered.
    fn read_frames(&mut self, arrival: &Arrival<'_>, input: &mut BytesMut) -> Result<bool, End> {
        let mut has_answered = false;
        let mut unread = &input[..];
        while let Some(frame) = Frame::split(&mut unread, protocol::limits::FRAME_BYTES_MAX)? {
            match frame.direction() {
                Direction::Reply => {
                    self.read_reply(arrival, &frame)?;
                    has_answered = true;
                }
                Direction::Push => self.read_push(arrival, &frame)?,
                // Not for us to answer; a later version may know what it means.
                Direction::Request => {}
            }
        }
        let read_bytes = input.len() - unread.len();
        input.advance(read_bytes);
        Ok(has_answered)
    }

    fn read_reply(&mut self, arrival: &Arrival<'_>, frame: &Frame<'_>) -> Result<(), End> {
        let reply = Reply::decode(frame);
        // Either way the request stays unanswered, and is dealt with like all others of a session
        // that is over, or of a connection that broke.
        match reply {
            Ok(Reply::Error {
                code: ErrorCode::SESSION_ENDED,
                ..
            }) => return Err(End::SessionOver),
            Ok(Reply::Error {
                code: ErrorCode::NOT_LEADER,
                leader,
                ..
            }) => {
                self.note_leader(leader);
                return Err(End::Deposed);
            }
            _ => {}
        }
        if frame.request_id == RequestId::NONE {
            // The server's last words.
            return Err(End::Broken);
        }
        let Some(call) = self.in_flight.remove(frame.request_id) else {
            return Ok(());
        };
        // A reply that cannot be read is taken for one from a later version.
        let unknown = Reply::Unknown { kind: frame.kind };
        arrival.apply(call, &reply.unwrap_or(unknown));
        Ok(())
    }

    /// The next leader, if this one knows it.
    fn note_leader(&self, leader: NodeAddress<'_>) {
        let leader = Some(leader.as_str()).filter(|leader| !leader.is_empty());
        let nodes = &self.pool.session.nodes;
        nodes.note_not_leader(&self.address, leader);
    }

    fn read_push(&self, arrival: &Arrival<'_>, frame: &Frame<'_>) -> Result<(), End> {
        match Push::decode(frame) {
            Ok(Push::Lost { key, fence, reason }) => {
                let loss = Loss::from(reason);
                self.pool
                    .leases
                    .lose(key.as_bytes(), fence, loss, arrival.now);
            }
            // The leadership has been handed over, and everything that was decided has been told.
            Ok(Push::Shutdown { leader, .. }) if !leader.as_str().is_empty() => {
                self.note_leader(leader);
                return Err(End::Deposed);
            }
            // It will close the connection when it goes, and then we look for it again.
            Ok(Push::Shutdown { .. }) | Ok(Push::Unknown { .. }) => {}
            // A push is a courtesy; one that cannot be read is ignored.
            Err(_) => {}
        }
        Ok(())
    }

    // ---- sending

    /// Appends what the lane holds to `out`, as far as there is room. Says whether the client is
    /// closing.
    fn send_some(&mut self, epoch: u64, bounds: Bounds, out: &mut BytesMut) -> bool {
        if out.len() >= OUT_BYTES_MAX {
            return self.batch.is_leaving;
        }
        // Before anything goes out: leases count from here.
        let now = Moment::now();
        while let Some(call) = self.backlog.pop_front() {
            if !self.in_flight.has_room_for(call.class, bounds) {
                self.backlog.push_front(call);
                break;
            }
            self.send_again(call, epoch, now, out);
        }
        let mut batch = std::mem::take(&mut self.batch);
        let room = self.in_flight.room(bounds);
        self.pool.lanes()[self.index].take(room, &mut batch);
        for call in batch.calls.drain(..) {
            // Never sent and without a caller: it never happened.
            if !call.is_abandoned() {
                self.send(call, epoch, now, out);
            }
        }
        for acquire_id in batch.cancelled.drain(..) {
            if self.in_flight.calls.contains_key(&acquire_id) {
                let ask = Ask::Cancel { acquire_id };
                let cancel = Call::new(self.pool.next_id(), ask, Sink::Nowhere);
                self.send(cancel, epoch, now, out);
            }
        }
        if !batch.adopted.is_empty() {
            self.backlog.extend(batch.adopted.drain(..));
            // Come back for them.
            self.lane().wake();
        }
        self.batch = batch;
        self.batch.is_leaving
    }

    fn send(&mut self, mut call: Call, epoch: u64, now: Moment, out: &mut BytesMut) {
        call.send(epoch, self.is_cluster, now, out);
        self.in_flight.insert(call);
    }

    /// Sends a request that an earlier connection sent already, if that makes sense.
    fn send_again(&mut self, mut call: Call, epoch: u64, now: Moment, out: &mut BytesMut) {
        let is_abandoned = call.is_abandoned();
        let is_same_session = call.sent.is_some_and(|sent| sent.epoch == epoch);
        match &mut call.ask {
            // The wait ended with the connection, and the session has been heard of since.
            Ask::Cancel { .. } | Ask::KeepAlive => {}
            // If it was granted and the reply got lost, it must be found and released; it must not
            // wait again.
            Ask::Acquire(wish) if is_abandoned && is_same_session => {
                wish.wait_until = None;
                self.send(call, epoch, now, out);
            }
            _ if is_abandoned => {}
            // Claims are made when the server does not know the holders. Another client may have
            // been granted the lock since it lapsed, so a claim goes out only for a lease that is
            // certainly ours at this moment. The check is here, not where claims are made: a
            // repeated claim may have lapsed while there was no connection.
            Ask::Claim { lease, .. } if lease.check(now).is_err() => {
                self.pool.leases.forget(lease);
            }
            Ask::Renew { .. }
            | Ask::Release { .. }
            | Ask::Downgrade { .. }
            | Ask::Claim { .. }
            | Ask::ForceRelease { .. }
                if call.sent.is_some() && !is_same_session =>
            {
                call.fail(Error::SessionEnded);
            }
            _ => self.send(call, epoch, now, out),
        }
    }

    /// The connection is gone: the next one repeats what it left unanswered, except the watchdog's
    /// renewals, because a new one counts from later.
    fn keep_unanswered(&mut self) {
        let now = Moment::now();
        for call in self.in_flight.take_all() {
            match (&call.ask, &call.sink, &call.lease) {
                (Ask::Renew { .. }, Sink::Nowhere, Some(lease)) => {
                    lease.stop_renewing();
                    self.pool.leases.schedule(lease, now);
                }
                _ => self.backlog.push_back(call),
            }
        }
        self.backlog.make_contiguous().sort_by_key(|call| call.id);
    }

    /// The server restarted: claim every lock we have, before anything else is sent. (`send_again`
    /// leaves out leases that have lapsed by then.)
    fn claim_all(&mut self) {
        for lease in self.pool.leases.all() {
            // Keeps the watchdog from renewing what the server does not know yet.
            lease.start_renewing();
            let ask = Ask::Claim {
                wanted: lease.wanted(),
                hold_count: lease.hold_count(),
                lease: Arc::clone(&lease),
            };
            let claim = Call::new(self.pool.next_id(), ask, Sink::Nowhere).about(&lease);
            self.backlog.push_front(claim);
        }
    }
}

/// Also when the runtime drops the task: no caller may wait for an answer that cannot come.
impl Drop for Connection {
    fn drop(&mut self) {
        self.lane().close();
        for call in self.in_flight.take_all() {
            call.fail(Error::Closed);
        }
        for call in self.backlog.drain(..) {
            call.fail(Error::Closed);
        }
        self.pool.connection_ended(Moment::now());
    }
}

impl InFlight {
    fn count(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Urgent => &mut self.urgent,
            Class::Prompt => &mut self.prompt,
            Class::Waiting => &mut self.waiting,
        }
    }

    fn insert(&mut self, call: Call) {
        *self.count(call.class) += 1;
        let replaced = self.calls.insert(call.id, call);
        assert!(replaced.is_none(), "a request id came twice: {replaced:?}");
    }

    fn remove(&mut self, id: RequestId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        *self.count(call.class) -= 1;
        Some(call)
    }

    fn take_all(&mut self) -> Vec<Call> {
        let calls = std::mem::take(self).calls;
        calls.into_values().collect()
    }

    /// Whether the server owes an answer that should come at once.
    fn has_answers_due(&self) -> bool {
        self.urgent + self.prompt > 0
    }

    fn room(&self, bounds: Bounds) -> Room {
        let answered = self.urgent + self.prompt;
        Room {
            urgent: bounds.answered_max.saturating_sub(answered),
            prompt: bounds.prompt_max.saturating_sub(self.prompt),
            waiting: bounds.waiting_max.saturating_sub(self.waiting),
        }
    }

    fn has_room_for(&self, class: Class, bounds: Bounds) -> bool {
        let room = self.room(bounds);
        match class {
            Class::Urgent => room.urgent > 0,
            Class::Prompt => room.urgent.min(room.prompt) > 0,
            Class::Waiting => room.waiting > 0,
        }
    }
}
/// Writes some of what is gathered; if nothing is, has the stream send what it took. May be dropped
/// half-way.
async fn send(writer: &mut Writer, out: &mut BytesMut) -> io::Result<()> {
    if out.is_empty() {
        return writer.flush().await;
    }
    match writer.write_buf(out).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        _ => Ok(()),
    }
}
