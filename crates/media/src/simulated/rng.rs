//! Random numbers for the simulator.

/// A seeded random number generator (splitmix64, Steele et al. 2014). It does not depend on any library, so
/// that an old seed always replays the same numbers.
#[derive(Clone, Debug, Default)]
pub struct SimRng(u64);

impl SimRng {
    /// Creates a generator for this seed.
    pub fn new(seed: u64) -> SimRng {
        let mut rng = SimRng(seed ^ 0x6a09_e667_f3bc_c908);
        rng.next_u64();
        rng
    }

    /// Returns any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index into a sequence of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with a probability of `parts` in `of`.
    pub fn chance(&mut self, parts: u64, of: u64) -> bool {
        self.below(of) < parts
    }

    /// Returns a number below `1 << bits`. Small ones are as likely as large ones.
    pub fn skewed(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        self.below(1 << bits)
    }

    /// True with a probability of `ppm` in a million.
    pub fn ppm(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.chance(u64::from(ppm), 1_000_000)
    }

    /// Returns an independent generator, for a part of the simulation whose draws must not affect those of
    /// others.
    pub fn fork(&mut self) -> SimRng {
        SimRng::new(self.next_u64())
    }
}
