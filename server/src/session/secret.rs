//! The names and secrets of sessions, such that a restarted server knows its own.
//!
//! A session's secret is the beginning of HMAC-SHA-256 over its public id, and the name of the
//! token that it was opened with if that has one, under a key that only this server has. So nothing
//! needs to be written down for a session, and a server that has lost its memory and not its key
//! can still tell whether it is the session's owner that comes back. The key lies in the data
//! directory (`wal/src/files/key.rs`), for the server's user only; with `durability = none` it is
//! made anew at every start.

use hmac::{Hmac, KeyInit, Mac};
use protocol::SessionSecret;
use sha2::Sha256;
use wal::KEY_BYTES;

/// Public ids are numbers that JavaScript holds exactly.
pub(crate) const PUBLIC_ID_BITS: u32 = 53;

/// What this server signs its sessions with.
pub(crate) struct SessionKeys {
    key: [u8; KEY_BYTES],
}

impl SessionKeys {
    /// Keys that end with this process.
    pub(crate) fn fleeting() -> Self {
        let mut key = [0; KEY_BYTES];
        fill(&mut key);
        SessionKeys { key }
    }

    /// Those that the data directory keeps.
    pub(crate) fn new(key: [u8; KEY_BYTES]) -> Self {
        SessionKeys { key }
    }

    /// A name that no session has had.
    pub(crate) fn new_session() -> u64 {
        loop {
            let mut bytes = [0; 8];
            fill(&mut bytes);
            let public_id = u64::from_le_bytes(bytes) >> (u64::BITS - PUBLIC_ID_BITS);
            // Zero stands for no session.
            if public_id != 0 {
                return public_id;
            }
        }
    }

    /// The secret of the session with this name, whether there ever was one. With a token of
    /// another name it is another: so a restarted server, which has no record of the tokens, lets
    /// no client take up a session of another name.
    pub(crate) fn secret(&self, public_id: u64, token_name: &str) -> SessionSecret {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length will do");
        mac.update(b"fencepost session");
        mac.update(&public_id.to_le_bytes());
        // Nothing for no name: sessions from before there were names stay what they are.
        mac.update(token_name.as_bytes());
        let tag = mac.finalize().into_bytes();
        let (secret, _) = tag.split_first_chunk().expect("a tag has 32 bytes");
        SessionSecret::new(*secret)
    }
}

fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_knows_its_sessions() {
        let first = SessionKeys::new([7; KEY_BYTES]);
        let public_id = SessionKeys::new_session();
        let secret = first.secret(public_id, "orders");
        let again = SessionKeys::new([7; KEY_BYTES]);
        assert!(again.secret(public_id, "orders") == secret);
        assert!(again.secret(public_id, "billing") != secret);
        assert!(again.secret(public_id, "") != secret);
        assert!(again.secret(public_id + 1, "orders") != secret);
        assert!(SessionKeys::fleeting().secret(public_id, "orders") != secret);
    }
}
