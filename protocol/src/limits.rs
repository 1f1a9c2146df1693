//! Every limit of the wire. The decoder refuses what lies beyond, before anybody allocates for it.
//!
//! `reply.rs` and `request.rs` assert that the largest message made of these fits the frame limits below.

/// Bytes of a key: at least 1, at most this.
pub const KEY_BYTES_MAX: usize = 256;
/// Bytes of the note that a holder leaves for those it keeps waiting.
pub const METADATA_BYTES_MAX: usize = 256;
/// Bytes of a client's name.
pub const CLIENT_NAME_BYTES_MAX: usize = 64;
/// Bytes of a server's name and version.
pub const SERVER_NAME_BYTES_MAX: usize = 64;
/// Bytes of an authentication token.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Bytes of a trace id. A W3C `traceparent` has 55.
pub const TRACE_ID_BYTES_MAX: usize = 64;
/// Bytes of the position between two pages: room for a key and two numbers, so a server may page in any order.
pub const CURSOR_BYTES_MAX: usize = KEY_BYTES_MAX + 16;
/// Bytes of the sentence in an error.
pub const MESSAGE_BYTES_MAX: usize = 256;
/// Bytes of a peer's address, as text.
pub const ADDRESS_BYTES_MAX: usize = 64;
/// Bytes of a statistic's name.
pub const STAT_NAME_BYTES_MAX: usize = 96;

/// Longest lease: one day.
pub const TTL_MS_MAX: u32 = 86_400_000;
/// Longest wait in a queue: one day.
pub const WAIT_MS_MAX: u32 = 86_400_000;
/// Longest time that a session outlives its last sign of life: one day.
pub const SESSION_TTL_MS_MAX: u32 = 86_400_000;

/// Locks in one page of a list.
pub const LIST_PAGE_MAX: u16 = 100;
/// Sessions in one page.
pub const SESSIONS_PAGE_MAX: u16 = 100;
/// Holders named by one answer to a query; their count may be larger.
pub const HOLDERS_MAX: u16 = 64;
/// Numbers in one answer to `Stats`.
pub const STATS_MAX: u16 = 256;

/// Bytes of a frame before `Welcome`, its length field included: all that a stranger can make us keep.
pub const HELLO_FRAME_BYTES_MAX: u32 = 1024;
/// Bytes of a request frame. Today's largest is near 700; the rest is room for fields that older servers skip.
pub const REQUEST_FRAME_BYTES_MAX: u32 = 4096;
/// Bytes of any frame, so what a client has to be ready for.
pub const FRAME_BYTES_MAX: u32 = 65_536;

const _: () = assert!(HELLO_FRAME_BYTES_MAX <= REQUEST_FRAME_BYTES_MAX);
const _: () = assert!(REQUEST_FRAME_BYTES_MAX <= FRAME_BYTES_MAX);
// Times on the wire are u32 and must survive the arithmetic of clients that have only signed integers.
const _: () = assert!(TTL_MS_MAX <= i32::MAX as u32 && WAIT_MS_MAX <= i32::MAX as u32);
