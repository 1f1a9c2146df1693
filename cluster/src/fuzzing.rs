//! A door for `fuzz-tests`: what a node makes of entries and images that a leader has sent. Not
//! part of the interface. What comes before, on the wire, is in `cluster/src/peer/fuzzing.rs`.
//!
//! Each function takes any bytes, must come to an end without a panic, and asserts what has to hold
//! whatever they are.

use crate::codec::{self, Reader};
use crate::entry::Item;
use crate::host;
use crate::ledger::{LedgerState, Numbers, chunks_of};
use crate::types::{Command, Entry, LeaderId, LogId, Payload};
use bytes::Bytes;

/// Payloads of entries, which a leader has sent, and applying them one behind the other. A ledger
/// that took them has an image that can be read.
pub fn entries(payloads: &[&[u8]]) {
    let mut state = LedgerState::default();
    let numbers = Numbers::default();
    for (index, bytes) in (0..).zip(payloads) {
        let bytes = Bytes::copy_from_slice(bytes);
        let Ok(payload) = Reader::new(bytes.clone()).payload() else {
            return;
        };
        let mut again = Vec::new();
        codec::put_payload(&payload, &mut again);
        assert_eq!(again, bytes, "{payload:?}");
        if let Payload::Normal(command) = &payload {
            same_again(command);
        }
        let leader = LeaderId {
            term: 1,
            node_id: 1,
        };
        let entry = Entry {
            log_id: LogId::new(leader, index),
            payload,
        };
        if state.apply(&entry, host::now(), &numbers).is_err() {
            return;
        }
    }
    let image = chunks_of(state.make_image().into());
    let read = LedgerState::from_image(&image);
    assert!(read.is_ok(), "an image that was just made");
}

fn same_again(command: &Command) {
    if let Ok(item) = Item::decode(command) {
        assert_eq!(item.encode(), *command, "{item:?}");
    }
}

/// What a leader sends as an image of its ledger.
pub fn image(bytes: &[u8]) {
    let image = chunks_of(Bytes::copy_from_slice(bytes));
    if let Ok(mut state) = LedgerState::from_image(&image) {
        let again = chunks_of(state.make_image().into());
        let read = LedgerState::from_image(&again);
        assert!(read.is_ok(), "an image that was read");
    }
}
