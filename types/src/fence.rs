//! The number of a grant.

use std::fmt;

/// The number of a grant: larger than that of every earlier grant of the same key.
///
/// No grant has fence [`Fence::ZERO`], and none a fence above [`Fence::MAX`]. A peer may name any
/// number nevertheless; such a fence is an ordinary value that equals no granted one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(u64);

impl Fence {
    /// Below all fences. Never granted: it stands for the fence before a key's first.
    pub const ZERO: Fence = Fence(0);

    /// The largest that is granted: 2^53 - 1, the largest integer that JavaScript holds exactly. A
    /// million grants a second reach it after 285 years.
    pub const MAX: Fence = Fence((1 << 53) - 1);

    /// A lock word of the engine has 60 bits for a fence.
    const WORD_MAX: u64 = u64::MAX >> 4;

    /// `None` for 0, which means "no fence" wherever one may be missing.
    #[inline]
    pub const fn new(number: u64) -> Option<Fence> {
        match number {
            0 => None,
            number => Some(Fence(number)),
        }
    }

    /// The fence with this number, [`Fence::ZERO`] included.
    #[inline]
    pub const fn from_number(number: u64) -> Fence {
        Fence(number)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// A fence that a grant can have: `None` for 0 and above [`Fence::MAX`].
    #[inline]
    pub const fn granted(number: u64) -> Option<Fence> {
        if number <= Self::MAX.0 {
            Self::new(number)
        } else {
            None
        }
    }

    /// The next fence. A key is granted nothing at `MAX`; a little above it a lock word still has
    /// room for the fence.
    #[inline]
    pub const fn next(self) -> Fence {
        assert!(self.0 < Self::WORD_MAX, "a fence left its lock word");
        Fence(self.0 + 1)
    }

    /// The fence `count` grants later, at most [`Fence::MAX`].
    #[inline]
    pub const fn saturating_add(self, count: u64) -> Fence {
        let sum = self.0.saturating_add(count);
        Fence(if sum > Self::MAX.0 { Self::MAX.0 } else { sum })
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_fence_and_fences_compare_as_numbers() {
        assert_eq!(Fence::new(0), None);
        assert_eq!(Fence::new(9).unwrap().to_string(), "9");
        assert_eq!(format!("{:?}", Fence::new(9).unwrap()), "#9");
        assert!(Fence::new(2) < Fence::new(10));
    }

    #[test]
    fn no_grant_has_a_fence_of_zero_or_above_the_last() {
        assert_eq!(Fence::granted(0), None);
        assert_eq!(Fence::granted(1), Fence::new(1));
        assert_eq!(Fence::granted(Fence::MAX.get()), Some(Fence::MAX));
        assert_eq!(Fence::granted(Fence::MAX.get() + 1), None);
        assert_eq!(Fence::granted(u64::MAX), None);
    }

    #[test]
    fn adding_stops_at_the_last_fence() {
        let last_but_two = Fence::from_number(Fence::MAX.get() - 2);
        assert_eq!(last_but_two.saturating_add(1).get(), Fence::MAX.get() - 1);
        for count in [2, 3, u64::MAX] {
            assert_eq!(last_but_two.saturating_add(count), Fence::MAX);
        }
    }
}
