//! Every bound of this crate, by name. At a bound the answer says which one.

use std::time::Duration;

/// Bytes of a key: at most this. As on the wire of the lock server.
pub const KEY_BYTES_MAX: usize = protocol::limits::KEY_BYTES_MAX;

/// Keys that a guard remembers exactly, unless told otherwise. What is forgotten beyond raises
/// floors: `ledger/floors.rs`.
pub const KEYS_DEFAULT: usize = 1_000_000;

/// Writes under way at the same time, those waiting for their key's turn included, unless told
/// otherwise.
pub const WRITES_DEFAULT: usize = 10_000;

/// Bytes of one value of the service, unless told otherwise.
pub const VALUE_BYTES_DEFAULT: usize = 64 * 1024;

/// Bytes of one value of the service, at most, whatever it is told.
pub const VALUE_BYTES_CAP: usize = 16 * 1024 * 1024;

/// Bytes of all keys and values of the service together, unless told otherwise.
pub const BYTES_DEFAULT: u64 = 256 * 1024 * 1024;

/// Bytes of the body of a request to a guarded service, unless told otherwise.
pub const LAYER_BODY_BYTES_DEFAULT: usize = 2 * 1024 * 1024;

/// Writes that wait for the log's thread. Beyond, they wait to wait.
pub const JOURNAL_QUEUE_MAX: usize = 1024;

/// A batch of the log is closed once it has this many bytes; the entry that goes beyond is still in
/// it.
pub const BATCH_BYTES: usize = 1024 * 1024;

/// Bytes of one frame's body: a batch, and the longest entry that can have gone beyond.
pub const FRAME_BODY_BYTES_MAX: usize = BATCH_BYTES + VALUE_BYTES_CAP + KEY_BYTES_MAX + 64;

/// A log shorter than this is never rewritten.
pub const COMPACT_BYTES_DEFAULT: u64 = 4 * 1024 * 1024;

/// Connections to the service at the same time, unless told otherwise. More wait in the kernel's
/// queue.
pub const CONNECTIONS_DEFAULT: u32 = 2048;

/// Bytes of a request's head. A key in a path, percent-encoded, takes 768; the rest is for headers.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Headers of a request.
pub const HEADERS_MAX: usize = 64;

/// How long a request head may take, and how long a connection may idle.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the body of a request may take.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers in progress may go on after the service was told to stop.
pub const LINGER: Duration = Duration::from_secs(5);

const _: () = assert!(VALUE_BYTES_DEFAULT <= VALUE_BYTES_CAP);
// Lengths of frames and values are u32 in the log, lengths of keys u16.
const _: () =
    assert!(FRAME_BODY_BYTES_MAX <= u32::MAX as usize && KEY_BYTES_MAX <= u16::MAX as usize);
