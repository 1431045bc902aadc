//! Cache of decompressed blocks, shared by all drives of a server: reads of hot blocks need no medium and no
//! processor.
//!
//! A block is found by its record, as in `frame_cache`: the map says which record a block has now, and a
//! record at a place in a filling of a segment never changes. So what was overwritten, trimmed, moved or
//! settled is not found any more, and nothing has to be invalidated. Each opening of a drive has an id of its
//! own, so nothing outlives it either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use layout::{BLOCK_BYTES, Entry};
use media::{Slab, SlabBlock};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};
use rustc_hash::FxBuildHasher;

/// Reads of at least this size neither look here nor leave anything here: they are streams, which would pay
/// for lookups and push out what is read at random.
pub(crate) const LARGE_READ_BYTES: usize = 128 << 10;
/// Parts with their own locks.
const SHARDS: usize = 32;
/// Memory of a block beyond its contents: counts of references and allocator ([`COUNTS_BYTES`]), room for
/// blocks that come next, and the tables of the cache, which are half as long again as they have blocks and
/// grow by doubling. A test compares it with what they take.
const OVERHEAD_BYTES: usize = 256;
/// The least useful size, in bytes: one block in each part. Below it there is no cache.
const SIZE_MIN_BYTES: u64 = (SHARDS * (BLOCK_BYTES + OVERHEAD_BYTES)) as u64;
/// Counts of references to a block, with those of the allocator.
const COUNTS_BYTES: u64 = 48;
/// Memory for blocks comes from the kernel in so many parts, so that little of it waits for blocks.
const CHUNKS: usize = 128;
/// Most blocks for which memory comes at once, in some 20 us.
const CHUNK_BLOCKS_MAX: usize = 64;

/// Identity of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Opening of a drive.
    drive: u32,
    /// Generation of the record's segment. Another filling has another.
    generation: u32,
    /// Place and length of the record.
    entry: Entry,
    block: u64,
}

/// A cache of decompressed blocks for any number of drives.
pub struct ReadCache {
    size_bytes: u64,
    blocks: Cache<Key, Arc<SlabBlock>, UnitWeighter, FxBuildHasher>,
    /// The memory of the blocks.
    slab: Arc<Slab>,
    /// Openings so far.
    drives: AtomicU32,
}

impl std::fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadCache").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl ReadCache {
    /// Default of [`ReadCache::new`] in servers, in bytes.
    pub const DEFAULT_BYTES: u64 = 64 << 20;

    /// Makes a cache that takes at most this memory in bytes, with all that belongs to it. `None`: too little
    /// for a cache, or 0.
    pub fn new(size_bytes: u64) -> Option<Arc<ReadCache>> {
        if size_bytes < SIZE_MIN_BYTES {
            return None;
        }
        // Whole parts: each is rounded up by the cache otherwise.
        let shard_blocks = size_bytes as usize / (BLOCK_BYTES + OVERHEAD_BYTES) / SHARDS;
        let blocks = shard_blocks * SHARDS;
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(blocks)
            .weight_capacity(blocks as u64)
            .build()
            .ok()?;
        let slab = Slab::new(BLOCK_BYTES, (blocks / CHUNKS).clamp(1, CHUNK_BLOCKS_MAX));
        let blocks = Cache::with_options(options, UnitWeighter, FxBuildHasher, DefaultLifecycle::default());
        Some(Arc::new(ReadCache { size_bytes, blocks, slab, drives: AtomicU32::new(0) }))
    }

    /// Most memory, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Memory in use, in bytes: blocks of all drives, and the tables. What the blocks of a drive took that
    /// was closed is kept for those of others, and does not count.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.len() as u64 * (BLOCK_BYTES as u64 + COUNTS_BYTES)
            + self.blocks.memory_used().total() as u64
    }

    /// Memory from the system, in bytes.
    #[cfg(test)]
    fn taken_bytes(&self) -> u64 {
        self.used_bytes() - (self.blocks.len() * BLOCK_BYTES) as u64 + self.slab.taken_bytes() as u64
    }
}

/// The part of a drive in the cache.
pub(crate) struct CachedBlocks {
    /// With the id of this opening.
    cache: Option<(Arc<ReadCache>, u32)>,
    hits: AtomicU64,
    misses: AtomicU64,
    /// The planted mistake: generations of segments are not compared.
    stale: bool,
}

impl CachedBlocks {
    pub(crate) fn new(cache: Option<Arc<ReadCache>>, stale: bool) -> CachedBlocks {
        let with_id = |cache: Arc<ReadCache>| {
            let id = cache.drives.fetch_add(1, Ordering::Relaxed);
            (cache, id)
        };
        CachedBlocks { cache: cache.map(with_id), hits: AtomicU64::new(0), misses: AtomicU64::new(0), stale }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.cache.is_some()
    }

