//! As much of Redis's protocol (RESP2) as locks need: commands as arrays of strings, replies one
//! value at a time.

use bytes::{BufMut, BytesMut};
use std::io::{self, Read, Write};

/// One value of a reply. An array is its head only; its elements follow as values of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Nil,
    Array(usize),
}

/// Takes one value off the front of `unread`. `None`: more bytes are needed.
#[inline]
pub(crate) fn split<'a>(unread: &mut &'a [u8]) -> Result<Option<Value<'a>>, String> {
    let bytes = *unread;
    // Lines are short; looking for their end byte by byte costs less than calling anything.
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let Some((&kind, text)) = line.split_first() else {
        return Err("an empty line instead of a reply".to_owned());
    };
    let value = match kind {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Integer(number(text)?),
        b'*' => Value::Array(number(text)?.max(0) as usize),
        b'$' => match usize::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let Some(bulk) = rest.get(..length) else {
                    return Ok(None);
                };
                let Some(rest) = rest.get(length + 2..) else {
                    return Ok(None);
                };
                *unread = rest;
                return Ok(Some(Value::Bulk(bulk)));
            }
        },
        other => return Err(format!("a reply that begins with {:?}", other as char)),
    };
    *unread = rest;
    Ok(Some(value))
}

#[inline]
fn number(text: &[u8]) -> Result<i64, String> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    let mut number: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(format!("{:?} is no number", text.escape_ascii()));
        }
        number = number
            .wrapping_mul(10)
            .wrapping_add(i64::from(digit - b'0'));
    }
    Ok(if is_negative { -number } else { number })
}

/// Appends a command.
pub(crate) fn append(out: &mut BytesMut, words: &[&[u8]]) {
    out.put_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.put_slice(format!("${}\r\n", word.len()).as_bytes());
        out.put_slice(word);
        out.put_slice(b"\r\n");
    }
}

/// Sends a command on a connection that still blocks, and waits for a reply of one value or of
/// `values` of them. The last one is returned as text.
pub(crate) fn call<S: Read + Write>(
    stream: &mut S,
    words: &[&[u8]],
    values: usize,
) -> io::Result<String> {
    let mut out = BytesMut::new();
    append(&mut out, words);
    stream.write_all(&out)?;
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read_bytes = stream.read(&mut chunk)?;
        if read_bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..read_bytes]);
        let (mut unread, mut seen) = (&bytes[..], 0);
        while let Some(value) = split(&mut unread).map_err(io::Error::other)? {
            seen += 1;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match value {
                Value::Error(error) => return Err(io::Error::other(text(error))),
                Value::Simple(last) | Value::Bulk(last) if seen == values => return Ok(text(last)),
                Value::Integer(last) if seen == values => return Ok(last.to_string()),
                _ if seen == values => return Ok(String::new()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_split_only_when_they_are_whole() {
        let bytes = b"+OK\r\n:42\r\n$-1\r\n$5\r\na\r\nbc\r\n-ERR no\r\n*3\r\n:-7\r\n";
        let expected = [
            Value::Simple(b"OK"),
            Value::Integer(42),
            Value::Nil,
            Value::Bulk(b"a\r\nbc"),
            Value::Error(b"ERR no"),
            Value::Array(3),
            Value::Integer(-7),
        ];
        for end in 0..=bytes.len() {
            let (mut unread, mut values) = (&bytes[..end], Vec::new());
            while let Some(value) = split(&mut unread).unwrap() {
                values.push(value);
            }
            assert_eq!(values, expected[..values.len()], "{end} bytes");
            if end == bytes.len() {
                assert_eq!(values.len(), expected.len());
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(split(&mut &b"hello\r\n"[..]).is_err());
        assert!(split(&mut &b":4x\r\n"[..]).is_err());
        assert!(split(&mut &b"\r\n"[..]).is_err());
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut out = BytesMut::new();
        append(&mut out, &[b"GET", b"k"]);
        assert_eq!(&out[..], b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
