//! The keys and the random order in which they are used: the same in every run, and the same for engine and baseline.

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