    /// Blocks read from here, and blocks looked for here in vain.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    fn key(&self, drive: u32, entry: Entry, generation: u32, block: u64) -> Key {
        Key { drive, generation: if self.stale { 0 } else { generation }, entry, block }
    }

    /// Copies blocks of one record, from `skip` bytes behind the beginning of block `first` on. Returns
    /// whether all of them were there; if not, `out` may have changed.
    pub(crate) fn read(
        &self,
        (entry, generation): (Entry, u32),
        first: u64,
        skip: usize,
        out: &mut [u8],
    ) -> bool {
        let Some((cache, drive)) = &self.cache else { return false };
        let blocks = (skip + out.len()).div_ceil(BLOCK_BYTES) as u64;
        let (mut skip, mut rest) = (skip, out);
        for block in first..first + blocks {
            let Some(contents) = cache.blocks.get(&self.key(*drive, entry, generation, block)) else {
                self.misses.fetch_add(blocks, Ordering::Relaxed);
                return false;
            };
            let here = rest.len().min(BLOCK_BYTES - skip);
            let (part, behind) = rest.split_at_mut(here);
            part.copy_from_slice(&contents[skip..skip + here]);
            (skip, rest) = (0, behind);
        }
        self.hits.fetch_add(blocks, Ordering::Relaxed);
        true
    }

    /// Keeps verified contents of whole blocks of a record, from block `first` on.
    pub(crate) fn keep(&self, (entry, generation): (Entry, u32), first: u64, contents: &[u8]) {
        let Some((cache, drive)) = &self.cache else { return };
        for (block, contents) in (first..).zip(contents.chunks_exact(BLOCK_BYTES)) {
            // Without memory, blocks are read from the medium.
            let Some(contents) = cache.slab.keep(contents) else { return };
            cache.blocks.insert(self.key(*drive, entry, generation, block), Arc::new(contents));
        }
    }
}

impl Drop for CachedBlocks {
    fn drop(&mut self) {
        // Its blocks will not be found again: other drives can use the memory at once.
        if let Some((cache, drive)) = &self.cache {
            cache.blocks.retain(|key, _| key.drive != *drive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: (Entry, u32) = (Entry(1 << 62 | 100 << 50 | 77), 5);

    fn of(cache: &Arc<ReadCache>) -> CachedBlocks {
        CachedBlocks::new(Some(cache.clone()), false)
    }

    fn is_there(blocks: &CachedBlocks, record: (Entry, u32), block: u64) -> bool {
        blocks.read(record, block, 0, &mut [0; BLOCK_BYTES])
    }

    #[test]
    fn a_block_is_found_by_drive_record_filling_and_number() {
        let cache = ReadCache::new(1 << 20).expect("large enough");
        let (one, other) = (of(&cache), of(&cache));
        one.keep(RECORD, 8, &[[1; BLOCK_BYTES], [2; BLOCK_BYTES]].concat());
        let mut out = [0; 1024];
        assert!(one.read(RECORD, 8, BLOCK_BYTES - 512, &mut out));
        assert_eq!((&out[..512], &out[512..]), (&[1; 512][..], &[2; 512][..]));
        assert_eq!(one.counts(), (2, 0));
        assert!(!one.read(RECORD, 9, 0, &mut [0; 2 * BLOCK_BYTES]), "block 10 is not there");
        assert_eq!(one.counts(), (2, 2));
        assert!(!is_there(&other, RECORD, 8));
        assert!(!is_there(&one, (RECORD.0, 6), 8));
        assert!(!is_there(&one, (RECORD.0.settled(), 5), 8));
        assert!(!is_there(&of(&cache), RECORD, 8));
        let before = cache.blocks.len();
        drop(one);
        assert_eq!((before, cache.blocks.len()), (2, 0));
    }

    #[test]
    fn memory_is_bounded_with_all_overhead() {
        assert!(ReadCache::new(0).is_none() && ReadCache::new(SIZE_MIN_BYTES - 1).is_none());
        for size in [SIZE_MIN_BYTES, 1 << 20, (5 << 20) + 4097, 24 << 20] {
            let cache = ReadCache::new(size).expect("large enough");
            let blocks = of(&cache);
            let many = 3 * size / BLOCK_BYTES as u64;
            // Some are asked for again, so that all lists fill.
            for block in 0..many {
                blocks.keep(RECORD, block, &[7; BLOCK_BYTES]);
                is_there(&blocks, RECORD, block / 2);
            }
            let (used, taken) = (cache.used_bytes(), cache.taken_bytes());
            assert!(used <= size, "{used} of {size}");
            // One block comes before another one goes.
            assert!(used <= taken && taken <= size + BLOCK_BYTES as u64, "{taken} of {size}");
            assert!(used * 10 >= size * 8 || size < 2 << 20, "{used} of {size}");
        }
    }

    #[test]
    fn what_is_read_once_does_not_push_out_what_is_read_often() {
        let cache = ReadCache::new(4 << 20).expect("large enough");
        let blocks = of(&cache);
        for _ in 0..3 {
            for block in 0..256 {
                if !is_there(&blocks, RECORD, block) {
                    blocks.keep(RECORD, block, &[7; BLOCK_BYTES]);
                }
            }
        }
        (1000..5000).for_each(|block| blocks.keep(RECORD, block, &[7; BLOCK_BYTES]));
        let left = (0..256).filter(|block| is_there(&blocks, RECORD, *block)).count();
        assert!(left > 240, "{left}");
    }
}
