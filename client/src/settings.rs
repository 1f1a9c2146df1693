//! What a client was built with, checked.

use crate::error::Error;
use protocol::TraceId;
use std::sync::Arc;
use std::time::Duration;

/// `None`: speaks plainly.
#[cfg(feature = "tls")]
pub(crate) type Security = Option<std::sync::Arc<crate::tls::Connector>>;

/// There is only plain speech.
#[cfg(not(feature = "tls"))]
pub(crate) type Security = Option<std::convert::Infallible>;

pub(crate) struct Settings {
    pub(crate) addresses: Vec<String>,
    pub(crate) name: String,
    pub(crate) token: Vec<u8>,
    pub(crate) security: Security,
    pub(crate) connection_count: usize,
    /// 0 leaves it to the server.
    pub(crate) session_ttl_ms: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) trace_context: Option<TraceContext>,
}

impl Settings {
    /// The trace that the caller is part of, if it tells one that can be sent: nothing fails for
    /// its trace.
    pub(crate) fn current_trace(&self) -> Option<Arc<str>> {
        let told = (self.trace_context.as_ref()?)()?;
        TraceId::new(&told).is_ok().then(|| told.into())
    }
}

/// Tells the trace that the caller is part of.
pub(crate) type TraceContext = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A duration in whole milliseconds, if it lies within bounds.
pub(crate) fn millis(
    field: &'static str,
    given: Duration,
    ms_min: u32,
    ms_max: u32,
) -> Result<u32, Error> {
    match u32::try_from(given.as_millis()) {
        Ok(ms) if (ms_min..=ms_max).contains(&ms) => Ok(ms),
        _ => Err(Error::OutOfRange {
            field,
            given,
            max: Duration::from_millis(ms_max.into()),
        }),
    }
}
