//! A door for `fuzz-tests`: what this node makes of bytes that come over the peer port. Not part of
//! the library's interface. What entries and images say is in `cluster/src/fuzzing.rs`.
//!
//! Each function takes any bytes, must come to an end without a panic, and asserts what has to hold
//! whatever they are.

use super::connection::{Connection, ConnectionError};
use super::hello::{self, HELLO_BYTES_MAX};
use super::key::KEY_BYTES;
use super::outbox::Outbox;
use super::wire::{FRAME_BYTES_MAX, Frame, Message};
use super::{ClusterKey, Gate, Introduction, Lane, WIRE_VERSION};
use crate::entry::Format;
use crate::question::{Answer, Question};
use bytes::Bytes;
use std::future::Future;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

/// All that a stream may hold that nothing reads.
const STREAM_BYTES_MAX: usize = 1 << 20;

/// Lets every peer in that has the key.
struct Open(u64);

impl Gate for Open {
    fn introduce(&self) -> Introduction {
        Introduction {
            cluster_id: 0xc0ffee,
            node: self.0,
            disk_id: self.0,
            version: WIRE_VERSION,
            format: Format::NEWEST.0,
        }
    }

    fn admit(&self, _: &Introduction) -> Result<(), String> {
        Ok(())
    }

    async fn answer(&self, question: Bytes) -> Bytes {
        question
    }
}

fn key() -> ClusterKey {
    ClusterKey::new([7; KEY_BYTES])
}

/// A stream that carries these bytes and ends. What is written to it goes nowhere.
async fn stream_of(bytes: &[u8]) -> (DuplexStream, DuplexStream) {
    let (near, mut far) = duplex(STREAM_BYTES_MAX);
    let bytes = &bytes[..bytes.len().min(STREAM_BYTES_MAX)];
    far.write_all(bytes).await.expect("there is room");
    far.shutdown().await.expect("it is open");
    (near, far)
}

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("it needs no sockets").block_on(task)
}

/// A connection of a stranger. Without the key it does not get in.
pub fn accept(bytes: &[u8]) {
    run(async {
        let (near, _far) = stream_of(bytes).await;
        let accepted = hello::accept(near, &key(), &Open(2)).await;
        let error = accepted
            .err()
            .expect("bytes that do not know the challenge");
        std::hint::black_box(error.to_string());
    });
}

/// A stranger where a peer should be. It is told nothing.
pub fn connect(bytes: &[u8]) {
    run(async {
        let (near, _far) = stream_of(bytes).await;
        let us = Open(1).introduce();
        let connected = hello::connect(near, &key(), us, Lane::Append, Some(2), |_| Ok(())).await;
        let error = connected
            .err()
            .expect("bytes that do not know the challenge");
        std::hint::black_box(error.to_string());
    });
}

/// What a peer sends behind its hello. Only what an encoder writes is read.
pub fn frames(bytes: &[u8]) {
    run(async {
        let (near, _far) = stream_of(bytes).await;
        let mut connection = Connection::new(near, HELLO_BYTES_MAX);
        connection.raise_frame_bytes_max(FRAME_BYTES_MAX);
        loop {
            let bytes = match connection.bytes().await {
                Ok(bytes) => bytes,
                Err(ConnectionError::Closed) => return,
                Err(error) => {
                    std::hint::black_box(error.to_string());
                    return;
                }
            };
            let Ok(frame) = Frame::decode(bytes.clone()) else {
                return;
            };
            let _ = frame.message.speaker();
            let mut outbox = Outbox::default();
            outbox.message(frame.id, &frame.message);
            let slices = outbox.slices();
            let again: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(again[super::wire::LENGTH_BYTES..], bytes, "{frame:?}");
            asked(&frame.message);
        }
    });
}

fn asked(message: &Message) {
    let (Message::Question(bytes) | Message::Answer(bytes)) = message else {
        return;
    };
    if let Ok(question) = serde_json::from_slice::<Question>(bytes) {
        let again = serde_json::to_vec(&question).expect("it came from JSON");
        assert_eq!(
            serde_json::from_slice::<Question>(&again).ok(),
            Some(question)
        );
    }
    if let Ok(answer) = serde_json::from_slice::<Answer>(bytes) {
        std::hint::black_box(serde_json::to_vec(&answer).expect("it came from JSON"));
    }
}
