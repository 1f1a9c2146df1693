//! What the server tells about locks, sessions and itself, as owned values.

use protocol::{Fence, Mode};
use std::fmt;
use std::time::Duration;

/// What stands between the caller and a lock: its holders and the waiters before it. A value, not
/// an error: nothing went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contention {
    /// Its holders; more than one only when it is shared.
    pub holder_count: u32,
    /// The waiters in its queue.
    pub queue_length: u32,
    /// One of the holders. `None` when the lock changed hands while the answer was written, or when
    /// the server is [recovering](Self::recovering) and no holder has claimed it.
    pub holder: Option<Holder>,
    /// As the wire has it: errors carry one of these, and should be small.
    recovering_ms: Option<u32>,
}

impl Contention {
    /// How much longer the server recovers from a restart; `None` when it does not, which is nearly
    /// always. Until then it does not know all holders and grants nothing new: the lock may be held
    /// although no holder is shown.
    ///
    /// ```no_run
    /// # fn example(contention: fencepost::Contention) {
    /// if let Some(left) = contention.recovering() {
    ///     println!("the server learns within {left:?} which clients hold it");
    /// }
    /// # }
    /// ```
    pub fn recovering(&self) -> Option<Duration> {
        millis(self.recovering_ms)
    }

    /// Whether the holder is the client that asked.
    pub(crate) fn is_own(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_you)
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => write!(f, "held by {holder}")?,
            None => match self.recovering() {
                Some(left) => write!(
                    f,
                    "the server is recovering from a restart for {left:?} more and does not know all holders: it may be held"
                )?,
                None => f.write_str("it changed hands just now")?,
            },
        }
        if self.holder_count > 1 {
            write!(f, " and {} more", self.holder_count - 1)?;
        }
        match self.queue_length {
            0 => Ok(()),
            count => write!(f, ", {count} waiting"),
        }
    }
}

impl From<protocol::Contention<'_>> for Contention {
    fn from(contention: protocol::Contention<'_>) -> Self {
        Self {
            holder_count: contention.holder_count,
            queue_length: contention.queue_length,
            holder: contention.holder.map(Holder::from),
            recovering_ms: contention.recovering_ms,
        }
    }
}

/// The longest time that a server reports as left, 49 days. The real one may be longer.
pub const REMAINING_MAX: Duration = Duration::from_millis(protocol::NO_END_MS as u64 - 1);

fn remaining(remaining_ms: u32) -> Option<Duration> {
    (remaining_ms != protocol::NO_END_MS).then(|| Duration::from_millis(remaining_ms.into()))
}

pub(crate) fn millis(ms: Option<u32>) -> Option<Duration> {
    ms.map(|ms| Duration::from_millis(ms.into()))
}

/// One holder of a lock, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name its client was built with.
    pub client_name: String,
    /// Its session.
    pub session_id: u64,
    /// Its grant's fence.
    pub fence: Fence,
    /// Exclusive or shared.
    pub mode: Mode,
    /// How long it has had the lock, renewals included.
    pub held_for: Duration,
    /// How much longer it has the lock unless it renews it; `None` if there is no end. Longer times
    /// are shown as [`REMAINING_MAX`].
    pub remaining: Option<Duration>,
    /// What ends then is its session: the lock's own lease, if it has one, is longer.
    pub ends_with_session: bool,
    /// The lock lives as long as its session, without a lease of its own.
    pub is_session_bound: bool,
    /// The holder is the session of the client that asked.
    pub is_you: bool,
    /// How often it holds the lock: more than once only if it acquired it
    /// [reentrantly](crate::LockRequest::reentrant).
    pub hold_count: u32,
    /// What it left for waiters and operators to read.
    pub metadata: Vec<u8>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_you, self.client_name.as_str()) {
            (true, _) => f.write_str("this client itself")?,
            (false, "") => write!(f, "session {}", self.session_id)?,
            (false, name) => f.write_str(name)?,
        }
        if !self.metadata.is_empty() {
            write!(f, " (\"{}\")", self.metadata.escape_ascii())?;
        }
        write!(f, " for {:?}", self.held_for)?;
        match self.remaining {
            Some(remaining) => write!(f, ", up to {remaining:?} more")?,
            None => f.write_str(", without an end")?,
        }
        match self.ends_with_session {
            true => f.write_str(" with its session"),
            false => Ok(()),
        }
    }
}

