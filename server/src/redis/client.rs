//! One client of the Redis port: what it has set for its connection, and what it is in the middle
//! of.

use super::channels::{Channels, Topic};
use super::name::Name;
use super::port::Card;
use super::voice::RedisVoice;
use crate::rights::Reservation;
use crate::session::ConnectionId;
use engine::{Fence, Tick};
use protocol::resp::Version;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// How many commands a transaction may have.
pub(crate) const QUEUED_MAX: usize = 1_024;

/// How many bytes the commands of a transaction may have together.
pub(crate) const QUEUED_BYTES_MAX: usize = 1 << 20;

/// What an argument counts beside its bytes: an empty one takes memory as well.
pub(crate) const QUEUED_ARGUMENT_BYTES: usize = 16;

/// How many keys a connection may watch.
pub(crate) const WATCHED_MAX: usize = 1_024;

pub(crate) struct Client {
    pub(crate) card: Arc<Card>,
    pub(crate) voice: Rc<RedisVoice>,
    pub(crate) version: Version,
    pub(crate) db: u8,
    pub(crate) is_authenticated: bool,
    /// The connection is closed once every command is answered.
    pub(crate) is_leaving: bool,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) watched: Vec<(Name<'static>, Stamp)>,
    /// The last lock without an end that this connection took, with its fence.
    pub(crate) endless: Option<(Name<'static>, Fence)>,
    pub(crate) channels: BTreeSet<Box<[u8]>>,
    pub(crate) patterns: BTreeSet<Box<[u8]>>,
    pub(crate) blocked: Option<Blocked>,
    /// It has sent a command of cluster mode, so it knows what `-MOVED` means.
    pub(crate) follows_moves: bool,
    /// Numbers the waits for locks.
    pub(crate) last_wait: u64,
}

/// Between `MULTI` and `EXEC`.
#[derive(Default)]
pub(crate) struct Transaction {
    /// Their arguments, each with the command's name in front.
    pub(crate) commands: Vec<Vec<Box<[u8]>>>,
    pub(crate) bytes: usize,
    /// A command could not be queued: `EXEC` will carry out none.
    pub(crate) is_broken: bool,
}

/// The state of a watched key. Differs after every change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) fence: u64,
    pub(crate) until: Tick,
    pub(crate) count: u32,
    pub(crate) list_change: u64,
}

/// What a connection waits for. No command behind it is decided until then.
pub(crate) enum Blocked {
    /// A grant or a timeout comes by mail.
    Lock,
    /// An element of one of these lists.
    Lists {
        names: Vec<Name<'static>>,
        /// What that counts for, if there is a quota.
        _counted: Option<Reservation>,
        until: Option<tokio::time::Instant>,
    },
}

impl Client {
    pub(crate) fn new(card: Arc<Card>, voice: Rc<RedisVoice>, is_authenticated: bool) -> Self {
        Client {
            card,
            voice,
            version: Version::V2,
            db: 0,
            is_authenticated,
            is_leaving: false,
            transaction: None,
            watched: Vec::new(),
            endless: None,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            blocked: None,
            follows_moves: false,
            last_wait: 0,
        }
    }

    /// The client has chosen its version.
    pub(crate) fn speak(&mut self, version: Version) {
        self.version = version;
        self.voice.set_version(version);
    }

    pub(crate) fn topics(&mut self, topic: Topic) -> &mut BTreeSet<Box<[u8]>> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
        }
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Leaves all channels and patterns, without an answer.
    pub(crate) fn unsubscribe_all(&mut self, channels: &Channels, connection: ConnectionId) {
        for topic in [Topic::Channel, Topic::Pattern] {
            for name in std::mem::take(self.topics(topic)) {
                channels.unsubscribe(topic, &name, connection);
            }
        }
    }
}
