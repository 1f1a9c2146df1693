//! Replies as a client reads them: from bytes to a tree that tells every type of both versions
//! apart.

use std::fmt;

/// One reply. RESP2's null string, its null array and RESP3's null are three different things here.
#[derive(Clone, PartialEq)]
pub(crate) enum Reply {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    NullBulk,
    Array(Vec<Reply>),
    NullArray,
    Null,
    Boolean(bool),
    Double(Vec<u8>),
    BigNumber(Vec<u8>),
    BulkError(Vec<u8>),
    Verbatim(Vec<u8>),
    Map(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    /// The reply that `bytes` begin with, and its length. `None`: it is not complete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
        let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (kind, line) = (bytes[0], &bytes[1..line_end]);
        let behind = line_end + 2;
        let whole = |reply| Some((reply, behind));
        match kind {
            b'+' => whole(Reply::Simple(line.to_vec())),
            b'-' => whole(Reply::Error(line.to_vec())),
            b':' => whole(Reply::Integer(number(line))),
            b',' => whole(Reply::Double(line.to_vec())),
            b'(' => whole(Reply::BigNumber(line.to_vec())),
            b'#' => whole(Reply::Boolean(line == b"t")),
            b'_' => whole(Reply::Null),
            b'$' if line == b"-1" => whole(Reply::NullBulk),
            b'*' if line == b"-1" => whole(Reply::NullArray),
            b'$' => string(bytes, behind, line, Reply::Bulk),
            b'!' => string(bytes, behind, line, Reply::BulkError),
            b'=' => string(bytes, behind, line, Reply::Verbatim),
            b'*' => elements(bytes, behind, number(line), Reply::Array),
            b'~' => elements(bytes, behind, number(line), Reply::Set),
            b'>' => elements(bytes, behind, number(line), Reply::Push),
            b'%' => elements(bytes, behind, 2 * number(line), Reply::Map),
            _ => panic!("no reply begins like this: {}", bytes.escape_ascii()),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The value behind a key of a map, or of the array that stands for one.
    pub(crate) fn field(&self, key: &str) -> &Reply {
        let (Reply::Map(pairs) | Reply::Array(pairs)) = self else {
            panic!("{self:?} has no fields");
        };
        let mut pairs = pairs.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0] == bulk(key));
        &pair.unwrap_or_else(|| panic!("no {key} in {self:?}"))[1]
    }
}

fn number(line: &[u8]) -> i64 {
    let text = std::str::from_utf8(line).expect("digits");
    text.parse().expect("a number")
}

fn string(
    bytes: &[u8],
    start: usize,
    length: &[u8],
    make: impl FnOnce(Vec<u8>) -> Reply,
) -> Option<(Reply, usize)> {
    let end = start + usize::try_from(number(length)).expect("a length");
    let content = bytes.get(start..end)?;
    let line_end = bytes.get(end..end + 2)?;
    assert_eq!(line_end, b"\r\n", "a string ends where it says");
    Some((make(content.to_vec()), end + 2))
}

fn elements(
    bytes: &[u8],
    start: usize,
    count: i64,
    make: impl FnOnce(Vec<Reply>) -> Reply,
) -> Option<(Reply, usize)> {
    let mut end = start;
    let mut elements = Vec::new();
    for _ in 0..count {
        let (element, used) = Reply::parse(&bytes[end..])?;
        elements.push(element);
        end += used;
    }
    Some((make(elements), end))
}

pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(text.as_ref().to_vec())
}

pub(crate) fn simple(text: &str) -> Reply {
    Reply::Simple(text.into())
}

pub(crate) fn ok() -> Reply {
    simple("OK")
}

pub(crate) fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = |kind: &str, text: &[u8]| write!(f, "{kind}\"{}\"", text.escape_ascii());
        match self {
            Reply::Simple(line) => text("+", line),
            Reply::Error(line) => text("-", line),
            Reply::Bulk(bytes) => text("$", bytes),
            Reply::Double(line) => text(",", line),
            Reply::BigNumber(line) => text("(", line),
            Reply::BulkError(bytes) => text("!", bytes),
            Reply::Verbatim(bytes) => text("=", bytes),
            Reply::Integer(value) => write!(f, ":{value}"),
            Reply::Boolean(value) => write!(f, "#{value}"),
            Reply::NullBulk => f.write_str("$-1"),
            Reply::NullArray => f.write_str("*-1"),
            Reply::Null => f.write_str("_"),
            Reply::Array(elements) => write!(f, "*{elements:?}"),
            Reply::Map(pairs) => write!(f, "%{pairs:?}"),
            Reply::Set(elements) => write!(f, "~{elements:?}"),
            Reply::Push(elements) => write!(f, ">{elements:?}"),
        }
    }
}
