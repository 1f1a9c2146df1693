//! Keys of sixteen databases in one table. Those of database 0 are the keys that native clients use; the others carry their
//! number in front.

use super::refusal::Refusal;
use engine::{KEY_BYTES_MAX, Key};
use std::borrow::Cow;

/// How many databases there are.
pub(crate) const DATABASES: u8 = 16;

/// In front of a database's number, and of keys of database 0 that begin with it.
const ESCAPE: u8 = 0;

/// A key of one database, as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name<'a>(Cow<'a, [u8]>);

impl<'a> Name<'a> {
    /// The name of `key` in database `db`. Refused if it is empty or too long.
    pub(crate) fn new(db: u8, key: &'a [u8]) -> Result<Self, Refusal> {
        let is_plain = db == 0 && key.first() != Some(&ESCAPE);
        let name = if is_plain {
            Cow::Borrowed(key)
        } else {
            Cow::Owned([&[ESCAPE, db], key].concat())
        };
        if key.is_empty() || name.len() > KEY_BYTES_MAX {
            return Err(Refusal::KeyLength(key.len()));
        }
        Ok(Name(name))
    }

    /// As the engine knows it.
    pub(crate) fn key(&self) -> Key<'_> {
        Key::new(&self.0).expect("its length was checked")
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A copy that outlives the command.
    pub(crate) fn into_owned(self) -> Name<'static> {
        Name(Cow::Owned(self.0.into_owned()))
    }
}

/// Which database a name of the engine's belongs to, and what it is called there.
pub(crate) fn split(name: &[u8]) -> (u8, &[u8]) {
    match name {
        [ESCAPE, db, key @ ..] if *db < DATABASES && !key.is_empty() => (*db, key),
        _ => (0, name),
    }
}

/// What all names of a database begin with. Those of database 0 begin with anything.
pub(crate) fn prefix(db: u8) -> Vec<u8> {
    match db {
        0 => Vec::new(),
        db => vec![ESCAPE, db],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_kept_apart_and_names_are_taken_apart_again() {
        let keys: [&[u8]; 5] = [b"k", b"\0", b"\0\x03k", b"\x01", b"\0\0k"];
        let mut seen = std::collections::HashSet::new();
        for db in 0..DATABASES {
            for key in keys {
                let name = Name::new(db, key).unwrap();
                assert_eq!(split(name.bytes()), (db, key));
                assert!(name.bytes().starts_with(&prefix(db)));
                assert!(seen.insert(name.bytes().to_vec()), "{db} {key:?}");
            }
        }
    }

    #[test]
    fn keys_of_database_zero_are_those_of_native_clients() {
        assert_eq!(Name::new(0, b"orders/42").unwrap().bytes(), b"orders/42");
    }

    #[test]
    fn keys_that_are_empty_or_too_long_are_refused() {
        assert!(Name::new(0, b"").is_err());
        assert!(Name::new(0, &[b'k'; KEY_BYTES_MAX]).is_ok());
        assert!(Name::new(0, &[b'k'; KEY_BYTES_MAX + 1]).is_err());
        assert!(Name::new(1, &[b'k'; KEY_BYTES_MAX - 1]).is_err());
    }
}
