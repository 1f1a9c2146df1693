//! Reasons and error codes: numbers that get new members as the protocol grows.
//!
//! Each is a number with names for the values known today, not an enum: a client must survive a
//! reason that is newer than itself, and pass it on unchanged.

use std::fmt;

macro_rules! codes {
    (
        $(#[$doc:meta])*
        $name:ident($number:ty) {
            $($(#[$value_doc:meta])* $value:ident = $code:literal, $text:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$value_doc])* pub const $value: $name = $name($code);)*

            /// Every value that has a name, in order: for tables, metrics and tests.
            pub const ALL: &'static [$name] = &[$($name::$value),*];

            /// Its name in documents, logs and metrics; `"unknown"` for a number that came later
            /// than this crate.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "unknown",
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} {})"), self.0, self.name())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    "unknown" => write!(f, "unknown ({})", self.0),
                    name => f.pad(name),
                }
            }
        }
    };
}

codes! {
    /// What went wrong with a request or a connection.
    ErrorCode(u16) {
        /// The request could not be decoded, or the framing is lost.
        MALFORMED = 1, "malformed";
        /// The server does not know this operation.
        UNKNOWN_OP = 2, "unknown_op";
        /// Client and server have no version in common.
        UNSUPPORTED_VERSION = 3, "unsupported_version";
        /// The token is missing or wrong.
        UNAUTHENTICATED = 4, "unauthenticated";
        /// The token does not allow this operation.
        FORBIDDEN = 5, "forbidden";
        /// The first request must be `Hello`, and no other may be.
        OUT_OF_TURN = 6, "out_of_turn";
        /// The session to join has ended, never was, or has another secret.
        SESSION_UNKNOWN = 7, "session_unknown";
        /// The session ended while this connection was in use: it said goodbye elsewhere, or ran
        /// out of time.
        SESSION_ENDED = 8, "session_ended";
        /// A repeated request is too old: the server no longer knows whether it took effect.
        FORGOTTEN = 9, "forgotten";
        /// The peer took too long to say hello, to complete a frame or to read its replies.
        TOO_SLOW = 10, "too_slow";
        /// The server has as many connections or sessions as it wants.
        AT_CAPACITY = 11, "at_capacity";
        /// The server is going away.
        SHUTTING_DOWN = 12, "shutting_down";
        /// This node of a cluster does not lead it: ask the leader, which the field `leader` names
        /// if this node knows it.
        NOT_LEADER = 14, "not_leader";
    }
}

codes! {
    /// Why a lock was lost.
    LostReason(u8) {
        /// Its lease ran out.
        EXPIRED = 1, "expired";
        /// The session that held it ended.
        SESSION_ENDED = 2, "session_ended";
        /// An operator released it.
        FORCED = 3, "forced";
        /// After a restart, a holder with a higher fence claimed it.
        SUPERSEDED = 4, "superseded";
    }
}

codes! {
    /// Why a renewal, a release or another request that names a fence found no such lock. As far as
    /// the server remembers: what ended long ago is [`NotHeldReason::UNSPECIFIED`].
    NotHeldReason(u8) {
        /// You do not hold it; the server no longer knows what became of it.
        UNSPECIFIED = 0, "unspecified";
        /// This fence of this key was never granted, as far as the server knows.
        NEVER = 1, "never";
        /// Its lease ran out.
        EXPIRED = 2, "expired";
        /// It was released before.
        RELEASED = 3, "released";
        /// An operator released it.
        FORCED = 4, "forced";
        /// Another session holds the key.
        OTHER_OWNER = 5, "other_owner";
        /// You hold the key, under another fence.
        OTHER_FENCE = 6, "other_fence";
    }
}

codes! {
    /// Which bound was hit. Nothing happened; trying later may succeed.
    BusyBound(u8) {
        /// Too many requests wait for this key.
        WAITERS_PER_KEY = 1, "waiters_per_key";
        /// Too many requests wait, whatever for.
        WAITERS_TOTAL = 2, "waiters_total";
        /// The server knows as many keys as it can.
        KEYS = 3, "keys";
        /// Keys and metadata take as much memory as they may.
        MEMORY = 4, "memory";
        /// This connection has too many unanswered requests.
        IN_FLIGHT = 5, "in_flight";
        /// Too many holders share this key.
        SHARED_HOLDERS = 6, "shared_holders";
        /// A queue inside the server is full.
        LOAD = 7, "load";
        /// The clients of this token's name hold, or wait for, as many locks as its quota allows.
        QUOTA_HELD = 8, "quota_held";
        /// As many requests of this token's name wait as its quota allows.
        QUOTA_WAITERS = 9, "quota_waiters";
        /// This token's name asks for more operations a second than its quota allows.
        QUOTA_OPERATIONS = 10, "quota_operations";
        /// As many locks are held, or waited for, under this key's prefix as its quota allows.
        PREFIX_HELD = 11, "prefix_held";
        /// As many requests wait under this key's prefix as its quota allows.
        PREFIX_WAITERS = 12, "prefix_waiters";
    }
}

codes! {
    /// Why the server grants nothing at the moment.
    UnavailableReason(u8) {
        /// It restarted, and earlier holders may still claim their locks.
        RECOVERING = 1, "recovering";
        /// It waits for the disk before it may issue higher fences.
        AT_CEILING = 2, "at_ceiling";
        /// It is going away.
        SHUTTING_DOWN = 3, "shutting_down";
        /// It leads a cluster of which it does not reach a majority. Reserved.
        NO_QUORUM = 4, "no_quorum";
    }
}
