//! The control lane, sending side: votes, heartbeats and transfers to one peer.
//!
//! openraft makes a network for every single vote, so this connection is shared by all networks to
//! a peer and kept by [`super::Peers`]. A task has it; it is started by the first call, and ends
//! when the connection breaks, when it has been idle for a while, or when nothing can call it any
//! more. Calls have ids, so that an answer that comes too late is not taken for another.

use super::connection::{Connection, ConnectionError};
use super::dialer::Dialer;
use super::transport::Transport;
use super::wire::Message;
use super::{Gate, Lane};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// How many calls may be unanswered. More are refused: the peer is not answering.
pub(super) const CALLS_MAX: usize = 64;

/// A connection that leaves a call unanswered for so long is given up. Longer than a slow sync of
/// the peer's disk should take, shorter than TCP's own patience by far.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that is not used for so long is closed, such as one to a removed member.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before the second attempt to connect, and at most. Heartbeats must find a
/// node that came back before its election timeout ends.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(25);
pub(super) const BACKOFF_MAX: Duration = Duration::from_millis(250);

struct Call {
    message: Message,
    answer: oneshot::Sender<Message>,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum CallError {
    /// There is no connection, or it broke.
    Unreachable(String),
    /// It was sent, or is about to be.
    Late,
}

/// When the next attempt to connect may be made, after one that failed.
#[derive(Default)]
struct Retry {
    not_before: Option<Instant>,
    pause: Duration,
    reason: String,
}

/// The control lane to one peer.
pub(super) struct Control<T: Transport, G> {
    dialer: Dialer<T, G>,
    calls: Mutex<Option<mpsc::Sender<Call>>>,
    retry: Arc<Mutex<Retry>>,
}

impl<T: Transport, G: Gate> Control<T, G> {
    /// Connects at the first call.
    pub(super) fn new(dialer: Dialer<T, G>) -> Self {
        Control {
            dialer,
            calls: Mutex::default(),
            retry: Arc::default(),
        }
    }

    /// Where it goes.
    pub(super) fn dialer(&self) -> &Dialer<T, G> {
        &self.dialer
    }

    /// Sends a request and waits for its answer. Connecting goes on when this is given up.
    pub(super) async fn call(
        &self,
        message: Message,
        patience: Duration,
    ) -> Result<Message, CallError> {
        let (answer, answered) = oneshot::channel();
        let call = Call { message, answer };
        let sent = self.line()?.try_send(call);
        if sent.is_err() {
            let reason = format!("{CALLS_MAX} calls are unanswered");
            return Err(CallError::Unreachable(reason));
        }
        match timeout(patience, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(CallError::Unreachable(self.retry.lock().reason.clone())),
            Err(_) => Err(CallError::Late),
        }
    }

    /// The task that has the connection; a new one if there is none and it is time to try again.
    fn line(&self) -> Result<mpsc::Sender<Call>, CallError> {
        let mut calls = self.calls.lock();
        if let Some(line) = calls.as_ref()
            && !line.is_closed()
        {
            return Ok(line.clone());
        }
        {
            let retry = self.retry.lock();
            if retry.not_before.is_some_and(|at| Instant::now() < at) {
                return Err(CallError::Unreachable(retry.reason.clone()));
            }
        }
        let (line, incoming) = mpsc::channel(CALLS_MAX);
        *calls = Some(line.clone());
        let dialer = self.dialer.clone();
        let retry = self.retry.clone();
        tokio::spawn(carry(dialer, incoming, retry));
        Ok(line)
    }
}

/// Connects and carries calls until the connection ends.
async fn carry<T: Transport, G: Gate>(
    dialer: Dialer<T, G>,
    mut calls: mpsc::Receiver<Call>,
    retry: Arc<Mutex<Retry>>,
) {
    // Dropped last, after the reason is written that their callers read.
    let mut waiting = Waiting::new();
    match dialer.dial(Lane::Control).await {
        Ok(connection) => {
            *retry.lock() = Retry::default();
            if let Err(error) = exchange(connection, &mut calls, &mut waiting).await {
                retry.lock().reason = error.to_string();
                dialer.complain(&error);
            }
        }
        Err(error) => {
            let mut retry = retry.lock();
            retry.pause = (retry.pause * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
            retry.not_before = Some(Instant::now() + retry.pause);
            retry.reason = error.to_string();
        }
    }
}

/// Unanswered calls by their ids: when they were sent, and where the answer goes.
type Waiting = BTreeMap<u64, (Instant, oneshot::Sender<Message>)>;

/// `Ok`: idle, or nothing calls any more.
async fn exchange<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    mut connection: Connection<S>,
    calls: &mut mpsc::Receiver<Call>,
    waiting: &mut Waiting,
) -> Result<(), ConnectionError> {
    let mut last_id = 0;
    let mut idle_since = Instant::now();
    let mut is_closing = false;
    loop {
        if is_closing {
            waiting.retain(|_, (_, answer)| !answer.is_closed());
            if waiting.is_empty() {
                return Ok(());
            }
        }
        let (deadline, is_idle) = match waiting.first_key_value() {
            Some((_, (sent, _))) => (*sent + STALL_TIMEOUT, false),
            None => (idle_since + IDLE_TIMEOUT, true),
        };
        tokio::select! {
            biased;
            call = calls.recv(), if !is_closing && waiting.len() < CALLS_MAX => {
                let Some(call) = call else {
                    is_closing = true;
                    continue;
                };
                last_id += 1;
                connection.outbox.message(last_id, &call.message);
                waiting.insert(last_id, (Instant::now(), call.answer));
            }
            frame = connection.frame() => {
                let frame = frame?;
                let Some((_, answer)) = waiting.remove(&frame.id) else {
                    let kind = frame.message.kind();
                    return Err(ConnectionError::OutOfPlace { kind });
                };
                // A caller that has given up does not mind.
                let _ = answer.send(frame.message);
                idle_since = Instant::now();
            }
            () = sleep_until(deadline) => match is_idle {
                // Calls that came in at this moment are still carried; then `recv` says the end.
                true => {
                    calls.close();
                    idle_since = Instant::now();
                }
                false => return Err(ConnectionError::Late("answer")),
            }
        }
    }
}