impl From<protocol::Holder<'_>> for Holder {
    fn from(holder: protocol::Holder<'_>) -> Self {
        Self {
            client_name: holder.client_name.as_str().to_owned(),
            session_id: holder.session_id.get(),
            fence: holder.fence,
            mode: holder.mode,
            held_for: Duration::from_millis(holder.held_ms),
            remaining: remaining(holder.remaining_ms),
            ends_with_session: holder.ends_with_session,
            is_session_bound: holder.is_session_bound,
            is_you: holder.is_you,
            hold_count: holder.hold_count,
            metadata: holder.metadata.as_bytes().to_vec(),
        }
    }
}

/// The state of one key, from [`Client::query`](crate::Client::query).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyState {
    /// The fence of its newest grant, if the server remembers one. After a restart of the server it
    /// may be a number above all that were granted: name a holder by the fence of its own.
    pub last_fence: Option<Fence>,
    /// Its holders. 0 means that the key is free, unless the server is
    /// [recovering](Self::recovering).
    pub holder_count: u32,
    /// The waiters in its queue.
    pub queue_length: u32,
    /// The holders, or as many of them as fit an answer.
    pub holders: Vec<Holder>,
    /// How much longer the server recovers from a restart; `None` when it does not, which is nearly
    /// always. Until then the key may have holders that are not shown here.
    pub recovering: Option<Duration>,
}

/// One held lock of a list, from [`Client::list`](crate::Client::list).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// What is locked.
    pub key: Vec<u8>,
    /// Its holders and waiters. Whether the server is recovering, the
    /// [pages](crate::Pages::recovering) say, not each lock.
    pub contention: Contention,
    /// The fence of its newest grant, which may have ended. `None`: the server is older than this
    /// client.
    pub last_fence: Option<Fence>,
}

impl From<protocol::LockEntry<'_>> for LockInfo {
    fn from(entry: protocol::LockEntry<'_>) -> Self {
        Self {
            key: entry.key.as_bytes().to_vec(),
            contention: entry.contention.into(),
            last_fence: entry.last_fence,
        }
    }
}

/// One session, from [`Client::sessions`](crate::Client::sessions).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id that [`Client::session_id`](crate::Client::session_id) gives.
    pub session_id: u64,
    /// The name its client was built with.
    pub client_name: String,
    /// Where it last connected from.
    pub address: String,
    /// How long ago it began.
    pub age: Duration,
    /// How long it outlives its last sign of life.
    pub ttl: Duration,
    /// How much longer it lives without a sign of life; `None` if it never ends by itself.
    pub remaining: Option<Duration>,
    /// Connections it has open.
    pub connection_count: u32,
    /// Locks it holds.
    pub lock_count: u32,
    /// Locks it waits for.
    pub waiter_count: u32,
}

impl From<protocol::SessionEntry<'_>> for SessionInfo {
    fn from(entry: protocol::SessionEntry<'_>) -> Self {
        Self {
            session_id: entry.session_id.get(),
            client_name: entry.client_name.as_str().to_owned(),
            address: entry.address.as_str().to_owned(),
            age: Duration::from_millis(entry.age_ms),
            ttl: Duration::from_millis(entry.ttl_ms.into()),
            remaining: remaining(entry.remaining_ms),
            connection_count: entry.connection_count,
            lock_count: entry.lock_count,
            waiter_count: entry.waiter_count,
        }
    }
}

/// One number about the server, from [`Client::stats`](crate::Client::stats). Its name carries its
/// unit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The same as in the server's metrics.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl From<protocol::StatEntry<'_>> for Stat {
    fn from(entry: protocol::StatEntry<'_>) -> Self {
        Self {
            name: entry.name.as_str().to_owned(),
            value: entry.value,
        }
    }
}

/// Some of a long list, and where the rest begins.
#[derive(Debug)]
pub(crate) struct PageOf<T> {
    pub(crate) entries: Vec<T>,
    /// Empty after the last page.
    pub(crate) next: Vec<u8>,
    /// For how much longer the server does not know all holders.
    pub(crate) recovering: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was shown with 49 days left, which is all that 32 bits can say.
    #[test]
    fn a_lock_without_an_end_is_shown_without_one() {
        assert_eq!(remaining(protocol::NO_END_MS), None);
        assert_eq!(remaining(protocol::NO_END_MS - 1), Some(REMAINING_MAX));
    }
}
