//! How long a grant lasts.

/// What a client of the native protocol asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// For this long unless renewed: 1 to [`TTL_MS_MAX`](crate::limits::TTL_MS_MAX), which is a
    /// day. A server may allow less (`--lease-max`).
    Ttl {
        /// Milliseconds from the grant.
        ttl_ms: u32,
    },
    /// As long as its session: kept alive with it, gone with it.
    Session,
}

/// What the engine keeps. A superset of [`Lease`]: Redis clients hold for years, or without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// For so many milliseconds from the grant: 1 to [`SPAN_MS_MAX`](crate::limits::SPAN_MS_MAX).
    Ms(u64),
    /// As long as its session.
    Session,
    /// Until it is released, taken away, or its session ends.
    Forever,
}

impl From<Lease> for Span {
    #[inline]
    fn from(lease: Lease) -> Self {
        match lease {
            Lease::Ttl { ttl_ms } => Span::Ms(u64::from(ttl_ms)),
            Lease::Session => Span::Session,
        }
    }
}
