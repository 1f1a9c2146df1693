//! Which holders a lock has at the same time.

/// How a lock is held. A new mode is a new variant here; the compiler then names every place that
/// has to decide about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// By one holder.
    #[default]
    Exclusive,
    /// By any number of holders that all asked for this mode.
    Shared,
}

impl Mode {
    /// The word for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }

    /// The mode where wire, log or JSON have one bit for it.
    #[inline]
    pub const fn from_is_shared(is_shared: bool) -> Mode {
        match is_shared {
            true => Self::Shared,
            false => Self::Exclusive,
        }
    }

    /// The bit for this mode on wire, log and in JSON.
    #[inline]
    pub const fn is_shared(self) -> bool {
        match self {
            Self::Exclusive => false,
            Self::Shared => true,
        }
    }

    /// Whether one holder has the lock for itself. More than one need a list of holders.
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
            (Self::Exclusive, _) | (Self::Shared, Self::Shared) => false,
        }
    }

    /// What holds after something was said of a lock twice. A downgrade is final, so a lock that
    /// was shared once stays so.
    #[inline]
    pub const fn weaker(self, other: Mode) -> Mode {
        match (self, other) {
            (Self::Exclusive, Self::Exclusive) => Self::Exclusive,
            (Self::Shared, _) | (_, Self::Shared) => Self::Shared,
        }
    }

    /// Whether a lock that is held in this mode takes another holder in mode `other`.
    #[inline]
    pub const fn admits(self, other: Mode) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Exclusive, _) | (_, Self::Exclusive) => false,
        }
    }
}
