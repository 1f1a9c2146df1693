//! The typed values that messages are made of.
//!
//! Every value with a length on the wire has a type that checks its limit when it is made. So
//! encoding cannot fail: the caller that takes a key from a user reports a key that is too long,
//! and no `append` writes a frame whose length fields lie. Plain numbers need no type: any `u32`
//! can be written as it is, and the decoder refuses those beyond [`crate::limits`].
//!
//! For everything but a key, empty and absent are the same.

use crate::codec::{Reader, tag};
use crate::error::{DecodeError, LimitError};
use crate::limits;
use std::fmt;
use types::limits::check_length;

pub use types::{Fence, Key, Lease, Mode, SessionId};

macro_rules! byte_field {
    ($(#[$doc:meta])* $name:ident, $field:literal, $bytes_max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            /// Checks the length and nothing else: any bytes will do.
            pub const fn new(bytes: &'a [u8]) -> Result<Self, LimitError> {
                match check_length($field, bytes.len(), 0, $bytes_max) {
                    Ok(()) => Ok(Self(bytes)),
                    Err(limit) => Err(limit),
                }
            }

            /// The bytes.
            pub const fn as_bytes(self) -> &'a [u8] {
                self.0
            }

            #[inline]
            #[allow(dead_code, reason = "some fields are only ever optional")]
            pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Ok(Self::new(reader.bytes($field)?)?)
            }
        }
    };
}

macro_rules! text_field {
    ($(#[$doc:meta])* $name:ident, $field:literal, $bytes_max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name<'a>(&'a str);

        impl<'a> $name<'a> {
            /// Checks the length.
            pub const fn new(text: &'a str) -> Result<Self, LimitError> {
                match check_length($field, text.len(), 0, $bytes_max) {
                    Ok(()) => Ok(Self(text)),
                    Err(limit) => Err(limit),
                }
            }

            /// As much of `text` as fits.
            pub fn clipped(text: &'a str) -> Self {
                Self(clip(text, $bytes_max))
            }

            /// The text.
            pub const fn as_str(self) -> &'a str {
                self.0
            }

            pub(crate) const fn as_bytes(self) -> &'a [u8] {
                self.0.as_bytes()
            }

            pub(crate) fn from_wire(bytes: &'a [u8]) -> Result<Self, DecodeError> {
                check_length($field, bytes.len(), 0, $bytes_max)?;
                match std::str::from_utf8(bytes) {
                    Ok(text) => Ok(Self(text)),
                    Err(_) => Err(DecodeError::NotUtf8 { field: $field }),
                }
            }

            #[allow(dead_code, reason = "some fields are only ever optional")]
            pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Self::from_wire(reader.bytes($field)?)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.0, f)
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0, f)
            }
        }
    };
}

/// Most bytes are text in practice, so they are shown as text with escapes.
macro_rules! show_escaped {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }
    )*};
}

macro_rules! default_empty {
    ($($name:ident)*) => {$(
        impl Default for $name<'_> {
            fn default() -> Self {
                Self(&[])
            }
        }
    )*};
}

byte_field! {
    /// What the keys of a list begin with; all keys begin with the empty one.
    Prefix, "prefix", limits::KEY_BYTES_MAX
}
byte_field! {
    /// What a holder says about its lock, shown to refused clients. Opaque to the server.
    Metadata, "metadata", limits::METADATA_BYTES_MAX
}
byte_field! {
    /// Where the next page begins. Opaque to the client; empty at the first page and after the
    /// last.
    Cursor, "cursor", limits::CURSOR_BYTES_MAX
}
byte_field! {
    /// Proves a client's rights. Never printed.
    Token, "token", limits::TOKEN_BYTES_MAX
}
show_escaped! { Prefix Metadata Cursor }
default_empty! { Prefix Metadata Cursor Token }

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

