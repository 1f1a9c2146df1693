//! How bsm/redislock knows its own locks. A value is a token followed by metadata, and only the
//! tokens are compared. An argument says how long a token is.

use super::call::{ScriptCall, integer_of, lua_error};
use crate::redis::refusal::Refusal;

/// How much of two values is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    offset: i64,
}

impl Prefix {
    /// The prefix of `ARGV[2]` bytes.
    pub(super) fn of(call: &ScriptCall<'_>) -> Result<Self, Refusal> {
        let nil = || lua_error("attempt to perform arithmetic on local 'offset' (a nil value)");
        let offset = call.lua_number(2).ok_or_else(nil)?;
        integer_of(offset).map(|offset| Prefix { offset })
    }

    /// Whether the stored value and the new one have the same prefix. A free key counts as empty.
    pub(super) fn is_same(self, stored: &[u8], new: &[u8]) -> bool {
        self.of_stored(stored) == self.of_new(new)
    }

    /// `GETRANGE key 0 offset-1`. A negative end counts from the end of the value, down to its
    /// first byte.
    fn of_stored(self, value: &[u8]) -> &[u8] {
        let length = value.len() as i64;
        let last = match self.offset.saturating_sub(1) {
            last @ 0.. => last,
            last => last.saturating_add(length).max(0),
        };
        &value[..last.saturating_add(1).min(length) as usize]
    }

    /// `string.sub(value, 1, offset)`. A negative end counts from the end of the value.
    fn of_new(self, value: &[u8]) -> &[u8] {
        let length = value.len() as i64;
        let end = match self.offset {
            end @ 0.. => end,
            end => end.saturating_add(length + 1).max(0),
        };
        &value[..end.min(length) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_and_the_rest_is_not() {
        let is_same = |offset, stored: &str, new: &str| {
            Prefix { offset }.is_same(stored.as_bytes(), new.as_bytes())
        };
        assert!(is_same(3, "tokA", "tokB"));
        assert!(!is_same(4, "tokA", "tokB"));
        assert!(is_same(22, "tok", "tok"));
        assert!(!is_same(3, "", "tok"), "nothing is there");
        assert!(is_same(0, "", "tok"));
        assert!(
            !is_same(0, "x", "tok"),
            "the whole of one against nothing of the other"
        );
        assert!(
            is_same(-1, "abc", "ab"),
            "all but the last byte but one, against all"
        );
        assert!(is_same(i64::MIN, "", "x") && is_same(i64::MAX, "x", "x"));
    }
}
