//! The hello: two nodes prove to each other that they know the cluster key, before anything else.
//!
//! ```text
//! connector                                                       acceptor
//!    | Hello: magic, introduction, lane, challenge                    |
//!    |--------------------------------------------------------------->|
//!    |       Challenge: introduction, challenge, proof as acceptor    |
//!    |<---------------------------------------------------------------|
//!    | Proof: proof as connector                                      |
//!    |--------------------------------------------------------------->|
//!    |                                            Welcome             |
//!    |<---------------------------------------------------------------|
//! ```
//!
//! Either side may send `Refused` with a sentence instead, and closes. A proof is HMAC-SHA-256
//! under the cluster key of: a label, the role (so that a proof cannot be sent back to the node
//! it came from), both challenges (so that none can be used again), the lane, both introductions.
//! What follows the hello is neither signed nor encrypted.
//!
//! A magic number and the version stand first and will stay there, so that nodes of any two
//! versions can tell each other that they do not fit.

use super::connection::{Connection, ConnectionError};
use super::key::{ClusterKey, KEY_BYTES};
use super::wire::{FRAME_BYTES_MAX, kind};
use super::{Gate, HELLO_TIMEOUT, Introduction, Lane, TOOL, WIRE_VERSION, WIRE_VERSION_MIN};
use crate::codec::{DecodeError, Reader};
use crate::types::NodeId;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// The longest frame of a connection that has not proved itself.
pub(super) const HELLO_BYTES_MAX: usize = 1024;

/// The longest sentence of a refusal; a longer one is cut off.
pub(super) const REASON_BYTES_MAX: usize = 600;

pub(super) const MAGIC: [u8; 4] = *b"FNPR";
pub(super) const LABEL: &[u8] = b"fencepost peer hello";
pub(super) const CHALLENGE_BYTES: usize = 32;
pub(super) const INTRODUCTION_BYTES: usize = 2 + 2 + 16 + 8 + 8;

/// What of a frame is wrong that no hello has.
const KIND: &str = "kind of a frame";

/// Which side says a proof.
#[derive(Clone, Copy)]
enum Role {
    Connector = 1,
    Acceptor = 2,
}

/// Everything that a proof is about.
struct Transcript {
    lane: Lane,
    connector: Introduction,
    acceptor: Introduction,
    connector_challenge: [u8; CHALLENGE_BYTES],
    acceptor_challenge: [u8; CHALLENGE_BYTES],
}

impl Transcript {
    fn with_parts<T>(&self, role: Role, with: impl FnOnce(&[&[u8]]) -> T) -> T {
        with(&[
            LABEL,
            &[role as u8, self.lane.code()],
            &self.connector_challenge,
            &self.acceptor_challenge,
            &introduction_bytes(&self.connector),
            &introduction_bytes(&self.acceptor),
        ])
    }

    fn prove(&self, key: &ClusterKey, role: Role) -> [u8; KEY_BYTES] {
        self.with_parts(role, |parts| key.prove(parts))
    }

    fn is_proof(&self, key: &ClusterKey, role: Role, proof: &[u8; KEY_BYTES]) -> bool {
        self.with_parts(role, |parts| key.is_proof(parts, proof))
    }
}

/// Says hello on a connection that this node opened. `target`: which node must be there.
pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    key: &ClusterKey,
    us: Introduction,
    lane: Lane,
    target: Option<NodeId>,
    admit: impl Fn(&Introduction) -> Result<(), String>,
) -> Result<Connection<S>, ConnectionError> {
    let mut connection = Connection::new(stream, HELLO_BYTES_MAX);
    let hello = connect_in_time(&mut connection, key, us, lane, target, admit);
    match timeout(HELLO_TIMEOUT, hello).await {
        Ok(Ok(())) => {
            connection.raise_frame_bytes_max(FRAME_BYTES_MAX);
            Ok(connection)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ConnectionError::Late("hello")),
    }
}

async fn connect_in_time<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    key: &ClusterKey,
    us: Introduction,
    lane: Lane,
    target: Option<NodeId>,
    admit: impl Fn(&Introduction) -> Result<(), String>,
) -> Result<(), ConnectionError> {
    let connector_challenge = random();
    send(connection, kind::HELLO, |out| {
        out.put_slice(&MAGIC);
        out.put_slice(&introduction_bytes(&us));
        out.put_u8(lane.code());
        out.put_slice(&connector_challenge);
    })
    .await?;

    let mut reader = receive(connection, kind::CHALLENGE).await?;
    let acceptor = read_introduction(&mut reader)?;
    if let Err(reason) = fits(&us, &acceptor) {
        return refuse(connection, reason).await;
    }
    let transcript = Transcript {
        lane,
        connector: us,
        acceptor,
        connector_challenge,
        acceptor_challenge: array(&mut reader, "challenge")?,
    };
    let proof = array(&mut reader, "proof")?;
    reader.end("end of a challenge")?;
    if !transcript.is_proof(key, Role::Acceptor, &proof) {
        return refuse(connection, other_key(&acceptor)).await;
    }
    if let Some(target) = target
        && acceptor.node != target
    {
        let reason = format!(
            "node {} is at the address of node {target}: check the addresses of --peers, and \
             correct a member's with `fencepost cluster add`",
            acceptor.node
        );
        return refuse(connection, reason).await;
    }
    if let Err(reason) = admit(&acceptor) {
        return refuse(connection, reason).await;
    }

    let proof = transcript.prove(key, Role::Connector);
    send(connection, kind::PROOF, |out| out.put_slice(&proof)).await?;
    receive(connection, kind::WELCOME)
        .await?
        .end("end of a welcome")?;
    Ok(())
}