text_field! {
    /// What a client calls itself: for people, not for decisions.
    ClientName, "client name", limits::CLIENT_NAME_BYTES_MAX
}
text_field! {
    /// Name and version of a server.
    ServerName, "server name", limits::SERVER_NAME_BYTES_MAX
}
text_field! {
    /// Ties a grant to a trace of the client; goes to the audit log.
    TraceId, "trace id", limits::TRACE_ID_BYTES_MAX
}
text_field! {
    /// A sentence that explains an error.
    Message, "message", limits::MESSAGE_BYTES_MAX
}
text_field! {
    /// Where a peer connected from.
    Address, "address", limits::ADDRESS_BYTES_MAX
}
text_field! {
    /// Where clients reach a node of a cluster, as `host:port`.
    NodeAddress, "node address", limits::NODE_ADDRESS_BYTES_MAX
}
text_field! {
    /// Where clients reach the nodes of a cluster: addresses with commas between them.
    NodeAddresses, "node addresses", limits::NODE_ADDRESSES_BYTES_MAX
}

impl<'a> NodeAddresses<'a> {
    /// As many whole addresses as fit, from the front.
    pub fn fitting(text: &'a str) -> Self {
        let fitting = Self::clipped(text).0;
        if fitting.len() == text.len() || text[fitting.len()..].starts_with(',') {
            return Self(fitting);
        }
        let (whole, _cut) = fitting.rsplit_once(',').unwrap_or_default();
        Self(whole)
    }

    /// The addresses, in order. One that is empty, or longer than a [`NodeAddress`], is left out:
    /// the list is advice, and the rest of it is as good as ever.
    pub fn iter(self) -> impl Iterator<Item = NodeAddress<'a>> {
        let addresses = self.0.split(',').map(str::trim);
        addresses
            .filter(|address| !address.is_empty())
            .filter_map(|address| NodeAddress::new(address).ok())
    }
}

text_field! {
    /// The name of a statistic.
    StatName, "statistic name", limits::STAT_NAME_BYTES_MAX
}

/// As many whole characters as fit.
fn clip(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Names a request within its session, for ever: a client counts up from 1 over all its
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// On pushes, and on errors that concern the connection. No request may have it.
    pub const NONE: Self = Self(0);

    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Proves that a connection belongs to a session. Never printed; compared in a time that does not
/// depend on the bytes.
#[derive(Clone, Copy)]
pub struct SessionSecret([u8; Self::BYTES]);

impl SessionSecret {
    /// Its size.
    pub const BYTES: usize = 16;

    /// The secret with these bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl PartialEq for SessionSecret {
    fn eq(&self, other: &Self) -> bool {
        let differing = u128::from_le_bytes(self.0) ^ u128::from_le_bytes(other.0);
        // One compare of the whole: it cannot stop early at a byte. The barrier keeps it that way.
        std::hint::black_box(differing) == 0
    }
}

impl Eq for SessionSecret {}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// What a client needs to resume a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Which session.
    pub session_id: SessionId,
    /// The proof, from its `Welcome`.
    pub secret: SessionSecret,
}

impl SessionKey {
    /// Its size on the wire.
    pub(crate) const BYTES: usize = 8 + SessionSecret::BYTES;

    pub(crate) fn from_wire(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, ref secret @ ..] = bytes;
        Self {
            session_id: SessionId::new(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            secret: SessionSecret(*secret),
        }
    }

    pub(crate) fn to_wire(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.session_id.get().to_le_bytes());
        bytes[8..].copy_from_slice(&self.secret.0);
        bytes
    }
}

/// The address of the node that leads; empty when it is not told. Reads to the end of the optional
/// fields.
pub(crate) fn read_leader<'a>(reader: &mut Reader<'a>) -> Result<NodeAddress<'a>, DecodeError> {
    let mut leader = NodeAddress::default();
    let mut options = reader.options();
    while let Some((tag, value)) = options.next()? {
        if tag == tag::LEADER {
            leader = NodeAddress::from_wire(value)?;
        }
    }
    Ok(leader)
}

#[cfg(test)]
mod tests;
