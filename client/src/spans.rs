//! Spans and events for `tracing`: an acquire, the work under a lock, a loss, a reconnect. Without
//! the feature `tracing` every function here does nothing.

use crate::error::Loss;
use protocol::Fence;

/// Runs an acquire inside a span that gets the fence once it is known.
#[cfg(feature = "tracing")]
pub(crate) async fn acquiring<T>(
    key: &[u8],
    trace_id: Option<&str>,
    acquire: impl Future<Output = T>,
) -> T {
    use tracing::Instrument;
    let span = tracing::info_span!(
        "lock_acquire",
        key = %String::from_utf8_lossy(key),
        trace_id,
        fence = tracing::field::Empty,
    );
    acquire.instrument(span).await
}

#[cfg(not(feature = "tracing"))]
pub(crate) async fn acquiring<T>(
    _key: &[u8],
    _trace_id: Option<&str>,
    acquire: impl Future<Output = T>,
) -> T {
    acquire.await
}

/// Inside [`acquiring`]: this is the fence.
#[cfg(feature = "tracing")]
pub(crate) fn granted(fence: Fence) {
    tracing::Span::current().record("fence", fence.get());
    tracing::debug!(fence = fence.get(), "granted");
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn granted(_fence: Fence) {}

/// Runs the work under a lock inside a span with its fence.
#[cfg(feature = "tracing")]
pub(crate) async fn working<T>(
    key: &[u8],
    fence: Fence,
    trace_id: Option<&str>,
    work: impl Future<Output = T>,
) -> T {
    use tracing::Instrument;
    let span = tracing::info_span!(
        "locked",
        key = %String::from_utf8_lossy(key),
        fence = fence.get(),
        trace_id,
    );
    work.instrument(span).await
}

#[cfg(not(feature = "tracing"))]
pub(crate) async fn working<T>(
    _key: &[u8],
    _fence: Fence,
    _trace_id: Option<&str>,
    work: impl Future<Output = T>,
) -> T {
    work.await
}

/// A lock is gone before its owner let it go.
#[cfg(feature = "tracing")]
pub(crate) fn lost(key: &[u8], fence: Fence, trace_id: Option<&str>, loss: Loss) {
    if !matches!(loss, Loss::Released | Loss::Closed) {
        tracing::warn!(key = %String::from_utf8_lossy(key), fence = fence.get(), trace_id, "{loss}");
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn lost(_key: &[u8], _fence: Fence, _trace_id: Option<&str>, _loss: Loss) {}

/// A connection was opened.
#[cfg(feature = "tracing")]
pub(crate) fn connected(address: &str, is_reconnect: bool) {
    tracing::info!(address, is_reconnect, "connected");
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn connected(_address: &str, _is_reconnect: bool) {}
