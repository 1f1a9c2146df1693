//! What openraft does over this wire: elect, replicate, catch up, install, transfer.

use super::*;
use futures_util::future::join_all;

fn numbered(number: u32, length: usize) -> Bytes {
    let mut bytes = vec![0; length.max(4)];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes.into()
}

#[tokio::test]
async fn a_thousand_entries_reach_all_nodes_in_order() {
    let (nodes, leader) = three().await;
    let raft = &nodes[leader].raft;
    write(raft, numbered(0, 4)).await;
    // Many under way, some longer than what is copied into the outbox.
    let lengths = [4, 100, 5000].iter().cycle();
    let writes = (1..1000).zip(lengths).map(|(number, length)| async move {
        let command = Command(numbered(number, *length));
        let written = raft.client_write(command).await.unwrap();
        assert_eq!(written.response(), &COUNTS);
        (written.log_id().index(), number)
    });
    let written = timeout(PATIENCE, join_all(writes)).await;
    let mut written = written.expect("writes hang");
    written.sort_unstable();
    all_have(&nodes, 1000).await;
    let applied = nodes[0].state.commands();
    for (command, (index, number)) in applied[1..].iter().zip(written) {
        let found = u32::from_le_bytes(*command.first_chunk().unwrap());
        assert_eq!(found, number, "at index {index}");
    }
}

#[tokio::test]
async fn a_node_that_was_cut_off_catches_up() {
    let (mut nodes, leader) = three().await;
    let follower = (leader + 1) % 3;
    write(&nodes[leader].raft, numbered(0, 4)).await;
    all_have(&nodes, 1).await;
    nodes[follower].stop_listening().await;
    for number in 1..50 {
        write(&nodes[leader].raft, numbered(number, 4)).await;
    }
    assert_eq!(nodes[follower].state.commands().len(), 1);
    nodes[follower].listen_again().await;
    all_have(&nodes, 50).await;
}

#[tokio::test]
async fn a_request_longer_than_a_frame_is_sent_in_pieces() {
    let (mut nodes, leader) = three().await;
    let follower = (leader + 1) % 3;
    nodes[follower].stop_listening().await;
    for number in 0..12 {
        write(&nodes[leader].raft, numbered(number, 1 << 20)).await;
    }
    nodes[follower].listen_again().await;
    all_have(&nodes, 12).await;
}

#[tokio::test]
async fn a_node_that_is_far_behind_installs_a_snapshot_in_parts() {
    let (mut nodes, leader) = three().await;
    let follower = (leader + 1) % 3;
    nodes[follower].stop_listening().await;
    for number in 0..35 {
        write(&nodes[leader].raft, numbered(number, 100_000)).await;
    }
    let raft = nodes[leader].raft.clone();
    raft.trigger().snapshot().await.unwrap();
    let metrics = raft.metrics();
    until("snapshot", || {
        let snapshot = metrics.borrow_watched().snapshot;
        snapshot.filter(|log_id| log_id.index() >= 35)
    })
    .await;
    raft.trigger().purge_log(30).await.unwrap();
    until("purge", || {
        let purged = metrics.borrow_watched().purged;
        purged.filter(|log_id| log_id.index() >= 30)
    })
    .await;
    nodes[follower].listen_again().await;
    all_have(&nodes, 35).await;
    assert_eq!(nodes[follower].state.parts_installed(), 4);
    // And goes on with the log from there.
    write(&nodes[leader].raft, numbered(35, 4)).await;
    all_have(&nodes, 36).await;
}

#[tokio::test]
async fn leadership_is_handed_over() {
    let (nodes, first) = three().await;
    write(&nodes[first].raft, numbered(0, 4)).await;
    all_have(&nodes, 1).await;
    let heir = (first + 1) % 3;
    let trigger = nodes[first].raft.trigger();
    trigger.transfer_leader(nodes[heir].id).await.unwrap();
    until("hand-over", || {
        let metrics = nodes[heir].raft.metrics();
        let state = metrics.borrow_watched().state;
        (state == ServerState::Leader).then_some(())
    })
    .await;
    write(&nodes[heir].raft, numbered(1, 4)).await;
    all_have(&nodes, 2).await;
}
