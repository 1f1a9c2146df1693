//! The keys and the random order in which they are used: the same in every run, and the same for
//! engine and baseline.

/// Sixteen bytes that no other number has.
#[inline]
pub fn key_bytes(number: u64) -> [u8; 16] {
    let mut bytes = *b"orders/.........";
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// splitmix64: a few instructions a number, so that it does not show in what is measured.
pub struct Random(u64);

impl Random {
    /// A sequence that depends on the seed only.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The numbers below `count`, each once, in an order that looks random: what a shuffled list would
/// give, without the list and its cache misses.
pub struct Shuffled {
    step: u64,
    count: u64,
    /// One less than the power of two that `count` fits under.
    mask: u64,
}

impl Shuffled {
    /// An order for the numbers below `count`.
    pub fn new(count: u64) -> Self {
        Shuffled {
            step: 0,
            count,
            mask: count.next_power_of_two() - 1,
        }
    }
}

impl Iterator for Shuffled {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        while self.step <= self.mask {
            // Each line maps the numbers under the mask one to one.
            let half = self.mask.count_ones().div_ceil(2);
            let mut number = self.step;
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & self.mask;
            number ^= number >> half;
            number = number.wrapping_mul(0xbf58_476d_1ce4_e5b9) & self.mask;
            number ^= number >> half;
            self.step += 1;
            if number < self.count {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_gives_every_number_once() {
        for count in [1, 2, 7, 64, 1_000, 65_537] {
            let mut numbers: Vec<u64> = Shuffled::new(count).collect();
            if count == 1_000 {
                assert!(!numbers.is_sorted());
            }
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count}");
        }
    }
}
