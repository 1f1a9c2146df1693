//! The number of a grant.

use std::fmt;
use std::str::FromStr;

/// The number of a grant: larger than that of every earlier grant of the same key.
///
/// No grant has fence [`Fence::ZERO`], and none a fence above [`Fence::MAX`]. A peer may name any
/// number nevertheless; such a fence is an ordinary value that equals no granted one.
///
/// As text it is its number in decimal digits, and so it goes through `to_string` and `parse`. With
/// the feature `serde` it is a number there, too; 0 is refused, since it means that a fence is
/// missing.
///
/// ```
/// use fencepost_types::Fence;
///
/// let fence: Fence = "1836311903".parse().unwrap();
/// assert_eq!(fence, Fence::try_from(1_836_311_903).unwrap());
/// assert_eq!(u64::from(fence), 1_836_311_903);
/// ```
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

/// Text or a number that is no fence. The caller that read it acts on it: a header, a column or an
/// argument is missing or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFence;

impl fmt::Display for NoFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a fence: fences are whole numbers from 1, in decimal digits")
    }
}

impl std::error::Error for NoFence {}

impl FromStr for Fence {
    type Err = NoFence;

    /// Takes decimal digits and nothing else: no sign, no space.
    fn from_str(text: &str) -> Result<Fence, NoFence> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoFence);
        }
        text.parse().ok().and_then(Fence::new).ok_or(NoFence)
    }
}

impl TryFrom<u64> for Fence {
    type Error = NoFence;

    /// Refuses 0, as [`Fence::new`] does.
    fn try_from(number: u64) -> Result<Fence, NoFence> {
        Fence::new(number).ok_or(NoFence)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> u64 {
        fence.get()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Fence {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Fence {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        Fence::try_from(number).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
