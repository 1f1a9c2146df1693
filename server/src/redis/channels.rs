//! Which connection listens to which channel. Messages travel as mail to the core that has the
//! listener's connection. A publisher never waits for a listener; one that does not read is cut off
//! like any other client.

use super::glob;
use super::refusal::Refusal;
use crate::conn::dialect::Message;
use crate::core::mail::Mail;
use crate::core::switchboard::Switchboard;
use crate::session::ConnectionId;
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::sync::Arc;

/// How many channels and patterns one connection may listen to.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1_024;

/// How many subscriptions all connections may have together.
const SUBSCRIPTIONS_TOTAL_MAX: usize = 1 << 20;

/// The longest name of a channel.
const CHANNEL_BYTES_MAX: usize = 1_024;

/// The longest message: it may wait in the mailbox of every core that has a listener.
const MESSAGE_BYTES_MAX: usize = 4_096;

/// Refuses a name of a channel that is too long.
pub(crate) fn check_name(channel: &[u8]) -> Result<(), Refusal> {
    Refusal::if_longer("the name of a channel", channel, CHANNEL_BYTES_MAX)
}

/// Whether a channel has the server's own news, in the manner of Sentinel. Every client may listen
/// to it, and none may publish there. node-redis leaves out the sign of `+switch-master`.
pub(crate) fn is_own(channel: &[u8]) -> bool {
    matches!(channel.first(), Some(b'+' | b'-')) || channel == b"switch-master"
}

/// Whether a pattern is for channels with the server's own news alone. `[-+]sdown` is one of those
/// that node-redis asks a Sentinel for; one that refuses is left for another, time after time.
pub(crate) fn is_own_pattern(pattern: &[u8]) -> bool {
    is_own(pattern) || pattern.starts_with(b"[-+]")
}

/// Refuses a message that is too long, or its channel. Asked before a command changes what the
/// message reports.
pub(crate) fn check_message(channel: &[u8], payload: &[u8]) -> Result<(), Refusal> {
    Refusal::if_longer("a message", payload, MESSAGE_BYTES_MAX)?;
    check_published(channel)
}

/// Refuses a channel that no client publishes to.
pub(crate) fn check_published(channel: &[u8]) -> Result<(), Refusal> {
    if is_own(channel) {
        return Err(Refusal::text(
            "ERR channels that begin with + or - have the server's own news, as those of Sentinel: choose another name",
        ));
    }
    check_name(channel)
}

/// All subscriptions.
#[derive(Default)]
pub(crate) struct Channels {
    listeners: RwLock<Listeners>,
}

#[derive(Default)]
struct Listeners {
    by_channel: HashMap<Box<[u8]>, Vec<ConnectionId>>,
    by_pattern: HashMap<Box<[u8]>, Vec<ConnectionId>>,
    count: usize,
}

/// A channel, or a pattern that matches many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    Channel,
    Pattern,
}

impl Listeners {
    fn table(&mut self, topic: Topic) -> &mut HashMap<Box<[u8]>, Vec<ConnectionId>> {
        match topic {
            Topic::Channel => &mut self.by_channel,
            Topic::Pattern => &mut self.by_pattern,
        }
    }
}

impl Channels {
    /// Adds a listener that does not listen to this topic yet.
    pub(crate) fn subscribe(
        &self,
        topic: Topic,
        name: &[u8],
        listener: ConnectionId,
    ) -> Result<(), Refusal> {
        let mut listeners = self.listeners.write();
        if listeners.count >= SUBSCRIPTIONS_TOTAL_MAX {
            return Err(Refusal::text(
                "OOM there are as many subscriptions as there may be",
            ));
        }
        listeners.count += 1;
        listeners
            .table(topic)
            .entry(name.into())
            .or_default()
            .push(listener);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, topic: Topic, name: &[u8], listener: ConnectionId) {
        let mut listeners = self.listeners.write();
        let table = listeners.table(topic);
        let Some(line) = table.get_mut(name) else {
            return;
        };
        let before = line.len();
        line.retain(|other| *other != listener);
        let removed = before - line.len();
        if line.is_empty() {
            table.remove(name);
        }
        listeners.count -= removed;
    }

    /// Sends a message to every listener of the channel. Returns how many there are.
    pub(crate) fn publish(&self, host: &Switchboard, channel: &[u8], payload: &[u8]) -> usize {
        let listeners = self.listeners.read();
        let mut count = 0;
        let mut tell = |line: &[ConnectionId], pattern: Option<&[u8]>| {
            let message = Arc::new(Message {
                pattern: pattern.map(Into::into),
                channel: channel.into(),
                payload: payload.into(),
            });
            for &connection in line {
                let message = message.clone();
                host.post(connection).send_droppable(Mail::Published {
                    connection,
                    message,
                });
                count += 1;
            }
        };
        if let Some(line) = listeners.by_channel.get(channel) {
            tell(line, None);
        }
        for (pattern, line) in &listeners.by_pattern {
            if glob::matches(pattern, channel) {
                tell(line, Some(pattern));
            }
        }
        count
    }
}
