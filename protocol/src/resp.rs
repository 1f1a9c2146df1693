//! The wire format of Redis clients, RESP2 and RESP3, as far as a server needs it: commands in,
//! replies out.
//!
//! - [`limits`]: what a peer may make the reader keep.
//! - [`Reader`]: takes one command after the other off a buffer, as Redis does, errors included.
//! - [`first_arguments`]: the keys of commands still to come, for reading ahead.
//! - [`Writer`]: appends replies in the version that the connection speaks.
//! - [`parse_integer`]: which bytes Redis takes for an integer.
//!
//! As in the rest of the crate: no I/O, no clock; commands in pieces cost time in proportion to
//! their bytes, and a reader in use allocates nothing.
//!
//! ```
//! use bytes::BytesMut;
//! use fencepost_protocol::resp::{Reader, Version, Writer};
//!
//! let received = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nping\r\n";
//! let mut reader = Reader::new();
//! let used = reader.next(received)?.expect("a whole command");
//! assert_eq!(reader.arg(received, 1), b"k");
//!
//! let rest = &received[used..];
//! assert_eq!(reader.next(rest)?, Some(6));
//! assert_eq!(reader.arg(rest, 0), b"ping");
//!
//! let mut out = BytesMut::new();
//! Writer::new(&mut out, Version::V2).null();
//! Writer::new(&mut out, Version::V3).simple("PONG");
//! assert_eq!(&out[..], b"$-1\r\n+PONG\r\n");
//! # Ok::<(), fencepost_protocol::resp::ProtocolError>(())
//! ```

mod ahead;
mod error;
mod inline;
pub mod limits;
mod number;
mod reader;
mod writer;

pub use ahead::first_arguments;
pub use error::ProtocolError;
pub use number::parse_integer;
pub use reader::Reader;
pub use writer::{Version, Writer};
