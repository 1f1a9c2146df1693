//! Connections one by one: what leaves together, what is skipped, what ends with what.

use super::vectors::{entry, log_id, vote};
use super::*;
use crate::peer::connection::Connection;
use crate::peer::hello;
use crate::peer::wire::Message;
use crate::types::{SnapshotMeta, StoredMembership};
use futures_util::{StreamExt, stream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, VoteRequest};
use openraft::type_config::alias::SnapshotOf;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// TCP whose open connections and writes are counted.
#[derive(Clone, Default)]
struct Counted {
    open: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
}

impl Counted {
    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

struct CountedStream {
    stream: TcpStream,
    counts: Counted,
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Transport for Counted {
    type Stream = CountedStream;
    type Listener = TcpListener;

    async fn connect(&self, address: &str) -> io::Result<CountedStream> {
        let stream = Tcp.connect(address).await?;
        self.open.fetch_add(1, Ordering::SeqCst);
        let counts = self.clone();
        Ok(CountedStream { stream, counts })
    }

    async fn accept(&self, _: &mut TcpListener) -> io::Result<(CountedStream, String)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.counts.writes.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn option() -> RPCOption {
    RPCOption::new(PATIENCE)
}

fn gate(node: NodeId) -> Arc<TestGate> {
    Arc::new(TestGate {
        cluster_id: CLUSTER,
        node,
    })
}

/// An append of one entry by node 1 in term 1.
fn append(index: u64) -> AppendEntriesRequest<Types> {
    AppendEntriesRequest {
        vote: vote(1, 1),
        prev_log_id: index.checked_sub(1).map(|index| log_id(1, 1, index)),
        entries: vec![entry(log_id(1, 1, index), vec![7; 3000])],
        leader_commit: None,
    }
}

async fn append_all<G: Gate, T: Transport>(
    network: &mut Network<T, G>,
    requests: Vec<AppendEntriesRequest<Types>>,
) -> Vec<String> {
    let input = stream::iter(requests);
    let results = network.stream_append(input, option()).await.unwrap();
    let results = results.map(|result| match result {
        Ok(Ok(end)) => format!("{}", end.unwrap().index()),
        Ok(Err(StreamAppendError::Conflict(at))) => format!("conflict at {}", at.index()),
        Ok(Err(StreamAppendError::HigherVote(_))) => "higher vote".to_string(),
        Err(RPCError::Unreachable(_)) => "unreachable".to_string(),
        Err(RPCError::Network(_)) => "broken".to_string(),
        Err(other) => panic!("{other}"),
    });
    timeout(PATIENCE, results.collect())
        .await
        .expect("appends hang")
}

#[tokio::test]
async fn connections_outlive_streams_and_end_with_what_has_them() {
    let node = Node::start(2).await;
    let counted = Counted::default();
    let mut peers = Peers::new(counted.clone(), key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    assert_eq!(counted.open(), 0);
    assert_eq!(append_all(&mut network, vec![append(0)]).await, ["0"]);
    assert_eq!(append_all(&mut network, vec![append(1)]).await, ["1"]);
    assert_eq!(append_all(&mut network, vec![]).await, [""; 0]);
    assert_eq!(counted.open(), 1);
    // Votes of other networks share one connection.
    for term in 2..5 {
        let mut voter = peers.new_client(2, &node.member()).await;
        let request = VoteRequest::new(vote(term, 1), Some(log_id(1, 1, 1)));
        voter.pre_vote(request, option()).await.unwrap();
    }
    assert_eq!(counted.open(), 2);
    drop(network);
    assert_eq!(counted.open(), 1);
    drop(peers);
    until("end of the control connection", || {
        (counted.open() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_that_are_ready_leave_together() {
    let node = Node::start(2).await;
    let counted = Counted::default();
    let mut peers = Peers::new(counted.clone(), key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    append_all(&mut network, vec![append(0)]).await;
    let before = counted.writes.load(Ordering::SeqCst);
    let answers = append_all(&mut network, (1..=20).map(append).collect()).await;
    assert_eq!(answers.len(), 20);
    assert_eq!(counted.writes.load(Ordering::SeqCst) - before, 1);
}

/// A request that only says how far the log is committed.
fn news(committed: u64) -> AppendEntriesRequest<Types> {
    AppendEntriesRequest {
        vote: vote(1, 1),
        prev_log_id: Some(log_id(1, 1, committed)),
        entries: Vec::new(),
        leader_commit: Some(log_id(1, 1, committed)),
    }
}

#[tokio::test]
async fn news_of_a_commit_travel_with_entries() {
    let node = Node::start(2).await;
    let mut peers = Peers::new(Tcp, key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    let mut last = append(2);
    last.leader_commit = Some(log_id(1, 1, 1));
    let requests = vec![append(0), append(1), news(0), news(1), last];
    // What openraft hears of an entry goes for all requests before it.
    assert_eq!(append_all(&mut network, requests).await, ["0", "1", "2"]);
    all_have(std::slice::from_ref(&node), 2).await;
}

#[tokio::test]
async fn news_of_a_commit_that_no_entry_follows_are_told_all_the_same() {
    let node = Node::start(2).await;
    let mut peers = Peers::new(Tcp, key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    // The stream goes on, as it does while a leader has nothing to send.
    let requests = vec![append(0), append(1), news(0), news(1)];
    let input = stream::iter(requests).chain(stream::pending());
    let mut results = network.stream_append(input, option()).await.unwrap();
    for expected in [0, 1, 1] {
        let result = timeout(PATIENCE, results.next()).await.expect("no answer");
        let end = result.unwrap().unwrap().unwrap();
        assert_eq!(end.unwrap().index(), expected);
    }
    all_have(std::slice::from_ref(&node), 2).await;
    drop(results);
    // At the end of a stream they are told at once.
    let answers = append_all(&mut network, vec![append(2), news(2)]).await;
    assert_eq!(answers, ["2", "2"]);
    all_have(&[node], 3).await;
}

#[tokio::test]
async fn a_stream_that_ends_in_a_conflict_leaves_the_connection_to_the_next() {
    let node = Node::start(2).await;
    let counted = Counted::default();
    let mut peers = Peers::new(counted.clone(), key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    // The node has nothing, so entry 10 does not follow; the rest of the stream is not answered.
    let requests = (10..20).map(append).collect();
    let answers = append_all(&mut network, requests).await;
    assert_eq!(answers, ["conflict at 9"]);
    let answers = append_all(&mut network, vec![append(0), append(1)]).await;
    assert_eq!(answers, ["0", "1"]);
    assert_eq!(counted.open(), 1);
}

/// openraft drops a stream when it is to stop, with requests under way.
#[tokio::test]
async fn answers_to_a_stream_that_was_dropped_are_skipped() {
    let node = Node::start(2).await;
    let counted = Counted::default();
    let mut peers = Peers::new(counted.clone(), key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    assert_eq!(append_all(&mut network, vec![append(0)]).await, ["0"]);
    for round in 0..20 {
        let requests: Vec<_> = (1..=10).map(append).collect();
        let input = stream::iter(requests);
        let mut results = network.stream_append(input, option()).await.unwrap();
        for _ in 0..round % 5 {
            results.next().await.unwrap().unwrap().unwrap();
        }
        // Sent, or partly so, and not answered.
        let _ = futures_util::poll!(results.next());
        drop(results);
        let number = 11 + round;
        let answers = append_all(&mut network, (1..=number).map(append).collect()).await;
        let expected: Vec<String> = (1..=number).map(|index| index.to_string()).collect();
        assert_eq!(answers, expected);
    }
    assert_eq!(counted.open(), 1);
}

/// A node that proves itself, reads everything and answers nothing, as a stopped process does.
async fn silent_node(listener: TcpListener) {
    let mut connections: Vec<Connection<TcpStream>> = Vec::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (connection, ..) = hello::accept(stream, &key(), &*gate(2)).await.unwrap();
        connections.push(connection);
    }
}

#[tokio::test]
async fn a_silent_node_is_given_up_and_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = Member {
        peer: listener.local_addr().unwrap().to_string(),
        ..Member::default()
    };
    tokio::spawn(silent_node(listener));
    let counted = Counted::default();
    let mut peers = Peers::new(counted.clone(), key(), gate(1));
    let mut network = peers.new_client(2, &member).await;
    let mut voter = peers.new_client(2, &member).await;
    let voting = voter.vote(VoteRequest::new(vote(2, 1), None), option());
    let (answers, voted) = tokio::join!(append_all(&mut network, vec![append(0)]), voting);
    assert_eq!(answers, ["unreachable"]);
    assert!(matches!(voted, Err(RPCError::Unreachable(_))), "{voted:?}");
    assert_eq!(counted.open(), 0);
}

#[tokio::test]
async fn a_snapshot_that_is_cancelled_ends_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = Member {
        peer: listener.local_addr().unwrap().to_string(),
        ..Member::default()
    };
    tokio::spawn(silent_node(listener));
    let counted = Counted::default();
    let mut peers = Peers::new(counted.clone(), key(), gate(1));
    let mut network = peers.new_client(2, &member).await;
    // More than the sockets between them hold, and the other side reads nothing.
    let part = Bytes::from(vec![7; SNAPSHOT_PART_BYTES]);
    let image: Image = Arc::new(vec![part; 100]);
    let snapshot = SnapshotOf::<Types, Image> {
        meta: SnapshotMeta {
            last_log_id: Some(log_id(1, 1, 5)),
            last_membership: StoredMembership::default(),
        },
        snapshot: image,
    };
    let sending = counted.clone();
    let cancel = async move {
        let under_way = || (sending.writes.load(Ordering::SeqCst) > 5).then_some(());
        until("snapshot under way", under_way).await;
        ReplicationClosed::new("cancelled")
    };
    let sent = network
        .full_snapshot(vote(1, 1), snapshot, cancel, option())
        .await;
    assert!(matches!(sent, Err(StreamingError::Closed(_))), "{sent:?}");
    assert_eq!(counted.open(), 0);
}

#[tokio::test]
async fn a_connection_that_broke_is_opened_again_at_once() {
    let mut node = Node::start(2).await;
    let mut peers = Peers::new(Tcp, key(), gate(1));
    let mut network = peers.new_client(2, &node.member()).await;
    assert_eq!(append_all(&mut network, vec![append(0)]).await, ["0"]);
    let request = || VoteRequest::new(vote(1, 1), Some(log_id(1, 1, 0)));
    network.pre_vote(request(), option()).await.unwrap();
    node.stop_listening().await;
    assert_eq!(append_all(&mut network, vec![append(1)]).await, ["broken"]);
    assert_eq!(
        append_all(&mut network, vec![append(1)]).await,
        ["unreachable"]
    );
    node.listen_again().await;
    assert_eq!(append_all(&mut network, vec![append(1)]).await, ["1"]);
    network.pre_vote(request(), option()).await.unwrap();
}

#[tokio::test]
async fn questions_are_answered_in_order() {
    let node = Node::start(2).await;
    let tool = introduction(CLUSTER, TOOL);
    for question in ["status", "", "x"] {
        let question = Bytes::from(question);
        let answer = ask(&Tcp, &node.address, &key(), tool, question.clone()).await;
        let reversed: Bytes = question.iter().rev().copied().collect();
        assert_eq!(answer.unwrap(), reversed);
    }
    let long = Bytes::from(vec![1; 4 << 20]);
    let answer = ask(&Tcp, &node.address, &key(), tool, long).await.unwrap();
    assert_eq!(answer.len(), 4 << 20);
    // Several on one connection.
    let stream = Tcp.connect(&node.address).await.unwrap();
    let admit = |_: &Introduction| Ok(());
    let asking = hello::connect(stream, &key(), tool, Lane::Ask, None, admit).await;
    let mut asking = asking.unwrap();
    for id in 1..=3 {
        let question = Message::Question(Bytes::from(format!("{id}+")));
        asking.outbox.message(id, &question);
    }
    for id in 1..=3 {
        let frame = asking.frame().await.unwrap();
        assert_eq!(frame.id, id);
        assert!(matches!(frame.message, Message::Answer(answer) if answer == format!("+{id}")));
    }
}
