//! Inline commands: a line that a person types, split at blanks, with quotes for arguments that
//! hold blanks.

use super::error::ProtocolError;
use std::ops::Range;

/// Splits `line`, which comes without its line end. Arguments are appended to `unquoted`, since an
/// escape makes them differ from what was typed; `add` is told where each one lies there.
///
/// - `"..."` knows `\n \r \t \b \a` and `\xHH`; any other character after a backslash stands for
///   itself.
/// - `'...'` knows `\'` only.
/// - A quote may begin inside a word; behind the one that closes it there must be a blank or the
///   end.
pub(super) fn split(
    line: &[u8],
    unquoted: &mut Vec<u8>,
    mut add: impl FnMut(Range<usize>),
) -> Result<(), ProtocolError> {
    let mut rest = line;
    while let Some(blanks) = rest.iter().position(|&byte| !is_blank(byte)) {
        let start = unquoted.len();
        rest = take_word(&rest[blanks..], unquoted)?;
        add(start..unquoted.len());
    }
    Ok(())
}

/// Appends the word that `rest` begins with and returns what follows it.
fn take_word<'a>(mut rest: &'a [u8], unquoted: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [byte, ..] if is_blank(*byte) => return Ok(rest),
            [b'"', rest @ ..] => return take_double_quoted(rest, unquoted),
            [b'\'', rest @ ..] => return take_single_quoted(rest, unquoted),
            [byte, rest @ ..] => {
                unquoted.push(*byte);
                rest
            }
        };
    }
}

/// Goes on behind an opening `"`; the word ends with the closing one.
fn take_double_quoted<'a>(
    mut rest: &'a [u8],
    unquoted: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', tail @ ..] => return after_quote(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex_value(*high) << 4 | hex_value(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        unquoted.push(byte);
        rest = tail;
    }
}

/// Goes on behind an opening `'`; the word ends with the closing one.
fn take_single_quoted<'a>(
    mut rest: &'a [u8],
    unquoted: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [b'\'', tail @ ..] => return after_quote(tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        unquoted.push(byte);
        rest = tail;
    }
}

fn after_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_blank(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        itself => itself,
    }
}

/// What C calls a space in its own locale; Rust's ASCII whitespace lacks the vertical tab.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Of a byte that is a hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests;
