//! What openraft sends with: [`Peers`] makes a [`Network`] to a node whenever it asks for one.
//!
//! A network keeps its append connection, shares the control connection with the other networks
//! to the same node, and opens a snapshot connection for each snapshot. Connections are opened
//! when they are first needed, and again at once when they broke.
//!
//! When a node cannot be reached, openraft waits between attempts as long as [`Network::backoff`]
//! says. It waits inside its stream of requests, so the first request is taken before connecting;
//! the other way round it would try without a pause.

use super::complaint::Complaints;
use super::connection::ConnectionError;
use super::control::{CallError, Control};
use super::dialer::{Dialer, Shared, open};
use super::key::ClusterKey;
use super::pipeline::{AppendLine, Pipeline, PipelineError};
use super::transport::Transport;
use super::wire::{ASK_BYTES_MAX, Message};
use super::{Gate, Image, Introduction, Lane, hello, image};
use crate::types::{Member, NodeId, Types, Vote};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryFutureExt, stream};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{
    Backoff, RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential,
};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError,
    StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// openraft's pause before its second attempt at a node, which doubles up to the other.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(25);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How long an answer to a question may take.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Reaches the other nodes of the cluster.
pub struct Peers<T: Transport, G> {
    shared: Arc<Shared<T, G>>,
    /// The control lanes, by node. One is replaced when the node's address changes.
    controls: HashMap<NodeId, Arc<Control<T, G>>>,
}

impl<T: Transport, G: Gate> Peers<T, G> {
    /// Connects to nothing yet.
    pub fn new(transport: T, key: ClusterKey, gate: Arc<G>) -> Self {
        let shared = Shared {
            transport,
            key,
            gate,
            complaints: Complaints::default(),
        };
        Peers {
            shared: Arc::new(shared),
            controls: HashMap::new(),
        }
    }

    fn network(&mut self, target: NodeId, member: &Member, is_heart: bool) -> Network<T, G> {
        let control = match self.controls.get(&target) {
            Some(control) if control.dialer().address == member.peer => control.clone(),
            _ => {
                let dialer = Dialer {
                    shared: self.shared.clone(),
                    target,
                    address: member.peer.as_str().into(),
                };
                let control = Arc::new(Control::new(dialer));
                self.controls.insert(target, control.clone());
                control
            }
        };
        Network {
            control,
            appends: Mutex::new(None),
            is_heart,
        }
    }
}

impl<T: Transport, G: Gate> RaftNetworkFactory<Types> for Peers<T, G> {
    type Network = Network<T, G>;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> Network<T, G> {
        self.network(target, node, false)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, node: &Member) -> Network<T, G> {
        self.network(target, node, true)
    }
}

/// Sends openraft's messages to one node.
pub struct Network<T: Transport, G> {
    control: Arc<Control<T, G>>,
    /// Never contended: the lock makes a stream that only one thread may use at a time usable by
    /// several, as openraft demands.
    appends: Mutex<Option<AppendLine<T::Stream>>>,
    /// Carries heartbeats, on the control lane.
    is_heart: bool,
}

impl<T: Transport, G: Gate> Network<T, G> {
    fn dialer(&self) -> &Dialer<T, G> {
        self.control.dialer()
    }

    async fn call(
        &self,
        action: RPCTypes,
        message: Message,
        option: &RPCOption,
    ) -> Result<Message, RPCError<Types>> {
        let patience = option.soft_ttl();
        match self.control.call(message, patience).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Unreachable(reason)) => Err(unreachable(&reason)),
            Err(CallError::Late) => Err(RPCError::Timeout(Timeout {
                action,
                id: self.dialer().shared.gate.introduce().node,
                target: self.dialer().target,
                timeout: patience,
            })),
        }
    }

    /// Opens the append connection, unless it is.
    async fn connect(&mut self) -> Result<(), RPCError<Types>> {
        if self.appends.get_mut().is_some() {
            return Ok(());
        }
        match self.dialer().dial(Lane::Append).await {
            Ok(connection) => {
                *self.appends.get_mut() = Some(AppendLine::new(connection));
                Ok(())
            }
            Err(error) => Err(unreachable(&error)),
        }
    }

    /// Begins a stream of appends, with the first request at hand.
    async fn pipeline<'s, I>(
        &'s mut self,
        mut input: I,
    ) -> Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>
    where
        I: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        let Some(first) = input.next().await else {
            return Ok(Box::pin(stream::empty()));
        };
        self.connect().await?;
        let Network {
            control, appends, ..
        } = self;
        let dialer = control.dialer();
        let pipeline = Pipeline::new(appends.get_mut(), first, input)
            .map_err(|error| append_error(dialer, error))?;
        let results = pipeline.map(|result| result.map_err(|error| append_error(dialer, error)));
        Ok(Box::pin(results))
    }
}

fn unreachable(reason: &impl fmt::Display) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

/// A connection that broke is opened again at once; whether that works decides about pauses.
fn append_error<T: Transport, G: Gate>(
    dialer: &Dialer<T, G>,
    error: PipelineError,
) -> RPCError<Types> {
    match &error {
        PipelineError::Connection(cause) if !cause.is_remarkable() => {
            RPCError::Network(NetworkError::from_string(error))
        }
        PipelineError::Connection(cause) => {
            dialer.complain(cause);
            unreachable(&error)
        }
        PipelineError::TooLong { .. } => {
            tracing::error!("{error}");
            unreachable(&error)
        }
    }
}

