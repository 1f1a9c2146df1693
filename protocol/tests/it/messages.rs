//! Every message there is, made of arbitrary values inside the limits.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::limits::*;
use protocol::*;

/// Owned values for borrowed messages. One set makes one message of each sort.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    key: Vec<u8>,
    bytes: Vec<u8>,
    text: String,
    ttl_ms: u32,
    page: u16,
    small: [u32; 5],
    large: [u64; 3],
    secret: [u8; 16],
    code: u16,
    shared: bool,
    session_bound: bool,
    yes: bool,
    record_count: usize,
}

pub(crate) fn parts() -> impl Strategy<Value = Parts> {
    let strings = (
        vec(any::<u8>(), 1..=KEY_BYTES_MAX),
        vec(any::<u8>(), 0..=METADATA_BYTES_MAX),
        // Sixteen characters fit the smallest text whatever they are.
        vec(any::<char>(), 0..=16).prop_map(String::from_iter),
    );
    let numbers = (
        1..=TTL_MS_MAX,
        0..=LIST_PAGE_MAX.min(SESSIONS_PAGE_MAX),
        any::<[u32; 5]>(),
        [1..=u64::MAX, 1..=u64::MAX, 1..=u64::MAX],
        any::<[u8; 16]>(),
        any::<u16>(),
    );
    (strings, numbers, any::<[bool; 3]>(), 0..=4_usize).prop_map(
        |(strings, numbers, [shared, session_bound, yes], record_count)| Parts {
            key: strings.0,
            bytes: strings.1,
            text: strings.2,
            ttl_ms: numbers.0,
            page: numbers.1,
            small: numbers.2,
            large: numbers.3,
            secret: numbers.4,
            code: numbers.5,
            shared,
            session_bound,
            yes,
            record_count,
        },
    )
}

impl Parts {
    pub(crate) fn request_id(&self) -> RequestId {
        RequestId::new(self.large[0])
    }

