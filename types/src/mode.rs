//! Which holders a lock has at the same time.

/// How a lock is held. A new mode is a new variant here; the compiler then names every place that
/// has to decide about it. So code outside this file asks one of these methods or has a `match`
/// without `_`, and compares no modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// By one holder.
    #[default]
    Exclusive,
    /// By any number of holders that all asked for this mode.
    Shared,
}

impl Mode {
    /// The mode of a plain lock. A lock word has no room for a mode: what is known of a lock from
    /// its word alone is held in this one.
    pub const PLAIN: Mode = Mode::Exclusive;

    /// The word for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }

    /// The mode where wire and log have one bit for it.
    #[inline]
    pub const fn from_is_shared(is_shared: bool) -> Mode {
        match is_shared {
            true => Self::Shared,
            false => Self::Exclusive,
        }
    }

    /// What JSON and the command line say of it: they have a yes or no. A mode that is neither
    /// needs a field beside each `is_shared` in `server` (`audit/line.rs`, `http/locks.rs`,
    /// `cli/view.rs`, `cli/wal/json.rs`).
    #[inline]
    pub const fn is_shared(self) -> bool {
        match self {
            Self::Exclusive => false,
            Self::Shared => true,
        }
    }

    /// Whether one holder has the lock for itself, so that a lock word can say all of it. True of
    /// [`Mode::PLAIN`] alone. More than one holder need a list.
    #[inline]
    pub const fn has_one_holder(self) -> bool {
        match self {
            Self::Exclusive => true,
            Self::Shared => false,
        }
    }

    /// Whether a holder in this mode that asks for `wanted` asks for more than it has. Two holders
    /// that both wait for that would wait for ever.
    #[inline]
    pub const fn is_upgrade(self, wanted: Mode) -> bool {
        match (self, wanted) {
            (Self::Shared, Self::Exclusive) => true,
            (Self::Exclusive, Self::Exclusive | Self::Shared) => false,
            (Self::Shared, Self::Shared) => false,
        }
    }

    /// What a downgrade makes of it. It is also what a holder must have if others hold beside it,
    /// whatever its grant said.
    #[inline]
    pub const fn downgraded(self) -> Mode {
        match self {
            Self::Exclusive | Self::Shared => Self::Shared,
        }
    }

    /// What holds after something was said of a lock twice. A downgrade is final, so a lock that
    /// was shared once stays so.
    #[inline]
    pub const fn weaker(self, other: Mode) -> Mode {
        match (self, other) {
            (Self::Exclusive, Self::Exclusive) => Self::Exclusive,
            (Self::Exclusive, Self::Shared) => Self::Shared,
            (Self::Shared, Self::Exclusive | Self::Shared) => Self::Shared,
        }
    }

    /// Whether a lock that is held in this mode takes another holder in mode `other`.
    #[inline]
    pub const fn admits(self, other: Mode) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Exclusive, Self::Exclusive | Self::Shared) => false,
            (Self::Shared, Self::Exclusive) => false,
        }
    }
}
