//! The fence of a request: the header `X-Fence-Token`.

use axum::http::HeaderMap;
use protocol::Fence;
use std::fmt;

/// The header that carries the fence.
pub const FENCE_HEADER: &str = "x-fence-token";

/// Why a request has no fence. It is the client's mistake, and nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// There is no such header.
    Missing,
    /// There are two. Which one would have been meant?
    Repeated,
    /// It is not a number from 1 to 2^64 - 1 in decimal digits.
    Malformed,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the header X-Fence-Token is missing: send the fence of the lock you hold",
            Self::Repeated => "there is more than one header X-Fence-Token: send one",
            Self::Malformed => "X-Fence-Token must be a number from 1 to 18446744073709551615, in decimal digits only",
        })
    }
}

impl std::error::Error for TokenError {}

/// The fence that a request carries.
///
/// # Errors
/// There is none, or it cannot be read. To go on without would be to go on unguarded.
pub fn fence_of(headers: &HeaderMap) -> Result<Fence, TokenError> {
    let mut values = headers.get_all(FENCE_HEADER).iter();
    let value = values.next().ok_or(TokenError::Missing)?;
    if values.next().is_some() {
        return Err(TokenError::Repeated);
    }
    let digits = value.to_str().map_err(|_| TokenError::Malformed)?;
    // The parser would take a plus sign as well; a number has one spelling here.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TokenError::Malformed);
    }
    let number = digits.parse().map_err(|_| TokenError::Malformed)?;
    Fence::new(number).ok_or(TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::{TokenError, fence_of};
    use axum::http::{HeaderMap, HeaderValue};

    fn parse(values: &[&[u8]]) -> Result<u64, TokenError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("X-Fence-Token", HeaderValue::from_bytes(value).unwrap());
        }
        fence_of(&headers).map(|fence| fence.get())
    }

    #[test]
    fn a_fence_is_one_number_in_digits() {
        assert_eq!(parse(&[b"1"]), Ok(1));
        assert_eq!(parse(&[b"0042"]), Ok(42));
        assert_eq!(parse(&[b"18446744073709551615"]), Ok(u64::MAX));
        assert_eq!(parse(&[]), Err(TokenError::Missing));
        assert_eq!(parse(&[b"1", b"1"]), Err(TokenError::Repeated));
        let wrong: [&[u8]; 10] = [
            b"",
            b"0",
            b"-1",
            b"+1",
            b" 1",
            b"1.0",
            b"0x1",
            b"1,2",
            b"\xb2",
            b"18446744073709551616",
        ];
        for value in wrong {
            assert_eq!(parse(&[value]), Err(TokenError::Malformed), "{value:?}");
        }
    }
}
