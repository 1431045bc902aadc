//! Which frames are read at random often: each such read decompresses a whole frame for a few of its blocks, so they are
//! cut small in the background (`upkeep/cut_hot`).
//!
//! A table of fixed size counts, without a lock. A group of blocks has one slot, which it shares with others: whoever
//! is counted less gives way. What is counted halves with time, and time is counted in reads, so that what was read
//! often long ago does not stay hot. Counts may get lost when threads meet: they decide about work, never about data.

use std::collections::VecDeque;

use layout::entry::FRAME_BLOCKS_MAX;

use crate::sync::{AtomicU64, Mutex, Ordering};

/// Most groups in the table: 2 GiB of data have a slot each, and the table takes 512 KiB.
const SLOTS_MAX: u64 = 1 << 16;
/// Least groups in the table.
const SLOTS_MIN: u64 = 1 << 6;
/// Counts halve after this many reads for each slot.
const READS_A_SLOT: u64 = 8;
/// Groups that wait to be cut. If there are more, they are counted further.
const WAITING_MAX: usize = 1024;
/// The count of a group that waits to be cut, or that was looked at for that: it is not entered again soon.
const DONE: u64 = u8::MAX as u64;

/// A slot: in its upper bits the group with 1 added (0: none), then 8 bits for the age, then 8 for the count.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    tag: u64,
    count: u64,
}

impl Slot {
    fn unpack(packed: u64, age: u64) -> Slot {
        let halvings = age.wrapping_sub(packed >> 8) & 0xff;
        Slot { tag: packed >> 16, count: (packed & 0xff).checked_shr(halvings as u32).unwrap_or(0) }
    }

    fn pack(self, age: u64) -> u64 {
        self.tag << 16 | (age & 0xff) << 8 | self.count
    }
}

/// Counts of random reads, and the groups that are to be cut.
pub(crate) struct Heat {
    slots: Box<[AtomicU64]>,
    reads: AtomicU64,
    /// Random reads of a group, weighted by age, from which on it is hot.
    often: u64,
    waiting: Mutex<VecDeque<u64>>,
}

impl Heat {
    /// Makes a table for a drive with this many blocks. Groups are hot after `often` random reads.
    pub(crate) fn new(blocks: u64, often: u8) -> Heat {
        let slots = (blocks / FRAME_BLOCKS_MAX).next_power_of_two().clamp(SLOTS_MIN, SLOTS_MAX);
        Heat {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            reads: AtomicU64::new(0),
            often: u64::from(often).clamp(2, DONE - 1),
            waiting: Mutex::new(VecDeque::new()),
        }
    }

    fn slot(&self, group: u64) -> &AtomicU64 {
        // Multiplied by the golden ratio, neighbours and equal strides are spread evenly.
        let spread = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.slots[spread as usize & (self.slots.len() - 1)]
    }

    fn age(&self, reads: u64) -> u64 {
        reads / (self.slots.len() as u64 * READS_A_SLOT)
    }

    /// Counts a read of a part of a frame, with this block, that had to be decompressed for it.
    pub(crate) fn read_at_random(&self, block: u64) {
        let group = block / FRAME_BLOCKS_MAX;
        let age = self.age(self.reads.fetch_add(1, Ordering::Relaxed));
        let slot = self.slot(group);
        let packed = slot.load(Ordering::Relaxed);
        let was = Slot::unpack(packed, age);
        let replace = |new: Slot| {
            slot.compare_exchange(packed, new.pack(age), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if was.tag != group + 1 {
            match was.count {
                0 => replace(Slot { tag: group + 1, count: 1 }),
                count => replace(Slot { count: count - 1, ..was }),
            };
        } else if was.count + 1 < self.often {
            replace(Slot { count: was.count + 1, ..was });
        } else if was.count < self.often {
            let mut waiting = self.waiting.lock();
            if waiting.len() < WAITING_MAX && replace(Slot { count: DONE, ..was }) {
                waiting.push_back(group);
            }
        }
    }

    /// A whole frame, with this block, was read: it is streamed, and stays large.
    pub(crate) fn read_whole(&self, block: u64) {
        let group = block / FRAME_BLOCKS_MAX;
        let slot = self.slot(group);
        let packed = slot.load(Ordering::Relaxed);
        if packed >> 16 == group + 1 {
            let _ = slot.compare_exchange(packed, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes the group that has waited longest to be cut: its first block.
    pub(crate) fn take_hot(&self) -> Option<u64> {
        let group = self.waiting.lock().pop_front();
        group.map(|group| group * FRAME_BLOCKS_MAX)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const OFTEN: u8 = 8;

    /// Reads some block of a group.
    fn read(heat: &Heat, group: u64, times: usize) {
        (0..times).for_each(|time| heat.read_at_random(8 * group + time as u64 % 8));
    }

    /// Takes a group.
    fn take(heat: &Heat) -> Option<u64> {
        heat.take_hot().map(|block| block / 8)
    }

    #[test]
    fn what_is_read_often_is_hot_once() {
        let heat = Heat::new(8000, OFTEN);
        read(&heat, 5, 7);
        assert_eq!(take(&heat), None);
        read(&heat, 5, 100);
        assert_eq!((take(&heat), take(&heat)), (Some(5), None));
        read(&heat, 5, 100);
        assert_eq!(take(&heat), None, "it was looked at a short time ago");
    }

    #[test]
    fn what_is_streamed_is_not_hot() {
        let heat = Heat::new(8000, OFTEN);
        for _ in 0..10 {
            read(&heat, 5, 7);
            heat.read_whole(8 * 5 + 3);
            heat.read_whole(8 * 6);
        }
        assert_eq!(take(&heat), None);
    }

    #[test]
    fn heat_fades_and_comes_again() {
        let heat = Heat::new(512, OFTEN);
        let fade = |halvings: u64| heat.reads.fetch_add(halvings * 64 * READS_A_SLOT, Ordering::Relaxed);
        read(&heat, 5, 7);
        fade(1);
        read(&heat, 5, 4);
        assert_eq!(take(&heat), None, "7 are 3 now");
        read(&heat, 5, 1);
        assert_eq!(take(&heat), Some(5));
        fade(8);
        read(&heat, 5, 8);
        assert_eq!(take(&heat), Some(5));
        fade(300);
        read(&heat, 5, 7);
        assert_eq!(take(&heat), None);
    }

    #[test]
    fn a_scan_of_everything_does_not_displace_what_is_hot() {
        let heat = Heat::new(1 << 20, OFTEN);
        for pass in 0..10 {
            read(&heat, 77, 2);
            // Not one of them is read again.
            (0..1000).for_each(|n| read(&heat, (1 << 30) + pass * 1000 + n, 1));
        }
        assert_eq!((take(&heat), take(&heat)), (Some(77), None));
    }

    #[test]
    fn those_that_wait_are_bounded_and_none_is_lost() {
        let heat = Heat::new(1 << 19, OFTEN);
        let groups = 3 * WAITING_MAX as u64;
        (0..groups).for_each(|group| read(&heat, group, 8));
        let mut taken: Vec<u64> = std::iter::from_fn(|| take(&heat)).collect();
        assert_eq!(taken.len(), WAITING_MAX);
        for _ in 0..2 {
            (0..groups).for_each(|group| read(&heat, group, 1));
            taken.extend(std::iter::from_fn(|| take(&heat)));
        }
        taken.sort_unstable();
        // Two that share a slot displace each other.
        assert!(taken.len() as u64 > groups * 9 / 10, "{}", taken.len());
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
