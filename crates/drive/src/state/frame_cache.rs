//! Recently read frames, decompressed: a read of one block of a frame is often followed by reads of its
//! neighbours.
//!
//! A frame is kept when it is requested for the second time, so that reads all over the drive only cost a
//! lookup here. It is found by its record: the map says which record a block has now, and a record at a place
//! in a filling of a segment never changes. So what was overwritten, trimmed or moved is not found any more,
//! and nothing has to be invalidated.

use layout::{BLOCK_BYTES, Entry};

use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

/// Most memory for frames in bytes: 16 of 32 KiB.
const FRAMES_MAX_BYTES: u64 = 512 << 10;
/// Least memory: one frame in each shard.
const FRAMES_MIN_BYTES: u64 = (SHARDS * 8 * BLOCK_BYTES) as u64;
/// The memory for frames is the drive's memory divided by this.
const PART_OF_BUDGET: u64 = 16;
/// Parts with their own locks.
const SHARDS: usize = 2;
/// Requests for frames that a shard remembers.
const ASKED: usize = 16;

/// Identity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Place and length of the record.
    pub(crate) entry: Entry,
    /// Generation of its segment. Another filling has another.
    pub(crate) generation: u32,
    /// The frame's first block.
    pub(crate) first: u64,
}

struct Kept {
    key: Key,
    contents: Vec<u8>,
}

#[derive(Default)]
struct Shard {
    /// The most recently used one is last.
    kept: Vec<Kept>,
    kept_bytes: usize,
    asked: [Option<Key>; ASKED],
    next_asked: usize,
    spare: Vec<u8>,
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The frame is there.
    Hit,
    /// Not there, but it was requested before, so it should be kept.
    Again,
    /// Not there.
    First,
}

pub(crate) struct Frames {
    shards: [Mutex<Shard>; SHARDS],
    shard_max_bytes: AtomicUsize,
    hits: AtomicU64,
    /// The planted mistake: found by block, whatever its record is now.
    stale: bool,
}

impl Frames {
    /// Takes its part of the memory for map and frames; see [`Frames::set_budget_bytes`].
    pub(crate) fn new(stale: bool) -> Frames {
        Frames {
            shards: Default::default(),
            shard_max_bytes: AtomicUsize::new(FRAMES_MIN_BYTES as usize / SHARDS),
            hits: AtomicU64::new(0),
            stale,
        }
    }

    /// Takes its part of the memory for map and frames, and returns what is left for the map.
    pub(crate) fn set_budget_bytes(&self, budget_bytes: u64) -> u64 {
        let bytes = (budget_bytes / PART_OF_BUDGET).clamp(FRAMES_MIN_BYTES, FRAMES_MAX_BYTES);
        self.shard_max_bytes.store(bytes as usize / SHARDS, Ordering::Relaxed);
        budget_bytes.saturating_sub(bytes)
    }

    /// Most memory of frames.
    pub(crate) fn max_bytes(&self) -> u64 {
        (self.shard_max_bytes.load(Ordering::Relaxed) * SHARDS) as u64
    }

    /// Number of reads answered from here.
    pub(crate) fn hits_count(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        // Consecutive frames go to different shards.
        let place = key.first / key.entry.blocks();
        &self.shards[place as usize % SHARDS]
    }

    fn is(&self, one: &Key, other: &Key) -> bool {
        if self.stale {
            return (one.first, one.entry.blocks()) == (other.first, other.entry.blocks());
        }
        one == other
    }

    /// Copies a part of a frame's contents, beginning at `skip`, if the frame is there.
    pub(crate) fn read(&self, key: &Key, skip: usize, out: &mut [u8]) -> Lookup {
        let mut shard = self.shard(key).lock();
        if let Some(at) = shard.kept.iter().rposition(|kept| self.is(&kept.key, key)) {
            out.copy_from_slice(&shard.kept[at].contents[skip..skip + out.len()]);
            shard.kept[at..].rotate_left(1);
            drop(shard);
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Lookup::Hit;
        }
        if shard.asked.contains(&Some(*key)) {
            return Lookup::Again;
        }
        let next = shard.next_asked;
        shard.asked[next] = Some(*key);
        shard.next_asked = (next + 1) % ASKED;
        Lookup::First
    }

