//! How long a key may be held, and whether a command may take or end it.

use super::{Expiry, Section};
use crate::redis::name::Name;
use crate::redis::refusal::Refusal;
use crate::rights::Role;
use crate::session::redis_form::{VALUE_BYTES_MAX, Value};
use crate::storage::unix_now_ms;
use engine::{Fence, Key, Span, TTL_MS_MAX};

impl Section<'_> {
    /// Counts a command that ends or takes a lock without showing that it is the caller's. Refused
    /// if `redis_strict` is on, and from a sender that may not operate. That its prefixes reach the
    /// keys was checked before the section was opened.
    pub(crate) fn force(&self) -> Result<(), Refusal> {
        if let Some(bounds) = self.bounds
            && !bounds.has(Role::Operate)
        {
            let name = bounds.name().clone();
            return Err(Refusal::NotOwn { name });
        }
        if self.core.shared.config.redis_strict {
            return Err(Refusal::Strict);
        }
        self.core.metrics().redis_forced.bump();
        Ok(())
    }

    /// As `force`, for a lock that is to end at another time. It has a line in the audit log: the
    /// one of its end will not say whose doing that was.
    pub(crate) fn force_end(&self, name: &Name<'_>, fence: Fence) -> Result<(), Refusal> {
        self.force()?;
        if let Some(audit) = self.core.shared.audit() {
            audit.forced(self.connection.actor(), name.bytes(), fence.get(), "");
        }
        Ok(())
    }

    /// Refuses a channel that the sender's prefixes do not reach. Asked before a script changes
    /// what the message reports.
    pub(crate) fn check_channel(&self, channel: &[u8]) -> Result<(), Refusal> {
        match self.bounds {
            Some(bounds) if !bounds.covers(channel) => Err(Refusal::OutOfReach {
                name: bounds.name().clone(),
                what: "a channel",
            }),
            _ => Ok(()),
        }
    }

    /// Begins every grant: counts the attempt, checks that it is possible, and says for how long.
    pub(super) fn begin(&self, value: &Value<'_>, expiry: Expiry) -> Result<Span, Refusal> {
        self.core.metrics().acquire_attempts.bump();
        if self.core.is_stopping.get() {
            return Err(Refusal::Stopping);
        }
        if value.bytes() > VALUE_BYTES_MAX {
            return Err(Refusal::ValueLength(value.bytes()));
        }
        self.span(expiry)
    }

    /// The longest TTL that `redis_max_ttl` and the engine allow.
    pub(super) fn cap_ms(&self) -> u64 {
        match self.core.shared.config.redis_max_ttl.as_millis() as u64 {
            0 => TTL_MS_MAX,
            cap_ms => cap_ms.min(TTL_MS_MAX),
        }
    }

    /// The end of a key that is set now, if it lies further ahead than the engine counts.
    pub(super) fn long_ttl_end(&self, expiry: Expiry) -> Option<u64> {
        match expiry {
            Expiry::Ms(ms) if ms > TTL_MS_MAX && self.cap_ms() == TTL_MS_MAX => {
                Some(unix_now_ms().saturating_add(ms))
            }
            _ => None,
        }
    }

    /// Remembers the end of a lock that was granted or renewed under this fence, if it has a long
    /// TTL, and forgets an earlier one otherwise.
    pub(super) fn keep_end(
        &mut self,
        name: &Name<'_>,
        fence: Option<Fence>,
        expiry: Expiry,
    ) -> Result<(), Refusal> {
        let Some(fence) = fence else { return Ok(()) };
        let long_ttl_end = self.long_ttl_end(expiry);
        let (engine, now) = (&self.core.shared.engine, self.now);
        let long_ttls = &mut self.signals(name)?.long_ttls;
        match long_ttl_end {
            None => long_ttls.forget(name.bytes()),
            Some(unix_ms) => {
                if long_ttls.is_sweep_due() {
                    long_ttls.sweep(|name, fence| {
                        Key::new(name).is_ok_and(|key| engine.holder(key, fence, now).is_some())
                    });
                }
                long_ttls.set(name.bytes(), fence, unix_ms);
            }
        }
        Ok(())
    }

    /// The lease for this expiry. `redis_max_ttl` shortens it silently. Refused if it is still
    /// longer than `lease_max`.
    pub(crate) fn span(&self, expiry: Expiry) -> Result<Span, Refusal> {
        let cap_ms = self.cap_ms();
        let span = match expiry {
            Expiry::Ms(ms) => Span::Ms(ms.clamp(1, cap_ms)),
            Expiry::Never if cap_ms < TTL_MS_MAX => Span::Ms(cap_ms),
            Expiry::Never => Span::Forever,
        };
        let lease_max_ms = self.core.shared.lease_max_ms;
        match span {
            Span::Ms(ms) if ms > lease_max_ms => Err(Refusal::TooLong { lease_max_ms }),
            Span::Forever if lease_max_ms < u64::MAX => Err(Refusal::Endless { lease_max_ms }),
            span => Ok(span),
        }
    }
}
