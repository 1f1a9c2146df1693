//! Every limit of the wire, those of the shared types included. The decoder refuses what lies
//! beyond before it allocates anything for it.
//!
//! `reply.rs` and `request.rs` assert that the largest message made of these fits the frame limits
//! below.

pub use types::limits::{
    KEY_BYTES_MAX, METADATA_BYTES_MAX, SESSION_TTL_MS_MAX, TTL_MS_MAX, WAIT_MS_MAX,
};

/// Bytes of a client's name.
pub const CLIENT_NAME_BYTES_MAX: usize = 64;
/// Bytes of a server's name and version.
pub const SERVER_NAME_BYTES_MAX: usize = 64;
/// Bytes of an authentication token.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Bytes of a trace id. A W3C `traceparent` has 55.
pub const TRACE_ID_BYTES_MAX: usize = 64;
/// Bytes of the position between two pages: room for a key and two numbers, so a server may page in
/// any order.
pub const CURSOR_BYTES_MAX: usize = KEY_BYTES_MAX + 16;
/// Bytes of the sentence in an error.
pub const MESSAGE_BYTES_MAX: usize = 256;
/// Bytes of a peer's address, as text.
pub const ADDRESS_BYTES_MAX: usize = 64;
/// Bytes of the address under which clients reach a node of a cluster, as text: room for the
/// longest host name.
pub const NODE_ADDRESS_BYTES_MAX: usize = 255;
/// Bytes of the list of such addresses in a `Welcome`: what its frame has room for.
pub const NODE_ADDRESSES_BYTES_MAX: usize = 768;
/// Bytes of a statistic's name.
pub const STAT_NAME_BYTES_MAX: usize = 96;

/// Locks in one page of a list.
pub const LIST_PAGE_MAX: u16 = 100;
/// Sessions in one page.
pub const SESSIONS_PAGE_MAX: u16 = 100;
/// Holders named by one answer to a query; their count may be larger.
pub const HOLDERS_MAX: u16 = 64;
/// Numbers in one answer to `Stats`.
pub const STATS_MAX: u16 = 256;

/// Bytes of a frame before `Welcome`, its length field included: all that a server keeps for a
/// stranger.
pub const HELLO_FRAME_BYTES_MAX: u32 = 1024;
/// Bytes of a request frame. Today's largest is near 700; the rest is room for fields that older
/// servers skip.
pub const REQUEST_FRAME_BYTES_MAX: u32 = 4096;
/// Bytes of any frame: what a client must be ready for.
pub const FRAME_BYTES_MAX: u32 = 65_536;

const _: () = assert!(NODE_ADDRESS_BYTES_MAX <= NODE_ADDRESSES_BYTES_MAX);
const _: () = assert!(HELLO_FRAME_BYTES_MAX <= REQUEST_FRAME_BYTES_MAX);
const _: () = assert!(REQUEST_FRAME_BYTES_MAX <= FRAME_BYTES_MAX);
