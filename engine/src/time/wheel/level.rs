//! Where a tick belongs on the wheel: arithmetic on plain integers, no state.
//!
//! Read a tick in base 64: seven digits, the lowest counts milliseconds. A level is a digit, a slot
//! is a value of that digit. A tick belongs to the level of the **highest digit in which it differs
//! from now**, in the slot that digit names. All digits above agree with now, so that digit is
//! larger than now's: within a level the slots in use always lie ahead of the hand, nothing wraps
//! round, and the slot reached next is the lowest one in use on the lowest level in use.

use crate::time::tick::Tick;

/// Bits of one digit: 64 slots per level, so that a `u64` says which of them are in use.
const DIGIT_BITS: u32 = 6;

/// Slots of one level.
pub(super) const SLOT_COUNT: usize = 1 << DIGIT_BITS;

/// Levels of a wheel, enough for every tick.
pub(super) const LEVEL_COUNT: usize = 7;

const _: () = assert!(SLOT_COUNT == u64::BITS as usize, "one bit per slot");
const _: () = assert!(
    LEVEL_COUNT as u32 * DIGIT_BITS >= Tick::BITS,
    "every tick has a level"
);
const _: () = assert!(
    (LEVEL_COUNT as u32 - 1) * DIGIT_BITS < Tick::BITS,
    "every level has a tick"
);

/// The level and the slot of a tick that is `at` or, should that have passed, `now`.
///
/// What is due already has the slot under the hand to itself, which is the slot reached next.
pub(super) fn place(now_ms: u64, at_ms: u64) -> (usize, usize) {
    let at_ms = at_ms.max(now_ms);
    // Setting the lowest bit changes no level, and spares `ilog2` the zero it cannot take.
    let level = ((now_ms ^ at_ms) | 1).ilog2() / DIGIT_BITS;
    let slot = (at_ms >> (level * DIGIT_BITS)) as usize % SLOT_COUNT;
    (level as usize, slot)
}

/// The first tick of a slot, seen from now: the digits above as in now, those below zero.
pub(super) fn slot_start(now_ms: u64, level: usize, slot: usize) -> u64 {
    let shift = level as u32 * DIGIT_BITS;
    let digits_above = now_ms >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
    digits_above | (slot as u64) << shift
}

/// How many ticks a slot of this level spans.
#[cfg(all(test, not(loom)))]
pub(super) fn slot_width_ms(level: usize) -> u64 {
    1 << (level as u32 * DIGIT_BITS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Ticks around every power of 64, where digits carry.
    fn boundaries() -> Vec<u64> {
        let mut ticks = vec![0, 1, 2, Tick::MAX.as_ms()];
        for level in 1..LEVEL_COUNT {
            let width_ms = slot_width_ms(level);
            for slot in [1, 2, 3, 31, 63] {
                ticks.extend([slot * width_ms - 1, slot * width_ms, slot * width_ms + 1]);
            }
        }
        ticks.retain(|&tick| tick <= Tick::MAX.as_ms());
        ticks
    }

    fn check(now_ms: u64, at_ms: u64) {
        let (level, slot) = place(now_ms, at_ms);
        let start_ms = slot_start(now_ms, level, slot);
        let at_ms = at_ms.max(now_ms);
        assert!(level < LEVEL_COUNT && slot < SLOT_COUNT, "{now_ms} {at_ms}");
        assert!(
            start_ms <= at_ms && at_ms < start_ms + slot_width_ms(level),
            "{now_ms} {at_ms}: the slot holds its tick"
        );
        assert!(
            start_ms > now_ms || at_ms == now_ms,
            "{now_ms} {at_ms}: the slot lies ahead"
        );
        // Once the hand is there, what is left of the tick belongs to a lower level: a cascade
        // always makes progress.
        let (level_then, _) = place(start_ms, at_ms);
        assert!(
            level_then < level || start_ms == at_ms,
            "{now_ms} {at_ms}: cascades descend"
        );
    }

    #[test]
    fn every_pair_of_the_first_two_levels_has_its_place() {
        // A little beyond 4096, so that level 2 takes part.
        for now_ms in 0..4300 {
            (0..4300).for_each(|at_ms| check(now_ms, at_ms));
        }
    }

    #[test]
    fn every_pair_of_boundaries_has_its_place() {
        for &now_ms in &boundaries() {
            boundaries().iter().for_each(|&at_ms| check(now_ms, at_ms));
        }
    }

    #[test]
    fn places_are_as_the_table_in_the_module_doc_says() {
        assert_eq!(place(0, 0), (0, 0));
        assert_eq!(place(0, 63), (0, 63));
        assert_eq!(place(0, 64), (1, 1));
        assert_eq!(place(63, 64), (1, 1));
        assert_eq!(place(64, 65), (0, 1));
        assert_eq!(place(0, 4095), (1, 63));
        assert_eq!(place(0, 4096), (2, 1));
        assert_eq!(place(0, 1 << 18), (3, 1));
        assert_eq!(place(0, Tick::MAX.as_ms()), (6, 3));
        assert_eq!(place(1000, 3), (0, 1000 % 64));
    }

    #[test]
    fn a_nearer_level_is_always_reached_first() {
        for &now_ms in &boundaries() {
            for &a_ms in boundaries().iter().filter(|&&a_ms| a_ms >= now_ms) {
                for &b_ms in boundaries().iter().filter(|&&b_ms| b_ms >= now_ms) {
                    let ((level_a, slot_a), (level_b, slot_b)) =
                        (place(now_ms, a_ms), place(now_ms, b_ms));
                    if (level_a, slot_a) < (level_b, slot_b) {
                        let (start_a, start_b) = (
                            slot_start(now_ms, level_a, slot_a),
                            slot_start(now_ms, level_b, slot_b),
                        );
                        assert!(start_a < start_b, "{now_ms}: {a_ms} {b_ms}");
                    }
                }
            }
        }
    }
}
