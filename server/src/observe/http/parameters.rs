//! Keys in paths and parameters in queries. Keys are any bytes, so percent-encoding is decoded to
//! bytes, here and nowhere else.

use percent_encoding::percent_decode;
use std::borrow::Cow;

/// What `/locks` can be asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) prefix: Vec<u8>,
    pub(super) limit: Option<usize>,
    pub(super) cursor: u32,
}

impl Listing {
    /// Reads a query string. The error is a sentence for its author.
    pub(super) fn parse(query: &str, limit_max: usize) -> Result<Listing, String> {
        let mut listing = Listing::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = form_value(value);
            match name {
                "prefix" => listing.prefix = value,
                // A form sends an empty value for a field that was not filled in.
                "limit" | "cursor" if value.is_empty() => {}
                "limit" => {
                    let limit = number(&value).filter(|limit| (1..=limit_max).contains(limit));
                    listing.limit = Some(
                        limit.ok_or_else(|| format!("limit is a number from 1 to {limit_max}"))?,
                    );
                }
                "cursor" => {
                    listing.cursor = number(&value)
                        .ok_or("cursor is what the page before this one gave as its next")?;
                }
                name => {
                    return Err(format!(
                        "there is no parameter {name:?}, only prefix, limit and cursor"
                    ));
                }
            }
        }
        Ok(listing)
    }
}

/// The prefix that a query asks for.
pub(crate) fn prefix_of(query: &str) -> Result<Vec<u8>, String> {
    Listing::parse(query, usize::MAX).map(|listing| listing.prefix)
}

/// The bytes of a key in a path.
pub(crate) fn path_bytes(path: &str) -> Cow<'_, [u8]> {
    percent_decode(path.as_bytes()).into()
}

/// The bytes of a value in a query, where a plus is a space as in forms.
fn form_value(value: &str) -> Vec<u8> {
    percent_decode(value.replace('+', " ").as_bytes()).collect()
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    // `parse` would also take a sign.
    let digits = std::str::from_utf8(value).ok()?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_forms_write_them() {
        let listing = Listing::parse("prefix=a%2Fb+c%ff&limit=7&cursor=16777217", 10).unwrap();
        assert_eq!(listing.prefix, b"a/b c\xff");
        assert_eq!(listing.limit, Some(7));
        assert_eq!(listing.cursor, 16_777_217);
        assert_eq!(Listing::parse("", 10), Ok(Listing::default()));
        assert_eq!(
            Listing::parse("prefix=&limit=&cursor=", 10),
            Ok(Listing::default())
        );
        assert_eq!(Listing::parse("&&prefix", 10), Ok(Listing::default()));
    }

    #[test]
    fn mistakes_get_a_sentence() {
        let sentence = |query| Listing::parse(query, 10).unwrap_err();
        for query in ["limit=0", "limit=11", "limit=x", "limit=-1", "limit=%2B3"] {
            assert_eq!(sentence(query), "limit is a number from 1 to 10", "{query}");
        }
        assert!(sentence("cursor=4294967296").starts_with("cursor is what"));
        assert!(sentence("prefxi=a").contains("\"prefxi\""));
    }

    #[test]
    fn a_path_carries_any_bytes() {
        assert_eq!(&*path_bytes("orders%2F42/%ff%00+"), b"orders/42/\xff\0+");
        assert_eq!(&*path_bytes("100%"), b"100%");
    }
}
