//! The lanes, receiving side: requests of peers are handed to openraft, and its results go back.

use super::connection::{Connection, ConnectionError};
use super::control::CALLS_MAX;
use super::pipeline::APPENDS_MAX;
use super::wire::{ASK_BYTES_MAX, Frame, Message};
use super::{Gate, Image, Introduction, Lane, image};
use crate::types::{NodeId, Types};
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt, stream};
use openraft::Raft;
use openraft::base::BoxStream;
use openraft::errors::Fatal;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
};
use openraft::storage::RaftStateMachine;
use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A connection that asks nothing for so long is closed.
pub(super) const ASK_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a node that installs a snapshot says that it does. Several times in `PART_TIMEOUT`.
pub(super) const INSTALLING_PERIOD: Duration = Duration::from_secs(2);

/// How long a snapshot's head may take after the hello.
pub(super) const SNAPSHOT_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a connection that has proved itself, until it ends.
pub(super) async fn serve<S, G, SM>(
    connection: Connection<S>,
    peer: Introduction,
    lane: Lane,
    gate: &G,
    raft: &Raft<Types, SM>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    G: Gate,
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    match lane {
        Lane::Append => append(connection, peer.node, raft).await,
        Lane::Control => control(connection, peer.node, raft).await,
        Lane::Snapshot => snapshot(connection, peer.node, raft).await,
        Lane::Ask => answer(connection, gate).await,
    }
}

/// A request must speak for the node that sends it: two nodes under one number would otherwise
/// mix their votes up.
fn check_speaker(frame: &Frame, peer: NodeId) -> Result<(), ConnectionError> {
    match frame.message.speaker() {
        Some(node) if node != peer => Err(ConnectionError::SpeaksFor { node }),
        _ => Ok(()),
    }
}

fn out_of_place(message: &Message) -> ConnectionError {
    ConnectionError::OutOfPlace {
        kind: message.kind(),
    }
}

/// The append lane.
///
/// One pipeline of openraft's serves all streams of the connection until one ends in an error;
/// openraft has then ended the pipeline, too. What follows of that stream is dropped, as its
/// sender knows, and the next stream gets a new pipeline. A stream waits for the answers to the
/// one before it, so an error always belongs to the stream at hand.
async fn append<S, SM>(
    mut connection: Connection<S>,
    peer: NodeId,
    raft: &Raft<Types, SM>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    let mut pipeline: Option<Feed> = None;
    let mut current = 0;
    let mut broken = None;
    let mut next: Option<(u64, u64, AppendEntriesRequest<Types>)> = None;
    loop {
        let unanswered = pipeline.as_ref().map_or(0, |feed| feed.unanswered.len());
        if let Some((id, number, request)) =
            next.take_if(|(_, number, _)| *number == current || unanswered == 0)
        {
            current = number;
            if broken != Some(number) {
                let feed = pipeline.get_or_insert_with(|| Feed::new(raft));
                feed.push(id, request)?;
            }
            continue;
        }
        let may_read = next.is_none() && unanswered < APPENDS_MAX;
        tokio::select! {
            biased;
            (id, result) = Feed::result(&mut pipeline), if unanswered > 0 => {
                let result = result?;
                if result.is_err() {
                    broken = Some(current);
                    pipeline = None;
                }
                connection.outbox.message(id, &Message::Appended(result));
            }
            frame = connection.frame_if(may_read) => {
                let frame = frame?;
                check_speaker(&frame, peer)?;
                let Message::Append(number, request) = frame.message else {
                    return Err(out_of_place(&frame.message));
                };
                next = Some((frame.id, number, request));
            }
        }
    }
}

/// Requests into openraft, and their results out of it, in order.
struct Feed {
    requests: mpsc::Sender<AppendEntriesRequest<Types>>,
    results: BoxStream<'static, Result<StreamAppendResult<Types>, Fatal<Types>>>,
    unanswered: VecDeque<u64>,
}

impl Feed {
    fn new<SM>(raft: &Raft<Types, SM>) -> Self
    where
        SM: RaftStateMachine<Types, SnapshotData = Image>,
    {
        let (requests, queue) = mpsc::channel(APPENDS_MAX);
        Feed {
            requests,
            results: Box::pin(raft.stream_append(queued(queue))),
            unanswered: VecDeque::new(),
        }
    }

    fn push(
        &mut self,
        id: u64,
        request: AppendEntriesRequest<Types>,
    ) -> Result<(), ConnectionError> {
        // There is room, as no more than that are unanswered. It is closed when openraft stops.
        let sent = self.requests.try_send(request);
        sent.map_err(|_| ConnectionError::Stopped)?;
        self.unanswered.push_back(id);
        Ok(())
    }

