//! Random numbers, and the seed they grew from.

/// Random numbers that can be had again: `FENCEPOST_TEST_SEED` sets the seed that is printed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(test: &str) -> Random {
        let seed = std::env::var("FENCEPOST_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.map_or(1, |now| now.as_nanos() as u64)
            });
        println!("{test}: FENCEPOST_TEST_SEED={seed}");
        Random(seed)
    }

    /// Another stream of numbers, for another thread.
    pub(crate) fn fork(&mut self) -> Random {
        Random(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
