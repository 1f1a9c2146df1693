//! What comes over the peer port of a cluster's node: hellos of strangers on either side, frames
//! behind a hello, entries of a leader, images of its ledger.
//!
//! ```text
//! 0  what    0 to a node that accepts, 1 to one that connected, 2 behind the hello: a stream of
//!            bytes; 3 payloads of entries, each behind its length u16; 4 an image
//! ```

use cluster::fuzzing::{entries, image};
use cluster::peer::fuzzing::{accept, connect, frames};

/// See the module.
pub fn run(data: &[u8]) {
    let Some((&what, data)) = data.split_first() else {
        return;
    };
    match what {
        0 => accept(data),
        1 => connect(data),
        2 => frames(data),
        3 => entries(&payloads(data)),
        _ => image(data),
    }
}

fn payloads(mut data: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        payloads.push(payload);
        data = rest;
    }
    payloads
}
