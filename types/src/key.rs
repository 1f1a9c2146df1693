//! What is locked.

use crate::limits::{KEY_BYTES_MAX, LimitError, check_length};
use std::fmt;

/// The name of a lock: 1 to [`KEY_BYTES_MAX`] bytes, checked when the key is made. Any bytes will
/// do; clients that print keys expect UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// Checks the length.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Result<Self, LimitError> {
        match check_length("key", bytes.len(), 1, KEY_BYTES_MAX) {
            Ok(()) => Ok(Self(bytes)),
            Err(limit) => Err(limit),
        }
    }

    /// The bytes.
    #[inline]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The bytes.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Most keys are text, so they are shown as text with escapes.
impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_256_bytes() {
        let empty = LimitError::Empty { field: "key" };
        let too_long = LimitError::TooLong {
            field: "key",
            bytes: 257,
            bytes_max: 256,
        };
        assert_eq!(Key::new(b""), Err(empty));
        assert_eq!(Key::new(&[7; 257]), Err(too_long));
        assert_eq!(Key::new(&[7; 256]).unwrap().as_bytes(), &[7; 256]);
    }

    #[test]
    fn a_key_is_shown_as_text_with_escapes() {
        assert_eq!(
            format!("{:?}", Key::new(b"a\"\xff").unwrap()),
            r#""a\"\xff""#
        );
    }
}
