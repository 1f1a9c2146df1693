//! What a Redis client is told unasked, in the words of Redis. There are few.

use super::refusal::Refusal;
use crate::conn::dialect::{Message, News, Voice};
use bytes::BytesMut;
use engine::{Fence, Grant, Tick};
use protocol::ErrorCode;
use protocol::resp::{Version, Writer};
use std::cell::Cell;

pub(crate) struct RedisVoice {
    version: Cell<Version>,
    /// Something was left in a signal list that the client waits for.
    list_ready: Cell<bool>,
}

impl RedisVoice {
    pub(crate) fn new() -> Self {
        RedisVoice {
            version: Cell::new(Version::V2),
            list_ready: Cell::new(false),
        }
    }

    /// The client has chosen its version.
    pub(crate) fn set_version(&self, version: Version) {
        self.version.set(version);
    }

    /// Whether a list that the client waits for was written to since this was last asked.
    pub(crate) fn take_list_ready(&self) -> bool {
        self.list_ready.take()
    }
}

impl Voice for RedisVoice {
    fn say(&self, news: &News<'_>, out: &mut BytesMut) {
        let mut out = Writer::new(out, self.version.get());
        match *news {
            News::Granted { grant, now, .. } => write_grant(grant, now, &mut out),
            News::GaveUp { .. } => out.null_array(),
            News::WaitStopped { .. } => out.error(&Refusal::Stopping.to_string()),
            News::ListReady => self.list_ready.set(true),
            News::Published(message) => write_message(message, &mut out),
            // Any other reason would be taken for an answer.
            News::Closing { code, message } if code == ErrorCode::MALFORMED => {
                out.error(&format!("ERR {message}"));
            }
            News::Closing { .. }
            | News::Stopping { .. }
            | News::Lost { .. }
            | News::WaitsElsewhere { .. } => {}
        }
    }

    fn is_blocked_by_waits(&self) -> bool {
        true
    }

    fn announces_stop(&self) -> bool {
        false
    }
}

/// Writes `[fence, ttl_ms]`, the answer to an acquire.
pub(crate) fn write_grant(grant: &Grant, now: Tick, out: &mut Writer<'_>) {
    out.array(2);
    out.integer(fence_number(grant.fence));
    out.integer(left_ms(grant.until, now));
}

pub(crate) fn fence_number(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

pub(crate) fn left_ms(until: Tick, now: Tick) -> i64 {
    match until {
        Tick::NEVER => -1,
        until => i64::try_from(now.ms_until(until)).unwrap_or(i64::MAX),
    }
}

/// Writes a message to its listener.
fn write_message(message: &Message, out: &mut Writer<'_>) {
    match &message.pattern {
        None => {
            out.push(3);
            out.bulk(b"message");
        }
        Some(pattern) => {
            out.push(4);
            out.bulk(b"pmessage");
            out.bulk(pattern);
        }
    }
    out.bulk(&message.channel);
    out.bulk(&message.payload);
}
