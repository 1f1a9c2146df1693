//! Watches every grant of one lock: never two holders at once, and fences that rise.
//!
//! The generator is one thread, so it sees grants and releases in one order. A lock counts as held
//! from the moment its grant is read until the moment its release is written: the server's idea of
//! it contains that time, so a contender that is granted meanwhile proves a fault. The one
//! exception is a lease that ran out under its holder, which then is no holder any more; since we
//! know only when the grant was read, not when the lease began, a holder is trusted for half of its
//! lease.

/// The lock under watch.
pub(crate) struct Checker {
    has_fence: bool,
    lease_ns: u64,
    holder: Option<Holder>,
    last_fence: Option<u64>,
    violation: Option<String>,
    grants: u64,
    outlived: u64,
}

#[derive(Clone, Copy)]
struct Holder {
    lane: u32,
    fence: u64,
    since: u64,
}

impl Checker {
    /// For a lock whose grants last `lease_ns`, and carry fences or not.
    pub(crate) fn new(has_fence: bool, lease_ns: u64) -> Self {
        Checker {
            has_fence,
            lease_ns,
            holder: None,
            last_fence: None,
            violation: None,
            grants: 0,
            outlived: 0,
        }
    }

    /// A grant was read.
    pub(crate) fn granted(&mut self, lane: u32, fence: u64, now: u64) {
        self.grants += 1;
        if let Some(holder) = self.holder {
            if now.saturating_sub(holder.since) < self.lease_ns / 2 {
                self.report(format!(
                    "two holders at once: lane {lane} was granted fence {fence} while lane {} held fence {} for {} us",
                    holder.lane,
                    holder.fence,
                    now.saturating_sub(holder.since) / 1_000,
                ));
            } else {
                self.outlived += 1;
            }
        }
        if self.has_fence {
            if let Some(last_fence) = self.last_fence
                && fence <= last_fence
            {
                self.report(format!(
                    "a fence that does not rise: lane {lane} was granted {fence} after {last_fence}"
                ));
            }
            self.last_fence = self.last_fence.max(Some(fence));
        }
        let since = now;
        self.holder = Some(Holder { lane, fence, since });
    }

    /// A release is about to be written.
    pub(crate) fn releasing(&mut self, lane: u32) {
        if self.holder.is_some_and(|holder| holder.lane == lane) {
            self.holder = None;
        }
    }

    fn report(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }

    /// The first fault, if there was one.
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// How many grants were checked.
    pub(crate) fn grants(&self) -> u64 {
        self.grants
    }

    /// How many leases ran out under their holders.
    pub(crate) fn outlived(&self) -> u64 {
        self.outlived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_NS: u64 = 1_000_000_000;

    fn checker() -> Checker {
        Checker::new(true, LEASE_NS)
    }

    #[test]
    fn locks_handed_on_in_order_pass() {
        let mut checker = checker();
        for turn in 0..1_000 {
            checker.granted(turn % 7, 10 + u64::from(turn), u64::from(turn) * 10);
            checker.releasing(turn % 7);
        }
        assert_eq!(checker.violation(), None);
        assert_eq!(checker.grants(), 1_000);
    }

    #[test]
    fn a_second_grant_before_the_release_is_caught() {
        let mut checker = checker();
        checker.granted(1, 10, 0);
        checker.granted(2, 11, 5_000);
        let violation = checker.violation().expect("planted");
        assert!(violation.contains("two holders at once"), "{violation}");
        assert!(violation.contains("lane 2"), "{violation}");
    }

    #[test]
    fn a_second_grant_to_the_same_lane_is_caught() {
        let mut checker = checker();
        checker.granted(1, 10, 0);
        checker.granted(1, 11, 5_000);
        assert!(checker.violation().is_some());
    }

    #[test]
    fn a_fence_that_goes_back_is_caught() {
        for fence in [9, 10] {
            let mut checker = checker();
            checker.granted(1, 10, 0);
            checker.releasing(1);
            checker.granted(2, fence, 10);
            let violation = checker.violation().expect("planted");
            assert!(violation.contains("does not rise"), "{violation}");
        }
    }

    #[test]
    fn the_first_fault_is_the_one_reported() {
        let mut checker = checker();
        checker.granted(1, 10, 0);
        checker.releasing(1);
        checker.granted(2, 3, 1);
        checker.granted(3, 2, 2);
        assert!(checker.violation().unwrap().contains("granted 3 after 10"));
    }

    #[test]
    fn a_peer_without_fences_is_checked_for_two_holders_only() {
        let mut checker = Checker::new(false, LEASE_NS);
        checker.granted(1, 0, 0);
        checker.releasing(1);
        checker.granted(2, 0, 1);
        assert_eq!(checker.violation(), None);
        checker.granted(3, 0, 2);
        assert!(checker.violation().is_some());
    }

    #[test]
    fn a_lease_that_ran_out_is_no_fault_but_is_counted() {
        let mut checker = checker();
        checker.granted(1, 10, 0);
        checker.granted(2, 11, LEASE_NS);
        assert_eq!(checker.violation(), None);
        assert_eq!(checker.outlived(), 1);
        // The last holder, which lost it, gives it back late: that does not free the next holder's.
        checker.releasing(1);
        checker.granted(3, 12, LEASE_NS + 1);
        assert!(checker.violation().is_some());
    }
}