    /// The next result and the request it is for. There must be an unanswered one.
    async fn result(
        feed: &mut Option<Feed>,
    ) -> (u64, Result<StreamAppendResult<Types>, ConnectionError>) {
        let feed = feed.as_mut().expect("something is unanswered");
        let result = feed.results.next().await;
        let id = feed
            .unanswered
            .pop_front()
            .expect("something is unanswered");
        match result {
            Some(Ok(result)) => (id, Ok(result)),
            Some(Err(_)) | None => (id, Err(ConnectionError::Stopped)),
        }
    }
}

fn queued<T: Send + 'static>(queue: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send + 'static {
    stream::unfold(queue, async |mut queue| {
        queue.recv().await.map(|item| (item, queue))
    })
}

/// The control lane: calls are answered as openraft is done with them.
async fn control<S, SM>(
    mut connection: Connection<S>,
    peer: NodeId,
    raft: &Raft<Types, SM>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    let mut calls = FuturesUnordered::new();
    loop {
        let may_read = calls.len() < CALLS_MAX;
        tokio::select! {
            biased;
            Some(answer) = calls.next(), if !calls.is_empty() => {
                let (id, message): (u64, Message) = answer?;
                connection.outbox.message(id, &message);
            }
            frame = connection.frame_if(may_read) => {
                let frame = frame?;
                check_speaker(&frame, peer)?;
                calls.push(call(frame, raft));
            }
        }
    }
}

async fn call<SM>(frame: Frame, raft: &Raft<Types, SM>) -> Result<(u64, Message), ConnectionError>
where
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    let answer = match frame.message {
        Message::Append(_, request) => {
            let prev = request.prev_log_id;
            let last = request.entries.last().map(|entry| entry.log_id).or(prev);
            let response = raft.append_entries(request).await.map_err(stopped)?;
            Message::Appended(match (response, prev) {
                (AppendEntriesResponse::Success, _) => Ok(last),
                (AppendEntriesResponse::PartialSuccess(end), _) => Ok(end),
                (AppendEntriesResponse::HigherVote(vote), _) => {
                    Err(StreamAppendError::HigherVote(vote))
                }
                (AppendEntriesResponse::Conflict, Some(prev)) => {
                    Err(StreamAppendError::Conflict(prev))
                }
                // Nothing can be in conflict with nothing.
                (AppendEntriesResponse::Conflict, None) => return Err(ConnectionError::Stopped),
            })
        }
        Message::Vote(request) => Message::Voted(raft.vote(request).await.map_err(stopped)?),
        Message::PreVote(request) => Message::Voted(raft.pre_vote(request).await.map_err(stopped)?),
        Message::Transfer(request) => {
            let response = raft.handle_transfer_leader(request).await;
            Message::Transferred(response.map_err(stopped)?)
        }
        other => return Err(out_of_place(&other)),
    };
    Ok((frame.id, answer))
}

/// openraft gives errors to peers' requests only when it stops, and says why in the log.
fn stopped<E>(_: E) -> ConnectionError {
    ConnectionError::Stopped
}

/// The snapshot lane.
async fn snapshot<S, SM>(
    mut connection: Connection<S>,
    peer: NodeId,
    raft: &Raft<Types, SM>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    let Ok(frame) = timeout(SNAPSHOT_HEAD_TIMEOUT, connection.frame()).await else {
        return Err(ConnectionError::Late("head of a snapshot"));
    };
    let frame = frame?;
    check_speaker(&frame, peer)?;
    let Message::SnapshotBegin(head) = frame.message else {
        return Err(out_of_place(&frame.message));
    };
    let vote = head.vote;
    let snapshot = image::receive(&mut connection, peer, head).await?;
    let mut installing = pin!(raft.install_full_snapshot(vote, snapshot));
    let installed = loop {
        tokio::select! {
            installed = &mut installing => break installed,
            () = sleep(INSTALLING_PERIOD) => {
                connection.outbox.message(frame.id, &Message::Installing);
                connection.flush().await?;
            }
        }
    };
    let response = installed.map_err(stopped)?;
    let message = Message::Installed(response.vote);
    connection.outbox.message(frame.id, &message);
    connection.flush().await?;
    // The peer closes when it has heard it.
    match timeout(SNAPSHOT_HEAD_TIMEOUT, connection.frame()).await {
        Ok(Ok(frame)) => Err(out_of_place(&frame.message)),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(()),
    }
}

/// The ask lane.
async fn answer<S, G>(mut connection: Connection<S>, gate: &G) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    G: Gate,
{
    loop {
        let Ok(frame) = timeout(ASK_IDLE_TIMEOUT, connection.frame()).await else {
            return Ok(());
        };
        let frame = frame?;
        let Message::Question(question) = frame.message else {
            return Err(out_of_place(&frame.message));
        };
        let mut answer = gate.answer(question).await;
        if answer.len() > ASK_BYTES_MAX {
            let answer_bytes = answer.len();
            tracing::error!(answer_bytes, "an answer is too long to be sent");
            answer = Bytes::new();
        }
        connection
            .outbox
            .message(frame.id, &Message::Answer(answer));
    }
}
