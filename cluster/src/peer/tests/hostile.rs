//! Strangers, wrong keys and wrong bytes at a listener, while the cluster goes on.

use super::vectors::{log_id, vote};
use super::*;
use crate::peer::hello;
use crate::peer::incoming::{ASKING_MAX, UNPROVED_MAX};
use crate::peer::wire::{FRAME_BYTES_MAX, Message};
use openraft::errors::RPCError;
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::VoteRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Until the other side closes. A reset counts as closed.
async fn read_to_end(stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    let reading = async {
        loop {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("it stays open")
}

/// Bytes of the kinds that ports on a network get.
fn hostile_bytes() -> Vec<Vec<u8>> {
    let mut all = vec![
        b"GET / HTTP/1.1\r\nHost: fencepost\r\n\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        (FRAME_BYTES_MAX as u32).to_le_bytes().to_vec(),
        u32::MAX.to_le_bytes().to_vec(),
        // An append where the hello belongs.
        [&9u32.to_le_bytes()[..], &[0x10], &[0; 8]].concat(),
        // A hello of another protocol, and one that is cut off in its frame.
        [&13u32.to_le_bytes()[..], &[0x01], &[0; 8], b"FNCP"].concat(),
        [&13u32.to_le_bytes()[..], &[0x01], &[0; 8], b"FNPR"].concat(),
    ];
    let mut seed = 1u64;
    for length in [1, 5, 13, 90, 1000, 5000] {
        let random = (0..length).map(|_| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) as u8
        });
        all.push(random.collect());
    }
    all
}

#[tokio::test]
async fn hostile_bytes_harm_nobody() {
    let (nodes, leader) = three().await;
    write(&nodes[leader].raft, Bytes::from_static(b"before")).await;
    let term = nodes[leader].raft.metrics().borrow_watched().current_term;
    let mut open = Vec::new();
    for node in &nodes {
        for bytes in hostile_bytes() {
            let mut stream = TcpStream::connect(&node.address).await.unwrap();
            let _ = stream.write_all(&bytes).await;
            open.push(stream);
        }
        // And some that say nothing, more than there is room for.
        for _ in 0..UNPROVED_MAX + 10 {
            open.push(TcpStream::connect(&node.address).await.unwrap());
        }
    }
    for number in 0..100u32 {
        let command = Bytes::copy_from_slice(&number.to_le_bytes());
        write(&nodes[leader].raft, command).await;
    }
    all_have(&nodes, 101).await;
    // Every one of them is closed, at the latest when the time for a hello is over.
    for mut stream in open {
        read_to_end(&mut stream).await;
    }
    all_have(&nodes, 101).await;
    let metrics = nodes[leader].raft.metrics();
    assert_eq!(metrics.borrow_watched().current_term, term);
}

/// A peer with the key whose bytes are wrong after the hello loses that connection only.
#[tokio::test]
async fn wrong_bytes_after_the_hello_end_one_connection() {
    let (nodes, leader) = three().await;
    let follower = &nodes[(leader + 1) % 3];
    let candidate = nodes[(leader + 2) % 3].id;
    // The next term of another node: this must not be taken as a vote.
    let for_another = Message::Vote(VoteRequest::new(vote(100, candidate), None));
    let reply = Message::Installing;
    for lane in [Lane::Append, Lane::Control, Lane::Snapshot, Lane::Ask] {
        for message in [None, Some(&for_another), Some(&reply)] {
            let stream = TcpStream::connect(&follower.address).await.unwrap();
            let us = introduction(CLUSTER, 77);
            let admit = |_: &Introduction| Ok(());
            let connected = hello::connect(stream, &key(), us, lane, None, admit).await;
            let mut connection = connected.unwrap();
            match message {
                Some(message) => connection.outbox.message(1, message),
                None => {
                    let junk = Bytes::from_static(b"junk");
                    connection.outbox.put(0x77, 1, |_| {}, &junk);
                }
            }
            let end = timeout(PATIENCE, connection.frame()).await;
            end.expect("it stays open").expect_err("it is not closed");
        }
    }
    write(&nodes[leader].raft, Bytes::from_static(b"after")).await;
    all_have(&nodes, 1).await;
}

async fn pre_vote(peers: &mut Peers<Tcp, TestGate>, node: &Node) -> Result<(), String> {
    let mut network = peers.new_client(node.id, &node.member()).await;
    let request = VoteRequest::new(vote(2, 9), Some(log_id(1, 1, 5)));
    match network.pre_vote(request, RPCOption::new(PATIENCE)).await {
        Ok(_) => Ok(()),
        Err(RPCError::Unreachable(error)) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

fn peers_of(cluster_id: u128, key: ClusterKey) -> Peers<Tcp, TestGate> {
    let gate = TestGate {
        cluster_id,
        node: 9,
    };
    Peers::new(Tcp, key, Arc::new(gate))
}

#[tokio::test]
async fn wrong_keys_and_clusters_are_refused_with_a_sentence() {
    let node = Node::start(2).await;
    pre_vote(&mut peers_of(CLUSTER, key()), &node)
        .await
        .unwrap();
    let other_key = ClusterKey::new([8; 32]);
    let refused = pre_vote(&mut peers_of(CLUSTER, other_key.clone()), &node).await;
    let sentence = refused.unwrap_err();
    assert!(sentence.contains("--cluster-key-file"), "{sentence}");
    let refused = pre_vote(&mut peers_of(CLUSTER + 1, key()), &node).await;
    let sentence = refused.unwrap_err();
    assert!(sentence.contains("of another cluster"), "{sentence}");
    let tool = introduction(CLUSTER, TOOL);
    let question = Bytes::from_static(b"status");
    let refused = ask(&Tcp, &node.address, &other_key, tool, question).await;
    let sentence = refused.unwrap_err().to_string();
    assert!(sentence.contains("--cluster-key-file"), "{sentence}");
}

#[tokio::test]
async fn a_cluster_with_a_node_that_has_another_key_goes_on_without_it() {
    let mut nodes = vec![Node::start(1).await, Node::start(2).await];
    let stranger = Node::start_in(3, CLUSTER, ClusterKey::new([8; 32])).await;
    nodes.push(stranger);
    initialize(&nodes).await;
    let stranger = nodes.pop().unwrap();
    let leader = leader(&nodes).await;
    for number in 0..10u32 {
        let command = Bytes::copy_from_slice(&number.to_le_bytes());
        write(&nodes[leader].raft, command).await;
    }
    all_have(&nodes, 10).await;
    assert!(stranger.state.commands().is_empty());
}

#[tokio::test]
async fn tools_that_stay_make_room_for_later_ones() {
    let node = Node::start(2).await;
    let tool = introduction(CLUSTER, TOOL);
    let mut asking = Vec::new();
    for _ in 0..ASKING_MAX + 5 {
        let stream = TcpStream::connect(&node.address).await.unwrap();
        let admit = |_: &Introduction| Ok(());
        let connected = hello::connect(stream, &key(), tool, Lane::Ask, None, admit).await;
        asking.push(connected.unwrap());
    }
    for connection in &mut asking[..5] {
        let end = timeout(PATIENCE, connection.frame()).await;
        end.expect("it stays open").expect_err("it is not closed");
    }
    let question = Bytes::from_static(b"ab");
    let answer = ask(&Tcp, &node.address, &key(), tool, question).await;
    assert_eq!(answer.unwrap(), &b"ba"[..]);
}
