//! Fencepost's wire format: bytes to typed messages and back. `docs/protocol.md` says the same for
//! authors of clients in other languages; a test holds the two together.
//!
//! # Module map
//! - [`limits`]: every limit of the wire.
//! - [`frame`]: the header that all messages share; split one frame off a buffer, append one frame.
//! - [`hello`]: how a connection opens.
//! - [`request`]: what a client sends. [`reply`]: how the server answers. [`push`]: what the server
//!   sends unasked.
//! - [`record`]: holders, locks, sessions and statistics, as they appear inside replies.
//! - [`field`]: the typed values that messages are made of. [`code`]: reasons and error codes.
//! - [`error`]: why bytes were refused.
//! - [`resp`]: the other format, that of Redis clients, for the Redis-compatible port.
//!
//! # Ground rules
//! No I/O, no clock, no tokio. Decoding borrows from the buffer and never touches the heap.
//! Encoding appends to a [`bytes::BytesMut`] and cannot fail: every value with a length is of a
//! type that checked it when it was made ([`field`]).
//!
//! ```
//! use bytes::BytesMut;
//! use fencepost_protocol::{Acquire, Frame, Key, Lease, Request, RequestId, limits};
//!
//! let request = Request::Acquire(Acquire {
//!     wait_ms: 5_000,
//!     ..Acquire::exclusive(Key::new(b"orders/42")?, Lease::Ttl { ttl_ms: 30_000 })
//! });
//! let mut out = BytesMut::new();
//! request.append(RequestId::new(1), &mut out);
//!
//! let mut unread = &out[..];
//! while let Some(frame) = Frame::split(&mut unread, limits::REQUEST_FRAME_BYTES_MAX)? {
//!     assert_eq!(frame.request_id, RequestId::new(1));
//!     assert_eq!(Request::decode(&frame)?, request);
//! }
//! assert!(unread.is_empty());
//! # Ok::<(), fencepost_protocol::DecodeError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod code;
mod codec;
pub mod error;
pub mod field;
pub mod frame;
pub mod hello;
pub mod limits;
pub mod push;
pub mod record;
pub mod reply;
pub mod request;
pub mod resp;

pub use code::{BusyBound, ErrorCode, LostReason, NotHeldReason, UnavailableReason};
pub use error::{DecodeError, LimitError};
pub use field::{
    Address, ClientName, Cursor, Fence, Key, Lease, Message, Metadata, Mode, NodeAddress,
    NodeAddresses, Prefix, RequestId, ServerName, SessionId, SessionKey, SessionSecret, StatName,
    Token, TraceId,
};
pub use frame::{Direction, Frame};
pub use hello::{Hello, Opening, Welcome};
pub use push::Push;
pub use record::{
    Contention, Holder, LockEntry, NO_END_MS, Record, Records, SessionEntry, StatEntry,
};
pub use reply::Reply;
pub use request::{Acquire, Claim, Request};
pub use types::NoFence;

/// The first bytes of every `Hello`. They tell a stray peer of another protocol apart at once.
pub const MAGIC: [u8; 4] = *b"FNCP";

/// The newest version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// The oldest version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION_MIN: u16 = 1;

const _: () = assert!(PROTOCOL_VERSION_MIN <= PROTOCOL_VERSION);

/// The newest version that this crate shares with a peer that speaks `peer_min` to `peer_max`.
pub const fn choose_version(peer_min: u16, peer_max: u16) -> Option<u16> {
    let newest = if peer_max < PROTOCOL_VERSION {
        peer_max
    } else {
        PROTOCOL_VERSION
    };
    if newest >= peer_min && newest >= PROTOCOL_VERSION_MIN {
        Some(newest)
    } else {
        None
    }
}
