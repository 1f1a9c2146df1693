//! The public name of a session.

/// Names a session to clients, operators and the log, across restarts. No secret: holders are shown
/// with it. The engine has a handle of its own for a session, which says where it finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl SessionId {
    /// The id with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}
