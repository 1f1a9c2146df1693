//! What the locks of Redis clients look like to the engine: all belong to one session, a key of
//! another database than 0 has that database's number in front, and the value that a client sets,
//! which is its owner token, is the lock's metadata.
//!
//! ```text
//! metadata                       | what it is
//! -------------------------------|-----------------------------------------------------------
//! bytes that do not begin with 0 | a string: the bytes themselves, which operators can read
//! 0 's' bytes                    | a string that is empty or begins with 0
//! 0 'h' field                    | Redisson's lock, a hash of one field; the engine counts
//! 0 'm' length:2 owner meta      | LOCK.ACQUIRE with META
//! ```
//!
//! The metadata of a lock of this port is never empty, so each value is read back as it was set.

use engine::NOTE_BYTES_MAX;

/// The public id of the session that holds the locks of all Redis clients. The ids of native
/// sessions are random and far above it.
pub(crate) const SESSION_ID: u64 = 1;

/// How many databases there are.
pub(crate) const DATABASES: u8 = 16;

/// Stands in front of a database's number. A key of database 0 that begins with it gets one too.
pub(crate) const DATABASE_MARK: u8 = 0;

const ESCAPE: u8 = 0;
const STRING: u8 = b's';
const HASH: u8 = b'h';
const OWNER_AND_META: u8 = b'm';

/// The longest value, field, or owner and meta together.
pub(crate) const VALUE_BYTES_MAX: usize = NOTE_BYTES_MAX - 4;

/// The value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A string, as `SET` makes it.
    Text(&'a [u8]),
    /// A hash of one field, whose number is how often the lock is held.
    Hash(&'a [u8]),
    /// A lock taken by `LOCK.ACQUIRE` with `META`. To other commands it is a string, the owner.
    Described { owner: &'a [u8], meta: &'a [u8] },
}

impl<'a> Value<'a> {
    /// How many bytes of it a client sent.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Text(bytes) | Value::Hash(bytes) => bytes.len(),
            Value::Described { owner, meta } => owner.len() + meta.len(),
        }
    }

    /// The metadata that stands for it. A usual string is not copied.
    pub(crate) fn encode<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        assert!(
            self.bytes() <= VALUE_BYTES_MAX,
            "the caller checks the length of what it takes from the wire"
        );
        match *self {
            Value::Text(bytes) if bytes.first().is_some_and(|first| *first != ESCAPE) => {
                return bytes;
            }
            Value::Text(bytes) => {
                buffer.extend([ESCAPE, STRING]);
                buffer.extend(bytes);
            }
            Value::Hash(field) => {
                buffer.extend([ESCAPE, HASH]);
                buffer.extend(field);
            }
            Value::Described { owner, meta } => {
                buffer.extend([ESCAPE, OWNER_AND_META]);
                buffer.extend((owner.len() as u16).to_le_bytes());
                buffer.extend(owner);
                buffer.extend(meta);
            }
        }
        buffer
    }

    /// Reads metadata back. What this port did not write is a string.
    pub(crate) fn decode(metadata: &'a [u8]) -> Value<'a> {
        match metadata {
            [ESCAPE, STRING, bytes @ ..] => Value::Text(bytes),
            [ESCAPE, HASH, field @ ..] => Value::Hash(field),
            [ESCAPE, OWNER_AND_META, low, high, rest @ ..] => {
                let length = usize::from(u16::from_le_bytes([*low, *high]));
                match rest.split_at_checked(length) {
                    Some((owner, meta)) => Value::Described { owner, meta },
                    None => Value::Text(metadata),
                }
            }
            _ => Value::Text(metadata),
        }
    }

    /// What the client set to tell its lock from others': the string, or the hash's field.
    pub(crate) fn owner(&self) -> &'a [u8] {
        match *self {
            Value::Text(bytes) | Value::Hash(bytes) | Value::Described { owner: bytes, .. } => {
                bytes
            }
        }
    }

    /// The owner token, if string commands may see it. A hash has none for them.
    pub(crate) fn token(&self) -> Option<&'a [u8]> {
        match *self {
            Value::Text(bytes) | Value::Described { owner: bytes, .. } => Some(bytes),
            Value::Hash(_) => None,
        }
    }
}

/// The database that a key of the engine belongs to, and the key as that database has it.
pub(crate) fn split(name: &[u8]) -> (u8, &[u8]) {
    match name {
        [DATABASE_MARK, db, key @ ..] if *db < DATABASES && !key.is_empty() => (*db, key),
        _ => (0, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_back_as_it_was_written_and_is_never_empty_metadata() {
        let values = [
            Value::Text(b""),
            Value::Text(b"token"),
            Value::Text(b"\0"),
            Value::Text(b"\0s"),
            Value::Text(b"\0h1"),
            Value::Text(b"\0m\xff\xff"),
            Value::Hash(b""),
            Value::Hash(b"uuid:1"),
            Value::Described {
                owner: b"",
                meta: b"",
            },
            Value::Described {
                owner: b"me",
                meta: b"\0x",
            },
        ];
        for value in values {
            let mut buffer = Vec::new();
            let metadata = value.encode(&mut buffer);
            assert!(!metadata.is_empty(), "{value:?}");
            assert_eq!(Value::decode(metadata), value);
        }
    }

    #[test]
    fn a_usual_value_is_kept_as_it_is() {
        let mut buffer = Vec::new();
        assert_eq!(Value::Text(b"a1b2").encode(&mut buffer), b"a1b2");
        assert!(buffer.is_empty());
    }

    #[test]
    fn metadata_of_native_clients_is_a_string() {
        for metadata in [&b""[..], b"{\"job\":1}", b"\0", b"\0m\x09\0short"] {
            assert_eq!(Value::decode(metadata), Value::Text(metadata));
        }
    }
}
