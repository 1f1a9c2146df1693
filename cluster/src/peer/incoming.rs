//! Accepting connections, and bounding them.
//!
//! A connection that has not proved itself is one of few: when there are too many, the oldest is
//! closed. One that has takes the place of an earlier one of the same node and lane, whose other
//! end must be gone. So a peer that vanished leaves nothing behind, and the number of connections
//! is bounded without keep-alives.

use super::complaint::Complaints;
use super::key::ClusterKey;
use super::transport::Transport;
use super::{Gate, Image, Lane, hello, serving};
use crate::types::{NodeId, Types};
use openraft::Raft;
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// How many connections may be about to prove themselves.
pub(super) const UNPROVED_MAX: usize = 64;

/// How many connections may ask questions.
pub(super) const ASKING_MAX: usize = 32;

/// The pause after a connection could not be accepted, as when there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves peers until `stop` is ready or the returned future is dropped. Both end all connections.
pub async fn listen<T, G, SM>(
    mut listener: T::Listener,
    transport: T,
    key: ClusterKey,
    gate: Arc<G>,
    raft: Raft<Types, SM>,
    stop: impl Future<Output = ()>,
) where
    T: Transport,
    G: Gate,
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    let hall = Arc::new(Hall {
        key,
        gate,
        raft,
        complaints: Complaints::default(),
        guests: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    let mut last_serial = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => return,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            accepted = transport.accept(&mut listener) => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                last_serial += 1;
                // The task asks for the same lock before it needs its place here.
                let mut guests = hall.guests.lock();
                let task = serve(hall.clone(), stream, address, last_serial);
                guests.arrive(last_serial, tasks.spawn(task));
            }
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                let reason = format!("cannot accept connections of peers: {error}");
                hall.complaints.warn("", reason);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether a connection could not be accepted because its other end is gone. Others can go on.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

/// What all connections share.
struct Hall<G, SM: RaftStateMachine<Types>> {
    key: ClusterKey,
    gate: Arc<G>,
    raft: Raft<Types, SM>,
    complaints: Complaints,
    guests: Mutex<Guests>,
}

async fn serve<S, G, SM>(hall: Arc<Hall<G, SM>>, stream: S, address: String, serial: u64)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send,
    G: Gate,
    SM: RaftStateMachine<Types, SnapshotData = Image>,
{
    let serving = async {
        let (connection, peer, lane) = hello::accept(stream, &hall.key, &*hall.gate).await?;
        hall.guests.lock().prove(serial, peer.node, lane);
        serving::serve(connection, peer, lane, &*hall.gate, &hall.raft).await
    };
    let error = serving.await;
    hall.guests.lock().leave(serial);
    if let Err(error) = error
        && error.is_remarkable()
    {
        hall.complaints.warn(&address, error);
    }
}

/// The connections there are, with what ends them.
#[derive(Default)]
struct Guests {
    unproved: VecDeque<(u64, AbortHandle)>,
    asking: VecDeque<(u64, AbortHandle)>,
    peers: HashMap<(NodeId, Lane), (u64, AbortHandle)>,
}

impl Guests {
    fn arrive(&mut self, serial: u64, task: AbortHandle) {
        push_bounded(&mut self.unproved, (serial, task), UNPROVED_MAX);
    }

    fn prove(&mut self, serial: u64, node: NodeId, lane: Lane) {
        let Some(guest) = remove(&mut self.unproved, serial) else {
            return;
        };
        if lane == Lane::Ask {
            push_bounded(&mut self.asking, guest, ASKING_MAX);
        } else if let Some((_, former)) = self.peers.insert((node, lane), guest) {
            former.abort();
        }
    }

    fn leave(&mut self, serial: u64) {
        remove(&mut self.unproved, serial);
        remove(&mut self.asking, serial);
        self.peers.retain(|_, guest| guest.0 != serial);
    }
}

fn push_bounded(guests: &mut VecDeque<(u64, AbortHandle)>, guest: (u64, AbortHandle), max: usize) {
    if guests.len() >= max
        && let Some((_, oldest)) = guests.pop_front()
    {
        oldest.abort();
    }
    guests.push_back(guest);
}

fn remove(guests: &mut VecDeque<(u64, AbortHandle)>, serial: u64) -> Option<(u64, AbortHandle)> {
    let place = guests.iter().position(|guest| guest.0 == serial)?;
    guests.remove(place)
}
