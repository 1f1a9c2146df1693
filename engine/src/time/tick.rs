//! Time as the engine knows it: whole milliseconds since it started.
//!
//! The engine has no clock. Its caller reads one once per batch and passes the tick down as `now`.
//! A tick has 38 bits, because that is what a lease can spare for its deadline: 2^38 ms is 8.7
//! years, and an engine that has run for so long stands still at [`Tick::MAX`] instead of wrapping
//! round. The last pattern of 38 bits is not a time but [`Tick::NEVER`], which orders after every
//! time.

/// Milliseconds since the engine's start, or [`Tick::NEVER`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// How many bits a tick needs, [`Tick::NEVER`] included.
    pub const BITS: u32 = 38;

    /// The last moment there is, 8.7 years after the start.
    pub const MAX: Tick = Tick((1 << Tick::BITS) - 2);

    /// No deadline. Later than [`Tick::MAX`].
    pub const NEVER: Tick = Tick((1 << Tick::BITS) - 1);

    /// The moment `ms` milliseconds after the engine's start.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Tick {
        assert!(ms <= Tick::MAX.0, "a tick ends at 2^38 - 2 ms, 8.7 years");
        Tick(ms)
    }

    /// Reads back what [`Tick::as_ms`] gave, which for a lease may be [`Tick::NEVER`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Tick {
        assert!(bits <= Tick::NEVER.0, "a tick has 38 bits");
        Tick(bits)
    }

    /// The milliseconds, always below 2^38; 2^38 - 1 is [`Tick::NEVER`].
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// The moment `ms` later, at most [`Tick::MAX`]. Never stays never.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Tick {
        // `Ord::min` and `Ord::max` are not const.
        let sum_ms = self.0.saturating_add(ms);
        let sum_ms = if sum_ms < Tick::MAX.0 {
            sum_ms
        } else {
            Tick::MAX.0
        };
        // No sum lies before its beginning, except from never. Taking the later of the two is
        // cheaper than to ask for it first, and every grant adds.
        if sum_ms > self.0 { Tick(sum_ms) } else { self }
    }

    /// Whether a lease, session or list that lasts until here is over by `now`.
    ///
    /// Ticks are cut to whole milliseconds: what began within one tick has lasted as long as was
    /// promised only after its last tick has passed, too. So it is over one tick after its end.
    /// This is the one place that says so; timers are armed for [`Tick::over_at`].
    #[must_use]
    #[inline]
    pub const fn is_over(self, now: Tick) -> bool {
        self.0 <= now.0 && self.over_at().0 <= now.0
    }

    /// The first tick at which what lasts until here is over. At [`Tick::MAX`], where time stands
    /// still, that is the end itself; never is never over.
    #[must_use]
    #[inline]
    pub const fn over_at(self) -> Tick {
        // Every grant asks for it, and it never overflows: cheaper than `plus_ms(1)`.
        Tick(self.0 + (self.0 < Tick::MAX.0) as u64)
    }

    /// How long from here to `later`; zero if that has passed.
    #[must_use]
    pub const fn ms_until(self, later: Tick) -> u64 {
        later.0.saturating_sub(self.0)
    }

    /// The low 32 bits, for places that only compare ticks less than 49 days apart.
    #[must_use]
    pub const fn low32(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Tick;

    #[test]
    fn adding_stops_at_max_and_cannot_overflow() {
        for start in [0, 1, Tick::MAX.as_ms() - 1, Tick::MAX.as_ms()] {
            assert_eq!(Tick::from_ms(start).plus_ms(u64::MAX), Tick::MAX);
        }
        assert_eq!(Tick::from_ms(Tick::MAX.as_ms() - 1).plus_ms(1), Tick::MAX);
        assert_eq!(Tick::from_ms(40).plus_ms(2), Tick::from_ms(42));
        assert_eq!(Tick::NEVER.plus_ms(1), Tick::NEVER);
    }

    #[test]
    fn over_a_tick_after_the_end() {
        for end in [Tick::from_ms(0), Tick::from_ms(41), Tick::MAX, Tick::NEVER] {
            assert_eq!(end.over_at(), end.plus_ms(1));
        }
    }

    #[test]
    fn never_is_after_every_moment_and_stays_never() {
        assert!(Tick::MAX < Tick::NEVER);
        assert_eq!(Tick::NEVER.plus_ms(1), Tick::NEVER);
        assert_eq!(Tick::from_bits(Tick::NEVER.as_ms()), Tick::NEVER);
    }

    #[test]
    fn what_lasts_until_a_tick_lasts_through_it() {
        let end = Tick::from_ms(40);
        assert!(!end.is_over(Tick::from_ms(39)));
        assert!(
            !end.is_over(end),
            "some of the last millisecond may be left"
        );
        assert!(end.is_over(end.over_at()));
        assert!(Tick::MAX.is_over(Tick::MAX), "there is no later tick");
        assert!(!Tick::NEVER.is_over(Tick::MAX));
    }

    #[test]
    fn what_has_passed_is_zero_away() {
        assert_eq!(Tick::from_ms(5).ms_until(Tick::from_ms(9)), 4);
        assert_eq!(Tick::from_ms(9).ms_until(Tick::from_ms(5)), 0);
    }

    #[test]
    fn low32_drops_the_high_bits() {
        assert_eq!(Tick::from_ms((7 << 32) | 0xdead_beef).low32(), 0xdead_beef);
    }

    #[test]
    #[should_panic(expected = "2^38 - 2")]
    fn never_is_not_a_number_of_milliseconds() {
        let _ = Tick::from_ms(Tick::NEVER.as_ms());
    }
}
