//! What is at a key, as Redis would describe it. Changes nothing.

use super::Section;
use crate::redis::name::Name;
use crate::redis::refusal::Refusal;
use crate::session::redis_form::Value;
use crate::storage::unix_now_ms;
use engine::{Fence, Holder, KeyState, Tick};

/// What is at a key.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Nothing.
    Absent,
    /// A lock of this port that looks like a string.
    Text(Held),
    /// A lock of this port that looks like a hash of one field.
    Hash(Held),
    /// A signal list.
    List,
    /// A set, which is no lock and does nothing else.
    Set,
    /// A lock of a native client. To Redis clients it is a string that equals no token.
    Foreign(Box<Holder>),
}

/// A lock of this port, as it was seen.
#[derive(Debug)]
pub(crate) struct Held {
    /// The owner token, or the hash's field.
    pub(crate) value: Box<[u8]>,
    pub(crate) fence: Fence,
    /// Its end; [`Tick::NEVER`] if it has none.
    pub(crate) until: Tick,
    /// How often its owner holds it.
    pub(crate) count: u32,
}

impl Section<'_> {
    /// What is at the key now.
    pub(crate) fn look(&mut self, name: &Name<'_>) -> Result<Entry, Refusal> {
        let now = self.now;
        let state = self.core.shared.engine.query(name.key(), now);
        let holder = state.and_then(|state| state.holders.into_iter().next());
        Ok(match holder {
            Some(holder) if holder.owner != Some(self.space.session.id) => {
                Entry::Foreign(Box::new(holder))
            }
            Some(holder) => {
                let value = Value::decode(&holder.metadata);
                let held = |value: &[u8]| Held {
                    value: value.into(),
                    fence: holder.fence,
                    until: holder.until,
                    count: holder.count,
                };
                match value {
                    Value::Hash(field) => Entry::Hash(held(field)),
                    Value::Text(value) | Value::Described { owner: value, .. } => {
                        Entry::Text(held(value))
                    }
                }
            }
            None if self.signals(name)?.is_set(name.bytes(), now) => Entry::Set,
            None if self.signals(name)?.exists(name.bytes(), now) => Entry::List,
            None => Entry::Absent,
        })
    }

    /// How a command is refused that needs to know of all locks, while the server recovers.
    #[inline]
    pub(crate) fn recovering(&self) -> Option<Refusal> {
        Refusal::while_recovering(self.core, self.now)
    }

    /// What the engine knows of a key, with all its holders.
    pub(crate) fn state(&self, name: &Name<'_>) -> Option<KeyState> {
        let engine = &self.core.shared.engine;
        engine.query_up_to(name.key(), usize::MAX, self.now)
    }

    pub(crate) fn exists(&mut self, name: &Name<'_>) -> Result<bool, Refusal> {
        Ok(!matches!(self.look(name)?, Entry::Absent))
    }

    /// Whether something is at one of these keys.
    pub(crate) fn any_exists(&mut self, names: &[Name<'_>]) -> Result<bool, Refusal> {
        for name in names {
            if self.exists(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What `GET` gives.
    pub(crate) fn value(&mut self, name: &Name<'_>) -> Result<Option<Box<[u8]>>, Refusal> {
        match self.look(name)? {
            Entry::Absent => Ok(None),
            Entry::Text(held) => Ok(Some(held.value)),
            Entry::Foreign(holder) => Ok(Some(self.foreign_value(&holder))),
            Entry::Hash(_) | Entry::List | Entry::Set => Err(Refusal::WrongType),
        }
    }

    /// The string that stands for a lock of a native client. It is for people to read: no
    /// comparison takes it for a token.
    pub(crate) fn foreign_value(&self, holder: &Holder) -> Box<[u8]> {
        let registry = self.core.shared.registry();
        let session = holder.owner.and_then(|owner| registry.find(owner));
        let public_id = session.map_or(0, |session| session.public_id);
        let fence = holder.fence.get();
        format!("fencepost:session={public_id}:fence={fence}")
            .into_bytes()
            .into()
    }

    /// The lock at this key, if its value is `token`. `Ok(None)`: the key is free, or the lock has
    /// another owner.
    pub(crate) fn own(&mut self, name: &Name<'_>, token: &[u8]) -> Result<Option<Held>, Refusal> {
        match self.look(name)? {
            Entry::Text(held) => Ok((*held.value == *token).then_some(held)),
            Entry::Absent | Entry::Foreign(_) => Ok(None),
            Entry::Hash(_) | Entry::List | Entry::Set => Err(Refusal::WrongType),
        }
    }

    /// The lock at this key, if it is a hash whose field is `field`.
    pub(crate) fn own_hash(
        &mut self,
        name: &Name<'_>,
        field: &[u8],
    ) -> Result<Option<Held>, Refusal> {
        match self.look(name)? {
            Entry::Hash(held) => Ok((*held.value == *field).then_some(held)),
            Entry::Absent => Ok(None),
            Entry::Text(_) | Entry::Foreign(_) | Entry::List | Entry::Set => {
                Err(Refusal::WrongType)
            }
        }
    }

    /// The milliseconds that a key has left: `-1` without an end, `-2` if it is free.
    pub(crate) fn pttl(&mut self, name: &Name<'_>) -> Result<i64, Refusal> {
        let now = self.now;
        let (until, long_ttl_end) = match self.look(name)? {
            Entry::Absent => return Ok(-2),
            Entry::Text(held) | Entry::Hash(held) => {
                let long_ttls = &self.signals(name)?.long_ttls;
                (held.until, long_ttls.get(name.bytes(), held.fence))
            }
            Entry::Foreign(holder) => (holder.until, None),
            Entry::List | Entry::Set => {
                let signals = self.signals(name)?;
                match signals.until(name.bytes(), now) {
                    Some(until) => (until, signals.long_ttl_end(name.bytes(), now)),
                    None => return Ok(-2),
                }
            }
        };
        let left_ms = match (until, long_ttl_end) {
            (_, Some(unix_ms)) => unix_ms.saturating_sub(unix_now_ms()),
            (Tick::NEVER, None) => return Ok(-1),
            (until, None) => now.ms_until(until),
        };
        Ok(i64::try_from(left_ms).unwrap_or(i64::MAX))
    }
}