    fn key(&self) -> Key<'_> {
        Key::new(&self.key).unwrap()
    }

    fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.bytes).unwrap()
    }

    fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.bytes).unwrap()
    }

    fn client_name(&self) -> ClientName<'_> {
        ClientName::new(&self.text).unwrap()
    }

    fn message(&self) -> Message<'_> {
        Message::new(&self.text).unwrap()
    }

    fn leader(&self) -> NodeAddress<'_> {
        match self.yes {
            true => NodeAddress::new(&self.text).unwrap(),
            false => NodeAddress::default(),
        }
    }

    fn waited_ms(&self) -> u32 {
        match self.shared {
            true => self.small[1] % (WAIT_MS_MAX + 1),
            false => 0,
        }
    }

    fn fence(&self) -> Fence {
        Fence::new(self.large[1]).unwrap()
    }

    fn session(&self) -> SessionKey {
        SessionKey {
            session_id: SessionId::new(self.large[2]),
            secret: SessionSecret::new(self.secret),
        }
    }

    fn mode(&self) -> Mode {
        if self.shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        }
    }

    fn lease(&self) -> Lease {
        if self.session_bound {
            Lease::Session
        } else {
            Lease::Ttl {
                ttl_ms: self.ttl_ms,
            }
        }
    }

    fn hold_count(&self) -> u32 {
        self.small[0].max(1)
    }

    fn opening(&self) -> Opening {
        match (self.yes, self.shared) {
            (false, _) => Opening::New,
            (true, false) => Opening::Resume(self.session()),
            (true, true) => Opening::Join(self.session()),
        }
    }

    fn holder(&self) -> Holder<'_> {
        Holder {
            fence: self.fence(),
            session_id: SessionId::new(self.large[0]),
            held_ms: self.large[2],
            remaining_ms: self.small[0],
            ends_with_session: self.session_bound,
            mode: self.mode(),
            is_session_bound: self.session_bound,
            is_you: self.yes,
            hold_count: self.hold_count(),
            client_name: self.client_name(),
            metadata: self.metadata(),
        }
    }

    fn contention(&self) -> Contention<'_> {
        Contention {
            holder_count: self.small[1],
            queue_length: self.small[2],
            holder: self.yes.then(|| self.holder()),
            recovering_ms: self.recovering_ms(),
        }
    }

    fn recovering_ms(&self) -> Option<u32> {
        self.shared.then_some(self.small[3])
    }

    /// Every request. A new variant does not compile until `request_index` knows it, and a test
    /// then misses it here.
    pub(crate) fn requests(&self) -> Vec<Request<'_>> {
        let (key, fence) = (self.key(), self.fence());
        vec![
            Request::Hello(Hello {
                version_min: self.code,
                version_max: self.page,
                session_ttl_ms: self.ttl_ms,
                client_name: self.client_name(),
                token: Token::new(&self.bytes).unwrap(),
                opening: self.opening(),
            }),
            Request::Ping,
            Request::KeepAlive,
            Request::Goodbye,
            Request::Acquire(Acquire {
                key,
                mode: self.mode(),
                lease: self.lease(),
                wait_ms: self.small[0] % (WAIT_MS_MAX + 1),
                is_reentrant: self.yes,
                is_detached: !self.yes && !self.session_bound,
                metadata: self.metadata(),
                trace_id: TraceId::new(&self.text).unwrap(),
                waited_ms: self.waited_ms(),
            }),
            Request::Renew {
                key,
                fence,
                lease: self.lease(),
            },
            Request::Release { key, fence },
            Request::Downgrade { key, fence },
            Request::Cancel {
                acquire_id: RequestId::new(self.large[2]),
            },
            Request::Claim(Claim {
                key,
                fence,
                mode: self.mode(),
                lease: self.lease(),
                hold_count: self.hold_count(),
                metadata: self.metadata(),
                trace_id: TraceId::new(&self.text).unwrap(),
            }),
            Request::Query { key },
            Request::List {
                prefix: Prefix::new(&self.bytes).unwrap(),
                cursor: self.cursor(),
                limit: self.page,
            },
            Request::Sessions {
                cursor: self.cursor(),
                limit: self.page,
            },
            Request::Stats,
            Request::ForceRelease {
                key,
                fence,
                trace_id: TraceId::new(&self.text).unwrap(),
            },
            Request::EndSession {
                session_id: SessionId::new(self.large[0]),
            },
            Request::Unknown {
                op: request::op::WATCH,
            },
        ]
    }

    /// The records of lists: `Records` borrows its slice, so the caller keeps it.
    pub(crate) fn lists(&self) -> Lists<'_> {
        let lock = LockEntry {
            key: self.key(),
            contention: Contention {
                recovering_ms: None,
                ..self.contention()
            },
            last_fence: self.yes.then(|| self.fence()),
        };
        let session = SessionEntry {
            session_id: SessionId::new(self.large[0]),
            age_ms: self.large[1],
            ttl_ms: self.small[0],
            remaining_ms: self.small[1],
            connection_count: self.small[2],
            lock_count: self.small[3],
            waiter_count: self.small[4],
            client_name: self.client_name(),
            address: Address::new(&self.text).unwrap(),
        };
        let stat = StatEntry {
            name: StatName::new(&self.text).unwrap(),
            value: self.large[0],
        };
        Lists {
            holders: vec![self.holder(); self.record_count],
            locks: vec![lock; self.record_count],
            sessions: vec![session; self.record_count],
            stats: vec![stat; self.record_count],
        }
    }

    /// Every reply; see [`Parts::requests`].
    pub(crate) fn replies<'a>(&'a self, lists: &'a Lists<'a>) -> Vec<Reply<'a>> {
        let [ttl_ms, retry_after_ms, ..] = self.small;
        let code = ErrorCode(self.code);
        let [low, _] = self.code.to_le_bytes();
        vec![
            Reply::Error {
                code,
                message: self.message(),
                leader: self.leader(),
            },
            Reply::Welcome(Welcome {
                version: self.code,
                is_resumed: self.yes,
                session: self.session(),
                session_ttl_ms: ttl_ms,
                frame_bytes_max: self.small[2],
                in_flight_max: self.small[3],
                remembered_max: self.small[4],
                server_name: ServerName::new(&self.text).unwrap(),
                grace_ms: self.shared.then_some(retry_after_ms),
                addresses: NodeAddresses::new(&self.text).unwrap(),
            }),
            Reply::HelloRefused {
                code,
                version_min: self.page,
                version_max: self.code,
                message: self.message(),
                leader: self.leader(),
            },
            Reply::Pong,
            Reply::KeptAlive { ttl_ms },
            Reply::Bye,
            Reply::Granted {
                fence: self.fence(),
                ttl_ms,
                hold_count: self.hold_count(),
            },
            Reply::Refused(self.contention()),
            Reply::TimedOut(self.contention()),
            Reply::Cancelled,
            Reply::NotWaiting,
            Reply::Busy {
                bound: BusyBound(low),
                retry_after_ms,
            },
            Reply::Unavailable {
                reason: UnavailableReason(low),
                retry_after_ms,
            },
            Reply::Renewed { ttl_ms },
            Reply::Released {
                remaining_count: ttl_ms,
            },
            Reply::NotHeld {
                reason: NotHeldReason(low),
            },
            Reply::QueryResult {
                last_fence: self.yes.then(|| self.fence()),
                holder_count: self.small[0],
                queue_length: self.small[1],
                holders: Records::new(&lists.holders).unwrap(),
                recovering_ms: self.recovering_ms(),
            },
            Reply::ListPage {
                next: self.cursor(),
                entries: Records::new(&lists.locks).unwrap(),
                recovering_ms: self.recovering_ms(),
            },
            Reply::SessionsPage {
                next: self.cursor(),
                entries: Records::new(&lists.sessions).unwrap(),
            },
            Reply::Stats {
                entries: Records::new(&lists.stats).unwrap(),
            },
            Reply::Unknown { kind: 0xbf },
        ]
    }

    /// Every push; see [`Parts::requests`].
    pub(crate) fn pushes(&self) -> Vec<Push<'_>> {
        let [low, _] = self.code.to_le_bytes();
        vec![
            Push::Lost {
                key: self.key(),
                fence: self.fence(),
                reason: LostReason(low),
            },
            Push::Shutdown {
                grace_ms: self.small[0],
                leader: self.leader(),
            },
            Push::Unknown {
                kind: push::kind::EVENT,
            },
        ]
    }
}

