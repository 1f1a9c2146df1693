//! Which bytes are an integer.

/// Reads an integer as Redis does, everywhere from lengths to TTLs: decimal digits, `-` before them
/// or nothing, no `+`, no leading zero, no `-0`, no space, nothing beyond 64 bits. There is thus
/// one way to write each number.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Counted downwards, since the negative range is the larger one.
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_sub(i64::from(digit - b'0'))?;
    }
    if negative {
        Some(value)
    } else {
        value.checked_neg()
    }
}

/// No length within its limits has more.
const DIGITS_MAX: usize = 8;

/// Takes a line off that consists of `mark` and a plain number. `None`, and `bytes` as they
/// were: the line is incomplete or something else.
#[inline]
pub(super) fn take_number(mark: u8, bytes: &mut &[u8]) -> Option<usize> {
    let mut rest = bytes.strip_prefix(&[mark])?;
    let (&first, behind) = rest.split_first()?;
    // Zero is one digit: `parse_integer` takes no leading ones.
    let digits_max = if first == b'0' { 1 } else { DIGITS_MAX };
    let mut value = 0;
    let mut digit = first;
    rest = behind;
    for _ in 0..digits_max {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + usize::from(digit - b'0');
        let (&next, behind) = rest.split_first()?;
        rest = behind;
        if next == b'\r' {
            *bytes = rest.strip_prefix(b"\n")?;
            return Some(value);
        }
        digit = next;
    }
    None
}

#[cfg(test)]
mod tests;