    /// Returns a buffer for a frame's contents.
    pub(crate) fn room(&self, key: &Key) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.shard(key).lock().spare);
        room.resize(key.entry.blocks() as usize * BLOCK_BYTES, 0);
        room
    }

    /// Keeps a frame's verified contents. The least recently used frame is dropped.
    pub(crate) fn keep(&self, key: Key, contents: Vec<u8>) {
        let most = self.shard_max_bytes.load(Ordering::Relaxed);
        let mut shard = self.shard(&key).lock();
        if shard.kept.iter().any(|kept| kept.key == key) {
            // Another request read it meanwhile.
            shard.spare = contents;
            return;
        }
        shard.kept_bytes += contents.len();
        shard.kept.push(Kept { key, contents });
        while shard.kept_bytes > most {
            let oldest = shard.kept.remove(0);
            shard.kept_bytes -= oldest.contents.len();
            shard.spare = oldest.contents;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(first: u64, generation: u32) -> Key {
        Key { entry: Entry::frame(1 << 20, 9600, 8), generation, first }
    }

    fn keep(frames: &Frames, key: Key, byte: u8) {
        let mut room = frames.room(&key);
        room.fill(byte);
        frames.keep(key, room);
    }

    #[test]
    fn a_frame_is_wanted_twice_and_found_by_its_record_only() {
        let frames = Frames::new(false);
        let mut out = [0; BLOCK_BYTES];
        assert_eq!(frames.read(&key(8, 1), 0, &mut out), Lookup::First);
        assert_eq!(frames.read(&key(8, 1), 4096, &mut out), Lookup::Again);
        keep(&frames, key(8, 1), 7);
        assert_eq!(frames.read(&key(8, 1), 7 * BLOCK_BYTES, &mut out), Lookup::Hit);
        assert_eq!((out, frames.hits_count()), ([7; BLOCK_BYTES], 1));
        assert_eq!(frames.read(&key(8, 2), 0, &mut out), Lookup::First);
        let moved = Key { entry: Entry::frame(2 << 20, 9600, 8), ..key(8, 1) };
        assert_eq!(frames.read(&moved, 0, &mut out), Lookup::First);
        let settled = Key { entry: key(8, 1).entry.settled(), ..key(8, 1) };
        assert_eq!(frames.read(&settled, 0, &mut out), Lookup::First);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let frames = Frames::new(false);
        for (budget, left) in
            [(0, 0), (1 << 20, (1 << 20) - (64 << 10)), (128 << 20, (128 << 20) - (512 << 10))]
        {
            assert_eq!(frames.set_budget_bytes(budget), left);
        }
        assert_eq!(frames.max_bytes(), 512 << 10);
        let mut out = [0; BLOCK_BYTES];
        (0..16).for_each(|n| keep(&frames, key(8 * n, 1), n as u8));
        assert_eq!(frames.read(&key(0, 1), 0, &mut out), Lookup::Hit);
        keep(&frames, key(8 * 16, 1), 16);
        let there = |n: u64| frames.read(&key(8 * n, 1), 0, &mut [0; BLOCK_BYTES]) == Lookup::Hit;
        assert!(there(0) && !there(2) && (3..=16).all(there));
        frames.set_budget_bytes(0);
        keep(&frames, key(8 * 20, 1), 20);
        keep(&frames, key(8 * 21, 1), 21);
        let bytes: usize = frames.shards.iter().map(|shard| shard.lock().kept_bytes).sum();
        assert_eq!(bytes as u64, frames.max_bytes());
    }
}