pub(crate) struct Lists<'a> {
    holders: Vec<Holder<'a>>,
    locks: Vec<LockEntry<'a>>,
    sessions: Vec<SessionEntry<'a>>,
    stats: Vec<StatEntry<'a>>,
}

pub(crate) fn request_index(request: &Request<'_>) -> usize {
    match request {
        Request::Hello(_) => 0,
        Request::Ping => 1,
        Request::KeepAlive => 2,
        Request::Goodbye => 3,
        Request::Acquire(_) => 4,
        Request::Renew { .. } => 5,
        Request::Release { .. } => 6,
        Request::Downgrade { .. } => 7,
        Request::Cancel { .. } => 8,
        Request::Claim(_) => 9,
        Request::Query { .. } => 10,
        Request::List { .. } => 11,
        Request::Sessions { .. } => 12,
        Request::Stats => 13,
        Request::ForceRelease { .. } => 14,
        Request::EndSession { .. } => 15,
        Request::Unknown { .. } => 16,
    }
}

pub(crate) fn reply_index(reply: &Reply<'_>) -> usize {
    match reply {
        Reply::Error { .. } => 0,
        Reply::Welcome(_) => 1,
        Reply::HelloRefused { .. } => 2,
        Reply::Pong => 3,
        Reply::KeptAlive { .. } => 4,
        Reply::Bye => 5,
        Reply::Granted { .. } => 6,
        Reply::Refused(_) => 7,
        Reply::TimedOut(_) => 8,
        Reply::Cancelled => 9,
        Reply::NotWaiting => 10,
        Reply::Busy { .. } => 11,
        Reply::Unavailable { .. } => 12,
        Reply::Renewed { .. } => 13,
        Reply::Released { .. } => 14,
        Reply::NotHeld { .. } => 15,
        Reply::QueryResult { .. } => 16,
        Reply::ListPage { .. } => 17,
        Reply::SessionsPage { .. } => 18,
        Reply::Stats { .. } => 19,
        Reply::Unknown { .. } => 20,
    }
}
