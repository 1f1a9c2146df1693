//! Why bytes, or a value that should become bytes, were refused.

use std::fmt;

pub use types::LimitError;

/// Why a peer's bytes were refused. Never reaches further than the connection they came from.
///
/// Errors of the framing ([`DecodeError::loses_framing`]) end that connection, since the receiver
/// cannot find the next frame. All others concern one frame whose end and request id are known: the
/// receiver answers that request with an error and reads on, so that one careless task does not cut
/// off the others that share its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The length field announces more than the receiver takes.
    FrameTooLong {
        /// Announced, the length field included.
        frame_bytes: u64,
        /// The receiver's limit.
        frame_bytes_max: u32,
    },
    /// The length field announces less than a header.
    FrameTooShort {
        /// Announced, the length field included.
        frame_bytes: u64,
    },
    /// The body ends inside a field.
    BodyTooShort {
        /// The field that is cut off.
        field: &'static str,
    },
    /// A field that the message must carry is missing.
    MissingField {
        /// Its name.
        field: &'static str,
    },
    /// A value breaks a limit of its own.
    Limit(LimitError),
    /// A number is larger than the protocol allows.
    NumberTooLarge {
        /// Which number.
        field: &'static str,
        /// As received.
        value: u32,
        /// The largest that is allowed.
        value_max: u32,
    },
    /// A number that must not be zero is zero.
    Zero {
        /// Which number.
        field: &'static str,
    },
    /// A text is not UTF-8.
    NotUtf8 {
        /// Which text.
        field: &'static str,
    },
    /// A lease that lives by its session has a time of its own as well.
    TtlWithSession {
        /// As received.
        ttl_ms: u32,
    },
    /// A detached lock is bound to a session, or counted for one.
    DetachedWithSession,
    /// A request has flags that the protocol does not define. They could change its meaning, so the
    /// receiver does not guess.
    UnknownFlags {
        /// The request's operation.
        op: u8,
        /// The undefined bits.
        flags: u8,
    },
    /// Optional fields must come in rising order of their tags, each at most once.
    OptionOutOfOrder {
        /// The tag that came too late, or again.
        tag: u8,
    },
    /// An optional field of fixed size has another size.
    OptionSize {
        /// Its tag.
        tag: u8,
        /// As received.
        value_bytes: u16,
        /// As defined.
        value_bytes_expected: u16,
    },
    /// A `Hello` does not start with [`crate::MAGIC`].
    BadMagic {
        /// What it starts with.
        magic: [u8; 4],
    },
}

// Every `Result` of the decoder has room for one.
const _: () = assert!(size_of::<DecodeError>() <= 48);

impl DecodeError {
    /// Whether the next frame cannot be found any more, so that the connection must close.
    pub fn loses_framing(&self) -> bool {
        matches!(self, Self::FrameTooLong { .. } | Self::FrameTooShort { .. })
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FrameTooLong {
                frame_bytes,
                frame_bytes_max,
            } => {
                write!(
                    f,
                    "the frame has {frame_bytes} bytes, at most {frame_bytes_max} are allowed"
                )
            }
            Self::FrameTooShort { frame_bytes } => {
                write!(f, "the frame has {frame_bytes} bytes, less than its header")
            }
            Self::BodyTooShort { field } => write!(f, "the message ends inside {field}"),
            Self::MissingField { field } => write!(f, "{field} is missing"),
            Self::Limit(limit) => limit.fmt(f),
            Self::NumberTooLarge {
                field,
                value,
                value_max,
            } => {
                write!(f, "{field} is {value}, at most {value_max} is allowed")
            }
            Self::Zero { field } => write!(f, "{field} must not be zero"),
            Self::NotUtf8 { field } => write!(f, "{field} is not UTF-8"),
            Self::TtlWithSession { ttl_ms } => {
                write!(
                    f,
                    "a lease bound to its session must have ttl_ms 0, not {ttl_ms}"
                )
            }
            Self::DetachedWithSession => {
                f.write_str("a detached lock is neither bound to a session nor reentrant")
            }
            Self::UnknownFlags { op, flags } => {
                write!(f, "operation {op:#04x} has unknown flags {flags:#04x}")
            }
            Self::OptionOutOfOrder { tag } => {
                write!(f, "optional field {tag} is repeated or out of order")
            }
            Self::OptionSize {
                tag,
                value_bytes,
                value_bytes_expected,
            } => {
                write!(
                    f,
                    "optional field {tag} has {value_bytes} bytes instead of {value_bytes_expected}"
                )
            }
            Self::BadMagic { magic } => {
                write!(
                    f,
                    "the peer does not speak Fencepost: its hello starts with \"{}\"",
                    magic.escape_ascii()
                )
            }
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<LimitError> for DecodeError {
    fn from(limit: LimitError) -> Self {
        Self::Limit(limit)
    }
}
