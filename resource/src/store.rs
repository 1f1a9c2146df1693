//! Values behind a guard: a value and the fence it was written under change together, in memory and
//! in one frame of the log.
//!
//! This is how a resource should do it if it can: no fence without its value, no value without its
//! fence. Unlike a guard, a store never forgets a key: at its bounds it refuses new ones.

use crate::ledger::{Bounds, Seen, WhenFull};
use crate::limits::{
    BYTES_DEFAULT, COMPACT_BYTES_DEFAULT, KEYS_DEFAULT, VALUE_BYTES_CAP, WRITES_DEFAULT,
};
use crate::refusal::{Full, JournalError, Policy, Refusal};
use crate::register::{Register, Settings};
use bytes::Bytes;
use protocol::Fence;
use std::path::PathBuf;

/// Whether fences that run backwards are refused, or only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Refused, by this policy.
    On(Policy),
    /// Let through: the baseline that shows what a lock alone is worth. Do not use it for anything
    /// else.
    Off,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self::On(Policy::default())
    }
}

/// What can be set about a store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Whether to refuse fences that run backwards.
    pub enforcement: Enforcement,
    /// How many keys there may be.
    pub keys_max: usize,
    /// How many bytes keys and values may have together.
    pub bytes_max: u64,
    /// How many writes may be under way or waiting for their key's turn.
    pub writes_max: usize,
    /// Where the log is. Without it everything is gone with the store.
    pub data_dir: Option<PathBuf>,
    /// A log shorter than this is never rewritten.
    pub compact_bytes_min: u64,
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            enforcement: Enforcement::default(),
            keys_max: KEYS_DEFAULT,
            bytes_max: BYTES_DEFAULT,
            writes_max: WRITES_DEFAULT,
            data_dir: None,
            compact_bytes_min: COMPACT_BYTES_DEFAULT,
        }
    }
}

/// Keys with values, each with the highest fence it was written under.
pub struct Store {
    register: Register<Bytes>,
    enforcement: Enforcement,
}

/// What came of a write that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Its fence was in order.
    InOrder,
    /// Its fence lay below this one, and fences are not enforced: a client that no longer held the
    /// lock has overwritten what a later holder wrote.
    Backwards {
        /// The highest fence before.
        seen: Fence,
    },
}

impl Store {
    /// Opens a store.
    ///
    /// # Errors
    /// Its log cannot be opened, or is damaged in a way that a crash does not explain.
    pub fn open(settings: &StoreSettings) -> Result<Self, JournalError> {
        let register_settings = Settings {
            bounds: Bounds {
                keys_max: settings.keys_max.max(1),
                bytes_max: settings.bytes_max,
                when_full: WhenFull::Refuse,
            },
            writes_max: settings.writes_max,
            compact_bytes_min: settings.compact_bytes_min,
        };
        let register = match &settings.data_dir {
            None => Register::in_memory(register_settings),
            Some(dir) => Register::open(dir, register_settings)?,
        };
        Ok(Store {
            register,
            enforcement: settings.enforcement,
        })
    }

    /// Replaces the value of `key`. With a log, it is on the disk when this returns.
    ///
    /// Cancel safe: if dropped, it happened, will happen, or will never happen, as a whole.
    ///
    /// # Errors
    /// Nothing was written. [`Refusal::Stale`] is the one to expect.
    pub async fn put(&self, key: &[u8], fence: Fence, value: &[u8]) -> Result<Written, Refusal> {
        if value.len() > VALUE_BYTES_CAP {
            // What the log could not read back must not get into it.
            return Err(Refusal::Full(Full::Bytes {
                bytes_max: VALUE_BYTES_CAP as u64,
            }));
        }
        // What came over a socket may be a corner of a far larger buffer, and would keep all of it.
        let value = Bytes::copy_from_slice(value);
        let policy = match self.enforcement {
            Enforcement::On(policy) => Some(policy),
            Enforcement::Off => None,
        };
        let admitted = self.register.admit(key, fence, value, policy).await?;
        Ok(match admitted.before {
            Seen::Fence(seen) if fence < seen => Written::Backwards { seen },
            _ => Written::InOrder,
        })
    }

    /// The value of `key`, and the highest fence it was written under.
    pub fn get(&self, key: &[u8]) -> Option<(Bytes, Fence)> {
        self.register.get(key)
    }

    /// Whether fences that run backwards are refused.
    pub fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.register.keys()
    }

    /// How many bytes keys and values have together.
    pub fn bytes(&self) -> u64 {
        self.register.bytes()
    }

    /// How many writes are under way or waiting for their turn.
    pub fn writes(&self) -> usize {
        self.register.writes()
    }
}