/// Hears the hello of a connection that this node accepted.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    key: &ClusterKey,
    gate: &impl Gate,
) -> Result<(Connection<S>, Introduction, Lane), ConnectionError> {
    let mut connection = Connection::new(stream, HELLO_BYTES_MAX);
    match timeout(HELLO_TIMEOUT, accept_in_time(&mut connection, key, gate)).await {
        Ok(Ok((peer, lane))) => {
            connection.raise_frame_bytes_max(FRAME_BYTES_MAX);
            Ok((connection, peer, lane))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ConnectionError::Late("hello")),
    }
}

async fn accept_in_time<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    key: &ClusterKey,
    gate: &impl Gate,
) -> Result<(Introduction, Lane), ConnectionError> {
    let us = gate.introduce();
    let mut reader = receive(connection, kind::HELLO).await?;
    if reader.take(MAGIC.len(), "magic")? != MAGIC[..] {
        return Err(DecodeError { field: "magic" }.into());
    }
    let connector = read_introduction(&mut reader)?;
    if let Err(reason) = fits(&us, &connector) {
        return refuse(connection, reason).await;
    }
    let lane = Lane::of(reader.u8("lane")?).ok_or(DecodeError { field: "lane" })?;
    let transcript = Transcript {
        lane,
        connector,
        acceptor: us,
        connector_challenge: array(&mut reader, "challenge")?,
        acceptor_challenge: random(),
    };
    reader.end("end of a hello")?;
    let proof = transcript.prove(key, Role::Acceptor);
    send(connection, kind::CHALLENGE, |out| {
        out.put_slice(&introduction_bytes(&us));
        out.put_slice(&transcript.acceptor_challenge);
        out.put_slice(&proof);
    })
    .await?;

    let mut reader = receive(connection, kind::PROOF).await?;
    let proof = array(&mut reader, "proof")?;
    reader.end("end of a proof")?;
    if !transcript.is_proof(key, Role::Connector, &proof) {
        return refuse(connection, other_key(&connector)).await;
    }
    if connector.node == TOOL && lane != Lane::Ask {
        let reason = format!("a tool can only ask, and not open the lane `{lane}`");
        return refuse(connection, reason).await;
    }
    if let Err(reason) = gate.admit(&connector) {
        return refuse(connection, reason).await;
    }
    send(connection, kind::WELCOME, |_| {}).await?;
    Ok((connector, lane))
}

/// Whether the peer's version is one that we speak, too. Its own check covers the other half.
fn fits(us: &Introduction, peer: &Introduction) -> Result<(), String> {
    match peer.version >= WIRE_VERSION_MIN {
        true => Ok(()),
        false => Err(format!(
            "{peer} speaks version {} between nodes, {us} versions {WIRE_VERSION_MIN} to \
             {WIRE_VERSION}: upgrade {peer} first",
            peer.version
        )),
    }
}

fn other_key(peer: &Introduction) -> String {
    format!("{peer} has another cluster key: give all nodes the same --cluster-key-file")
}

/// Tells the peer why it is refused.
async fn refuse<T, S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    reason: String,
) -> Result<T, ConnectionError> {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    // If the peer does not hear it, it hears that the connection is closed.
    let _ = send(connection, kind::REFUSED, |out| {
        out.put_slice(&reason.as_bytes()[..end]);
    })
    .await;
    Err(ConnectionError::Unwanted(reason))
}

async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    kind: u8,
    put: impl FnOnce(&mut BytesMut),
) -> Result<(), ConnectionError> {
    connection.outbox.put(kind, 0, put, &Bytes::new());
    connection.flush().await
}

/// The body of the next frame, which must be of this kind or a refusal.
async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    expected: u8,
) -> Result<Reader, ConnectionError> {
    let mut reader = Reader::new(connection.bytes().await?);
    let found = reader.u8(KIND)?;
    reader.u64("id of a frame")?;
    match found {
        _ if found == expected => Ok(reader),
        kind::REFUSED => {
            let reason = reader.rest();
            let reason = String::from_utf8_lossy(&reason);
            // It goes to the log, and its sender may not have proved anything.
            let printable = reason.chars().filter(|c| !c.is_control());
            Err(ConnectionError::Refused(
                printable.take(REASON_BYTES_MAX).collect(),
            ))
        }
        _ => Err(DecodeError { field: KIND }.into()),
    }
}

fn introduction_bytes(introduction: &Introduction) -> [u8; INTRODUCTION_BYTES] {
    let mut bytes = [0; INTRODUCTION_BYTES];
    let mut out = &mut bytes[..];
    out.put_u16_le(introduction.version);
    out.put_u16_le(introduction.format);
    out.put_u128_le(introduction.cluster_id);
    out.put_u64_le(introduction.node);
    out.put_u64_le(introduction.disk_id);
    bytes
}

fn read_introduction(reader: &mut Reader) -> Result<Introduction, DecodeError> {
    Ok(Introduction {
        version: u16::from_le_bytes(array(reader, "version")?),
        format: u16::from_le_bytes(array(reader, "format")?),
        cluster_id: u128::from_le_bytes(array(reader, "cluster id")?),
        node: reader.u64("node")?,
        disk_id: reader.u64("disk id")?,
    })
}

fn array<const N: usize>(reader: &mut Reader, field: &'static str) -> Result<[u8; N], DecodeError> {
    let bytes = reader.take(N, field)?;
    Ok(*bytes.first_chunk().expect("so many were taken"))
}

fn random() -> [u8; CHALLENGE_BYTES] {
    let mut bytes = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

#[cfg(test)]
mod tests;
