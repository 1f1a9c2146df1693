//! For how long a key is held, and whether it may be at all.

use super::{Expiry, Section};
use crate::redis::content::{Content, VALUE_BYTES_MAX};
use crate::redis::name::Name;
use crate::redis::refusal::Refusal;
use crate::storage::unix_now_ms;
use engine::{Fence, Key, Span, TTL_MS_MAX};

impl Section<'_> {
    /// Something is about to be done to a lock without showing that it is the caller's.
    pub(crate) fn force(&self) -> Result<(), Refusal> {
        if self.core.shared.config.redis_strict {
            return Err(Refusal::Strict);
        }
        self.core.metrics().redis_forced.bump();
        Ok(())
    }

    /// What every grant begins with: is it possible at all, and for how long is it.
    pub(super) fn begin(&self, content: &Content<'_>, expiry: Expiry) -> Result<Span, Refusal> {
        self.core.metrics().acquire_attempts.bump();
        if self.core.is_stopping.get() {
            return Err(Refusal::Stopping);
        }
        if content.bytes() > VALUE_BYTES_MAX {
            return Err(Refusal::ValueLength(content.bytes()));
        }
        self.span(expiry)
    }

    /// The longest that the settings and the engine allow.
    pub(super) fn cap_ms(&self) -> u64 {
        match self.core.shared.config.redis_max_ttl.as_millis() as u64 {
            0 => TTL_MS_MAX,
            cap_ms => cap_ms.min(TTL_MS_MAX),
        }
    }

    /// When what is set now ends, if that is further ahead than the engine counts.
    pub(super) fn far_end(&self, expiry: Expiry) -> Option<u64> {
        match expiry {
            Expiry::Ms(ms) if ms > TTL_MS_MAX && self.cap_ms() == TTL_MS_MAX => {
                Some(unix_now_ms().saturating_add(ms))
            }
            _ => None,
        }
    }

    /// Remembers when a lock ends that was granted or renewed under this fence, or that the engine knows.
    pub(super) fn keep_end(
        &mut self,
        name: &Name<'_>,
        fence: Option<Fence>,
        expiry: Expiry,
    ) -> Result<(), Refusal> {
        let Some(fence) = fence else { return Ok(()) };
        let far_end = self.far_end(expiry);
        let (engine, now) = (&self.core.shared.engine, self.now);
        let far_ends = &mut self.signals(name)?.far_ends;
        match far_end {
            None => far_ends.forget(name.bytes()),
            Some(unix_ms) => {
                if far_ends.is_sweep_due() {
                    far_ends.sweep(|name, fence| {
                        Key::new(name).is_ok_and(|key| engine.holder(key, fence, now).is_some())
                    });
                }
                far_ends.set(name.bytes(), fence, unix_ms);
            }
        }
        Ok(())
    }

    /// As long as was asked for. `redis_max_ttl` makes it shorter without a word; what is still
    /// longer than `lease_max` is refused.
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
