//! Keys of sixteen databases in one table. Keys of database 0 are those that native clients use.
//! The others have their database's number in front.

use super::refusal::Refusal;
use crate::session::redis_form::DATABASE_MARK as ESCAPE;
pub(crate) use crate::session::redis_form::{DATABASES, split};
use engine::Key;
use std::borrow::Cow;

/// A key of one database, as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name<'a> {
    bytes: Cow<'a, [u8]>,
    /// The number of the stripe that guards it. Computed when the key is named, so that a section
    /// compares two numbers instead of hashing the key again.
    stripe: usize,
}

impl<'a> Name<'a> {
    /// The name of `key` in database `db`. `stripe_of` says which stripe guards it. Refused if the
    /// key is empty or too long.
    pub(crate) fn new(
        db: u8,
        key: &'a [u8],
        stripe_of: impl FnOnce(Key<'_>) -> usize,
    ) -> Result<Self, Refusal> {
        let is_plain = db == 0 && key.first() != Some(&ESCAPE);
        let bytes = if is_plain {
            Cow::Borrowed(key)
        } else {
            Cow::Owned([&[ESCAPE, db], key].concat())
        };
        match Key::new(&bytes) {
            Ok(engine_key) if !key.is_empty() => {
                let stripe = stripe_of(engine_key);
                Ok(Name { bytes, stripe })
            }
            _ => Err(Refusal::KeyLength(key.len())),
        }
    }

    /// Which stripe guards it.
    pub(crate) fn stripe(&self) -> usize {
        self.stripe
    }

    /// The engine's key.
    pub(crate) fn key(&self) -> Key<'_> {
        Key::new(&self.bytes).expect("its length was checked")
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A copy that outlives the command.
    pub(crate) fn into_owned(self) -> Name<'static> {
        Name {
            bytes: Cow::Owned(self.bytes.into_owned()),
            stripe: self.stripe,
        }
    }
}

/// The prefix of all names of a database. Names of database 0 have none in common.
pub(crate) fn prefix(db: u8) -> Vec<u8> {
    match db {
        0 => Vec::new(),
        db => vec![ESCAPE, db],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::KEY_BYTES_MAX;

    fn name(db: u8, key: &[u8]) -> Result<Name<'_>, Refusal> {
        Name::new(db, key, |_| 0)
    }

    #[test]
    fn databases_are_kept_apart_and_names_are_taken_apart_again() {
        let keys: [&[u8]; 5] = [b"k", b"\0", b"\0\x03k", b"\x01", b"\0\0k"];
        let mut seen = std::collections::HashSet::new();
        for db in 0..DATABASES {
            for key in keys {
                let name = name(db, key).unwrap();
                assert_eq!(split(name.bytes()), (db, key));
                assert!(name.bytes().starts_with(&prefix(db)));
                assert!(seen.insert(name.bytes().to_vec()), "{db} {key:?}");
            }
        }
    }

    #[test]
    fn keys_of_database_zero_are_those_of_native_clients() {
        assert_eq!(name(0, b"orders/42").unwrap().bytes(), b"orders/42");
    }

    #[test]
    fn keys_that_are_empty_or_too_long_are_refused() {
        assert!(name(0, b"").is_err());
        assert!(name(0, &[b'k'; KEY_BYTES_MAX]).is_ok());
        assert!(name(0, &[b'k'; KEY_BYTES_MAX + 1]).is_err());
        assert!(name(1, &[b'k'; KEY_BYTES_MAX - 1]).is_err());
    }
}
