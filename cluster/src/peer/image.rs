//! The snapshot lane, both sides: one image per connection, in parts. TCP holds the sender back
//! when the receiver is slow; closing the connection cancels.

use super::Image;
use super::connection::{Connection, ConnectionError};
use super::wire::{Message, SnapshotHead};
use crate::codec::DecodeError;
use crate::types::{NodeId, Types, Vote};
use openraft::type_config::alias::SnapshotOf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};

/// A connection that moves no part for so long is given up, and so is one whose peer does not say
/// for so long that it is installing.
pub(super) const PART_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts leave no closer together than this, so that the entries of clients are not held up behind
/// an image: on the network, at the disk of the receiver, and on processors that nodes share.
pub(super) const PART_EVERY: Duration = Duration::from_millis(25);

/// But all pauses between the parts of one image come to no more than this. The log goes on growing
/// meanwhile, and if the leader made it shorter before the image is installed, the receiver would
/// need the next one.
pub(super) const PAUSES_MAX: Duration = Duration::from_secs(2);

/// The log tells of an image's progress whenever so much of it has moved.
const TOLD_BYTES: u64 = 64 << 20;

/// Sends a snapshot, and waits until it is installed or refused; the vote says which.
pub(super) async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<S>,
    target: NodeId,
    vote: Vote,
    snapshot: SnapshotOf<Types, Image>,
) -> Result<Vote, ConnectionError> {
    let image = snapshot.snapshot;
    let head = SnapshotHead::of(vote, snapshot.meta, &image);
    let mut progress = Progress::new("sending", target, head.bytes);
    connection.outbox.message(0, &Message::SnapshotBegin(head));
    let pause = PART_EVERY.min(PAUSES_MAX / image.len().max(1) as u32);
    let mut next_at = Instant::now();
    for (place, part) in image.iter().enumerate() {
        sleep_until(next_at).await;
        next_at = Instant::now() + pause;
        let message = Message::SnapshotPart(part.clone());
        connection.outbox.message(place as u64 + 1, &message);
        in_time(connection.flush()).await?;
        progress.moved(part.len());
    }
    loop {
        match in_time(connection.frame()).await?.message {
            Message::Installing => {}
            Message::Installed(vote) => {
                progress.end();
                return Ok(vote);
            }
            other => return Err(ConnectionError::OutOfPlace { kind: other.kind() }),
        }
    }
}

/// Receives the parts of a snapshot whose head has come.
pub(super) async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    source: NodeId,
    head: SnapshotHead,
) -> Result<SnapshotOf<Types, Image>, ConnectionError> {
    let mut progress = Progress::new("receiving", source, head.bytes);
    let mut parts = Vec::new();
    for place in 1..=u64::from(head.parts) {
        let frame = in_time(connection.frame()).await?;
        match frame.message {
            Message::SnapshotPart(part) if frame.id == place => {
                progress.moved(part.len());
                parts.push(part);
            }
            other => return Err(ConnectionError::OutOfPlace { kind: other.kind() }),
        }
    }
    if progress.bytes != head.bytes {
        return Err(DecodeError {
            field: "bytes of a snapshot",
        }
        .into());
    }
    progress.end();
    Ok(SnapshotOf::<Types, Image> {
        meta: head.meta,
        snapshot: Arc::new(parts),
    })
}

async fn in_time<T>(
    moving: impl Future<Output = Result<T, ConnectionError>>,
) -> Result<T, ConnectionError> {
    match timeout(PART_TIMEOUT, moving).await {
        Ok(moved) => moved,
        Err(_) => Err(ConnectionError::Late("part of a snapshot")),
    }
}

/// What the log tells of a snapshot on its way.
struct Progress {
    doing: &'static str,
    node: NodeId,
    bytes: u64,
    bytes_total: u64,
    bytes_told: u64,
    began: Instant,
}

impl Progress {
    fn new(doing: &'static str, node: NodeId, bytes_total: u64) -> Self {
        Progress {
            doing,
            node,
            bytes: 0,
            bytes_total,
            bytes_told: 0,
            began: Instant::now(),
        }
    }

    fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes - self.bytes_told >= TOLD_BYTES {
            self.bytes_told = self.bytes;
            tracing::info!(
                node = self.node,
                bytes = self.bytes,
                bytes_total = self.bytes_total,
                "{} a snapshot",
                self.doing
            );
        }
    }

    fn end(&self) {
        tracing::info!(
            node = self.node,
            bytes = self.bytes,
            seconds = self.began.elapsed().as_secs_f64(),
            "done {} a snapshot",
            self.doing
        );
    }
}