/// The peer answered with a message of the wrong kind.
fn wrong_answer(message: &Message) -> RPCError<Types> {
    let kind = message.kind();
    unreachable(&ConnectionError::OutOfPlace { kind })
}

impl<T: Transport, G: Gate> RaftNetworkV2<Types> for Network<T, G> {
    type SnapshotData = Image;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let message = Message::Append(0, rpc);
        match self.call(RPCTypes::AppendEntries, message, &option).await? {
            Message::Appended(Ok(_)) => Ok(AppendEntriesResponse::Success),
            Message::Appended(Err(StreamAppendError::Conflict(_))) => {
                Ok(AppendEntriesResponse::Conflict)
            }
            Message::Appended(Err(StreamAppendError::HigherVote(vote))) => {
                Ok(AppendEntriesResponse::HigherVote(vote))
            }
            other => Err(wrong_answer(&other)),
        }
    }

    fn stream_append<'s, I>(
        &'s mut self,
        input: I,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        I: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        if self.is_heart {
            return stream_append_sequential(self, input, option);
        }
        // Everything happens in the stream: only while openraft waits for it does it notice that
        // it should stop.
        let results = self.pipeline(input).try_flatten_stream();
        Box::pin(async move { Ok(Box::pin(results) as BoxStream<'s, _>) })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self
            .call(RPCTypes::Vote, Message::Vote(rpc), &option)
            .await?
        {
            Message::Voted(response) => Ok(response),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self
            .call(RPCTypes::Vote, Message::PreVote(rpc), &option)
            .await?
        {
            Message::Voted(response) => Ok(response),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let message = Message::Transfer(request);
        match self
            .call(RPCTypes::TransferLeader, message, &option)
            .await?
        {
            Message::Transferred(response) => Ok(response),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Types, Image>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let dialer = self.dialer();
        let patience = option.soft_ttl();
        let sending = async {
            let connection = dialer.dial(Lane::Snapshot).await?;
            let sent = image::send(connection, dialer.target, vote, snapshot).await;
            sent.inspect_err(|error| dialer.complain(error))
        };
        let sent = tokio::select! {
            closed = cancel => return Err(StreamingError::Closed(closed)),
            sent = timeout(patience, sending) => sent,
        };
        match sent {
            Ok(Ok(vote)) => Ok(SnapshotResponse::new(vote)),
            Ok(Err(error)) => Err(StreamingError::Unreachable(Unreachable::from_string(error))),
            Err(_) => Err(StreamingError::Timeout(Timeout {
                action: RPCTypes::InstallSnapshot,
                id: dialer.shared.gate.introduce().node,
                target: dialer.target,
                timeout: patience,
            })),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        let doubled = |pause: &Duration| Some((*pause * 2).min(BACKOFF_MAX));
        let pauses = std::iter::successors(Some(BACKOFF_MIN), doubled);
        Some(Backoff::new(pauses))
    }
}

/// Why a question has no answer.
#[derive(Debug)]
pub enum AskError {
    /// The question is too long, which is a mistake of the asking side.
    TooLong {
        /// Its bytes.
        question_bytes: usize,
    },
    /// Node and asker do not talk to each other: most often the cluster key is another one.
    Refused {
        /// The address that was asked.
        address: String,
        /// What one of them said.
        reason: String,
    },
    /// There is no connection, or the node did not answer; with the sentence for the operator.
    NoAnswer {
        /// The address that was asked.
        address: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::TooLong { question_bytes } => write!(
                f,
                "a question of {question_bytes} bytes is longer than {ASK_BYTES_MAX}"
            ),
            AskError::Refused { address, reason } => write!(f, "{address} refused: {reason}"),
            AskError::NoAnswer { address, reason } => {
                write!(f, "no answer from {address}: {reason}")
            }
        }
    }
}

impl std::error::Error for AskError {}

/// Asks the node at an address one question, on a connection of its own. Tools introduce
/// themselves as [`super::TOOL`].
pub async fn ask<T: Transport>(
    transport: &T,
    address: &str,
    key: &ClusterKey,
    who: Introduction,
    question: Bytes,
) -> Result<Bytes, AskError> {
    if question.len() > ASK_BYTES_MAX {
        return Err(AskError::TooLong {
            question_bytes: question.len(),
        });
    }
    let asking = async {
        let stream = open(transport, address).await?;
        let mut connection = hello::connect(stream, key, who, Lane::Ask, None, |_| Ok(())).await?;
        connection.outbox.message(1, &Message::Question(question));
        let frame = connection.frame().await?;
        match frame.message {
            Message::Answer(answer) if frame.id == 1 => Ok(answer),
            other => Err(ConnectionError::OutOfPlace { kind: other.kind() }),
        }
    };
    let asked = timeout(ANSWER_TIMEOUT, asking).await;
    let answer = asked.unwrap_or(Err(ConnectionError::Late("answer")));
    let address = address.to_string();
    answer.map_err(|error| match error {
        ConnectionError::Refused(reason) | ConnectionError::Unwanted(reason) => {
            AskError::Refused { address, reason }
        }
        error => AskError::NoAnswer {
            address,
            reason: error.to_string(),
        },
    })
}
