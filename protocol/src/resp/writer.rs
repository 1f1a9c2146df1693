//! Replies, in the version that the connection speaks.

use bytes::{BufMut, BytesMut};
use std::io::Write;

/// Which RESP a connection speaks. Every connection begins with the older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// What all clients know.
    #[default]
    V2,
    /// With types of its own for null, maps, sets, pushes, booleans and doubles.
    V3,
}

/// Appends replies to a buffer. A type that RESP2 lacks is written as Redis writes it there.
///
/// [`Self::array`] and its kin write the head alone: as many elements as announced must follow.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut BytesMut,
    version: Version,
}

/// Room for any double: `-1.7976931348623157e308` has 23 bytes, whole numbers below [`PLAIN_MAX`]
/// fewer.
const DOUBLE_BYTES_MAX: usize = 32;
/// From here on doubles are written with an exponent.
const PLAIN_MAX: f64 = 1e17;
/// Below this doubles are written with an exponent.
const PLAIN_MIN: f64 = 1e-5;
/// What a verbatim string begins with, to say that it is plain text.
const VERBATIM_TEXT: &[u8] = b"txt:";

impl<'a> Writer<'a> {
    /// A writer to the end of `out`.
    #[inline]
    pub fn new(out: &'a mut BytesMut, version: Version) -> Self {
        Self { out, version }
    }

    /// The version it writes.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Writes another version from here on: what `HELLO` was asked for.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// `+text`: a status, such as `OK`. Line ends become spaces.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `-text`: an error. It begins with its kind in capitals, by which clients tell errors apart.
    /// Line ends become spaces, so that an error may quote what the peer sent.
    #[inline]
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + HEAD_BYTES_MAX);
        self.head(b'$', bytes.len());
        self.out.put_slice(bytes);
        self.out.put_slice(b"\r\n");
    }

    /// No string: an absent value.
    #[inline]
    pub fn null(&mut self) {
        self.out.put_slice(match self.version {
            Version::V2 => b"$-1\r\n",
            Version::V3 => b"_\r\n",
        });
    }

    /// No array: what a blocking command answers when its time is over.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.put_slice(match self.version {
            Version::V2 => b"*-1\r\n",
            Version::V3 => b"_\r\n",
        });
    }

    /// The head of an array of `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// The head of `len` pairs, each a key and its value; RESP2: an array of twice as many.
    #[inline]
    pub fn map(&mut self, len: usize) {
        match self.version {
            Version::V2 => self.head(b'*', len * 2),
            Version::V3 => self.head(b'%', len),
        }
    }

    /// The head of a set; RESP2: an array.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.aggregate(b'~', len);
    }

    /// The head of a push, which answers no command; RESP2: an array.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.aggregate(b'>', len);
    }

    /// A truth value; RESP2: 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        match (self.version, value) {
            (Version::V2, _) => self.integer(value.into()),
            (Version::V3, true) => self.out.put_slice(b"#t\r\n"),
            (Version::V3, false) => self.out.put_slice(b"#f\r\n"),
        }
    }

    /// A number with a fraction; RESP2: its text as a string.
    pub fn double(&mut self, value: f64) {
        let mut text = [0; DOUBLE_BYTES_MAX];
        let text = double_text(value, &mut text);
        match self.version {
            Version::V2 => self.bulk(text),
            Version::V3 => self.line(b',', text),
        }
    }

    /// Text for people; RESP2: a string.
    pub fn verbatim_text(&mut self, text: &str) {
        match self.version {
            Version::V2 => self.bulk(text.as_bytes()),
            Version::V3 => {
                self.head(b'=', VERBATIM_TEXT.len() + text.len());
                self.out.put_slice(VERBATIM_TEXT);
                self.out.put_slice(text.as_bytes());
                self.out.put_slice(b"\r\n");
            }
        }
    }

    /// The head of what RESP2 knows as an array only.
    #[inline]
    fn aggregate(&mut self, kind: u8, len: usize) {
        match self.version {
            Version::V2 => self.head(b'*', len),
            Version::V3 => self.head(kind, len),
        }
    }

    #[inline]
    fn head(&mut self, kind: u8, len: usize) {
        self.number(kind, len);
    }

    #[inline]
    fn number(&mut self, kind: u8, value: impl itoa::Integer) {
        self.out.reserve(HEAD_BYTES_MAX);
        self.out.put_u8(kind);
        self.out
            .put_slice(itoa::Buffer::new().format(value).as_bytes());
        self.out.put_slice(b"\r\n");
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + HEAD_BYTES_MAX);
        self.out.put_u8(kind);
        let start = self.out.len();
        self.out.put_slice(text);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.put_slice(b"\r\n");
    }
}

/// A kind, a sign, the digits of any 64-bit number and two line ends.
const HEAD_BYTES_MAX: usize = 1 + 1 + 20 + 2 + 2;

/// The shortest text that reads back as `value`.
fn double_text(value: f64, text: &mut [u8; DOUBLE_BYTES_MAX]) -> &[u8] {
    let mut rest = &mut text[..];
    let magnitude = value.abs();
    let written = if value.is_nan() {
        rest.write_all(b"nan")
    } else if value == 0.0 || value.is_infinite() || (PLAIN_MIN..PLAIN_MAX).contains(&magnitude) {
        write!(rest, "{value}")
    } else {
        write!(rest, "{value:e}")
    };
    written.expect("no double has more than DOUBLE_BYTES_MAX bytes");
    let rest_bytes = rest.len();
    &text[..DOUBLE_BYTES_MAX - rest_bytes]
}

#[cfg(test)]
mod tests;
