//! A sample of written data, for training dictionaries. Every block is in it with the same probability,
//! whenever it was written.

use std::sync::Arc;

use layout::BLOCK_BYTES;

use crate::sync::{AtomicU64, Mutex, Ordering};

/// Reservoir sampling (Vitter, "Random Sampling with a Reservoir", 1985): the size of the sample is fixed,
/// and the n-th block replaces a random one with the probability size / n. Instead of one number for each
/// block, the number of blocks to skip is drawn: the probability that none of the blocks n to m is taken is
/// about (n / m)^size.
pub(crate) struct Sampler {
    /// Blocks offered.
    seen: AtomicU64,
    /// The next one to be taken.
    next: AtomicU64,
    reservoir: Mutex<Reservoir>,
    size: usize,
}

struct Reservoir {
    blocks: Vec<Arc<[u8]>>,
    random: Random,
}

/// Pseudo-random numbers from a seed that the caller of the engine gives: splitmix64 (Steele et al. 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, (self.draw() % (last as u64 + 1)) as usize);
        }
    }
}

impl Sampler {
    /// A sampler of `size` blocks. `entropy` determines which.
    pub(crate) fn new(size: usize, entropy: u64) -> Sampler {
        let reservoir = Reservoir { blocks: Vec::new(), random: Random(entropy) };
        Sampler { seen: AtomicU64::new(0), next: AtomicU64::new(0), reservoir: Mutex::new(reservoir), size }
    }

    /// Offers adjacent blocks. Cheap for those that are not taken.
    pub(crate) fn offer(&self, blocks: &[u8]) {
        let count = (blocks.len() / BLOCK_BYTES) as u64;
        let first = self.seen.fetch_add(count, Ordering::Relaxed);
        if first + count <= self.next.load(Ordering::Relaxed) || self.size == 0 {
            return;
        }
        let mut reservoir = self.reservoir.lock();
        if first + count > self.seen.load(Ordering::Relaxed) {
            // Started over meanwhile. Counting these blocks as they were would postpone the next one until as
            // many are seen again.
            return;
        }
        let mut next = self.next.load(Ordering::Relaxed);
        while next < first + count {
            // Other threads may have offered blocks before these meanwhile. What they skipped is not made up
            // for.
            let block = &blocks[next.saturating_sub(first) as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            if reservoir.blocks.len() < self.size {
                reservoir.blocks.push(block.into());
                next = next.max(first) + 1;
                continue;
            }
            let at = (reservoir.random.draw() % self.size as u64) as usize;
            reservoir.blocks[at] = block.into();
            // Uniform in (0, 1].
            let uniform = ((reservoir.random.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            let seen = next.max(first) + 1;
            next = seen.max((seen as f64 * uniform.powf(-1.0 / self.size as f64)) as u64);
        }
        self.next.store(next, Ordering::Relaxed);
    }

    /// Blocks offered so far.
    pub(crate) fn seen_blocks(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Returns the sample in arbitrary order. Writers do not wait for the copy.
    pub(crate) fn blocks(&self) -> Vec<Arc<[u8]>> {
        self.reservoir.lock().blocks.clone()
    }

    /// Number of blocks of a whole sample.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Forgets what was seen. The next sample is of the blocks from now on.
    pub(crate) fn start_over(&self) {
        let mut reservoir = self.reservoir.lock();
        reservoir.blocks.clear();
        self.seen.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbered(first: u64, count: u64) -> Vec<u8> {
        let block = |n: u64| n.to_le_bytes().into_iter().cycle().take(BLOCK_BYTES);
        (first..first + count).flat_map(block).collect()
    }

    fn numbers(sampler: &Sampler) -> Vec<u64> {
        let number = |block: &[u8]| u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
        sampler.blocks().iter().map(|block| number(block)).collect()
    }

    #[test]
    fn the_first_blocks_are_all_taken() {
        let sampler = Sampler::new(10, 1);
        sampler.offer(&numbered(0, 3));
        sampler.offer(&numbered(3, 4));
        assert_eq!(numbers(&sampler), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(sampler.seen_blocks(), 7);
    }

    /// Of 6400 blocks, 64 are kept: each quarter of them has its share, over many samples.
    #[test]
    fn early_and_late_blocks_have_the_same_chance() {
        let mut quarters = [0_u32; 4];
        for entropy in 0..40 {
            let sampler = Sampler::new(64, entropy);
            (0..400).for_each(|i| sampler.offer(&numbered(i * 16, 16)));
            let kept = numbers(&sampler);
            assert_eq!(kept.len(), 64);
            kept.iter().for_each(|n| quarters[(n / 1600) as usize] += 1);
        }
        // 2560 drawn, 640 expected in each quarter; the standard deviation is 22.
        assert!(quarters.iter().all(|&n| (530..750).contains(&n)), "{quarters:?}");
    }

    #[test]
    fn it_starts_over() {
        let sampler = Sampler::new(4, 1);
        sampler.offer(&numbered(0, 100));
        sampler.start_over();
        sampler.offer(&numbered(500, 2));
        assert_eq!(numbers(&sampler), [500, 501]);
    }
}
