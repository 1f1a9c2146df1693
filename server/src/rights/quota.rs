//! Quotas: how many locks the clients of one name, or those of all clients under one prefix, may
//! hold and wait for, and how many operations a second a name may ask for.
//!
//! What counts for a quota is a reservation: `reserve.rs`.

use engine::Tick;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No bound.
const UNBOUNDED: u32 = u32::MAX;

/// A name that was silent may ask for the operations of so long at once.
const BURST_NS: u64 = 1_000_000_000;

/// What a quota is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Whose {
    Token(Arc<str>),
    Prefix(Box<[u8]>),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whose::Token(name) => write!(f, "{name}"),
            Whose::Prefix(prefix) => write!(f, "the prefix {}", prefix.escape_ascii()),
        }
    }
}

/// As the file has it. `None`: no bound.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Quota {
    pub(crate) held_max: Option<u32>,
    pub(crate) waiters_max: Option<u32>,
    pub(crate) operations_per_second: Option<u32>,
}

/// Which bound was hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    Held,
    Waiters,
    Rate,
}

/// A quota that is used up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exceeded {
    pub(crate) whose: Whose,
    pub(crate) bound: Bound,
    pub(crate) most: u32,
    /// When it may be asked again; zero: that is not known.
    pub(crate) retry_after_ms: u32,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = match self.bound {
            Bound::Held => "held_max",
            Bound::Waiters => "waiters_max",
            Bound::Rate => "operations_per_second",
        };
        let (whose, most) = (&self.whose, self.most);
        write!(f, "the quota {setting} = {most} of {whose} is used up")
    }
}

/// What is used of one quota. It outlives a change of the file.
#[derive(Debug)]
pub(crate) struct Meter {
    whose: Whose,
    held: Gauge,
    waiting: Gauge,
    /// Zero: no bound.
    operations_per_second: AtomicU32,
    /// When all operations so far would have been asked for at the highest rate.
    paid_until_ns: AtomicU64,
}

/// How many there are of something, and how many there may be.
#[derive(Debug)]
pub(super) struct Gauge {
    count: AtomicU32,
    most: AtomicU32,
}

impl Gauge {
    fn new() -> Self {
        Gauge {
            count: AtomicU32::new(0),
            most: AtomicU32::new(UNBOUNDED),
        }
    }

    fn set(&self, most: Option<u32>) {
        self.most
            .store(most.unwrap_or(UNBOUNDED), Ordering::Relaxed);
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.most.load(Ordering::Relaxed) != UNBOUNDED
    }

    /// Counts one more. `Err`: there are as many as may be.
    pub(super) fn try_add(&self) -> Result<(), u32> {
        let most = self.most.load(Ordering::Relaxed);
        // A count and nothing else: no other memory is published with it.
        if self.count.fetch_add(1, Ordering::Relaxed) >= most {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(most);
        }
        Ok(())
    }

    /// Counts one more, whatever the bound.
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Meter {
    pub(crate) fn new(whose: Whose) -> Self {
        Meter {
            whose,
            held: Gauge::new(),
            waiting: Gauge::new(),
            operations_per_second: AtomicU32::new(0),
            paid_until_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn set(&self, quota: Quota) {
        self.held.set(quota.held_max);
        self.waiting.set(quota.waiters_max);
        let rate = quota.operations_per_second.unwrap_or(0);
        self.operations_per_second.store(rate, Ordering::Relaxed);
    }

    pub(super) fn gauge(&self, bound: Bound) -> &Gauge {
        match bound {
            Bound::Waiters => &self.waiting,
            Bound::Held | Bound::Rate => &self.held,
        }
    }

    pub(super) fn exceeded(&self, bound: Bound, most: u32, retry_after_ms: u32) -> Exceeded {
        Exceeded {
            whose: self.whose.clone(),
            bound,
            most,
            retry_after_ms,
        }
    }

    /// Pays for one operation. With `must`, it is paid for even if the rate is exceeded: what gives
    /// back or keeps is never refused.
    pub(super) fn charge(&self, now: Tick, must: bool) -> Result<(), Exceeded> {
        let rate = self.operations_per_second.load(Ordering::Relaxed);
        if rate == 0 {
            return Ok(());
        }
        let cost_ns = 1_000_000_000 / u64::from(rate);
        let now_ns = now.as_ms().saturating_mul(1_000_000);
        let paid =
            (self.paid_until_ns).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
                let paid = paid.max(now_ns) + cost_ns;
                let is_within = paid - now_ns <= BURST_NS;
                (is_within || must).then(|| paid.min(now_ns + 2 * BURST_NS))
            });
        match paid {
            Ok(_) => Ok(()),
            Err(paid) => {
                let wait_ns = (paid.max(now_ns) + cost_ns).saturating_sub(now_ns + BURST_NS);
                let wait_ms = u32::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
                Err(self.exceeded(Bound::Rate, rate, wait_ms))
            }
        }
    }
}
