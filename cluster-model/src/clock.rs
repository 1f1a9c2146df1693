//! The cluster clock (S5): what a node knows of the time by which leases end.
//!
//! A node that hears a stamp `s` when its own clock shows `m` knows that the stamping leader's
//! clock shows at least `s + (now - m)`. The best of these bounds is `now + offset`, with the
//! highest `s - m` as its offset. A node that starts again hears its own log as if it had
//! just arrived: time stood still.
//!
//! The bound is kept **for one reign**. A batch of a later reign replaces it, even by a lower one:
//! a leader that began behind its predecessor promises by its own clock, and a node that goes on
//! from the predecessor's ends those leases early. [`Fault::ClockOfAllReigns`] is that mistake.

use crate::{Fault, Index, Rules, Time};
use std::cmp::Ordering;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Clock {
    reign: Index,
    offset: Time,
}

impl Clock {
    /// The cluster's time, as far as this node knows, when its own clock shows `local`.
    pub fn at(&self, local: Time) -> Time {
        local + self.offset
    }

    /// A batch of `reign`, stamped `stamp`, arrives or is made when the own clock shows `local`.
    pub fn hear(&mut self, reign: Index, stamp: Time, local: Time, rules: Rules) {
        let offset = stamp - local;
        match reign.cmp(&self.reign) {
            Ordering::Greater if self.reign > 0 && rules.has(Fault::ClockOfAllReigns) => {
                let offset = self.offset.max(offset);
                *self = Clock { reign, offset };
            }
            Ordering::Greater => *self = Clock { reign, offset },
            Ordering::Equal => self.offset = self.offset.max(offset),
            // An old write that reached the log late.
            Ordering::Less => {}
        }
    }

    /// A reign begins on this node, whose wall clock is so far ahead of its own clock. Nothing to
    /// do, but for the mistakes.
    pub fn begin(&mut self, wall_ahead: Time, rules: Rules) {
        if rules.has(Fault::ClockFromTheWall) {
            self.offset = self.offset.max(wall_ahead);
        }
        if rules.has(Fault::ClockAsUpperBound) {
            self.offset += DELAY_MAX;
        }
    }
}

/// What [`Fault::ClockAsUpperBound`] adds for the time that a message may have been under way.
const DELAY_MAX: Time = 2;
