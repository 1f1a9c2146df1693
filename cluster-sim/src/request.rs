//! What clients ask, and what they are told.

/// What a client asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A session, under the client's number.
    Open,
    Acquire {
        key: u8,
        ttl_ms: u64,
    },
    Renew {
        key: u8,
        fence: u64,
        ttl_ms: u64,
    },
    Release {
        key: u8,
        fence: u64,
    },
    /// Who holds it?
    Look {
        key: u8,
    },
}

/// A client's request. A repeated one has the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub client: u64,
    pub id: u64,
    pub ask: Ask,
    /// When it was sent first, by true time. For the checks alone.
    pub sent_us: u64,
}

/// What is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Opened,
    Granted {
        key: u8,
        fence: u64,
        until_ms: u64,
    },
    /// Held under this fence.
    Refused {
        key: u8,
        fence: u64,
    },
    Renewed {
        key: u8,
        fence: u64,
        until_ms: u64,
    },
    /// A renewal or a repeated grant of what is over.
    NotHeld,
    Released {
        key: u8,
        fence: u64,
    },
    Seen {
        key: u8,
        fence: Option<u64>,
    },
    /// Not held back: nothing was decided.
    NotLeader {
        leader: Option<u64>,
    },
    /// The same: the client has no session.
    NoSession,
    /// The same: no fence is to be had yet.
    Busy,
}

impl Told {
    /// Whether something was decided.
    pub(crate) fn is_decided(&self) -> bool {
        !matches!(self, Told::NotLeader { .. } | Told::NoSession | Told::Busy)
    }
}

/// An answer, and which reign it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub request: Request,
    pub told: Told,
    pub node: u64,
    pub reign: u64,
}
