//! Which frames are read at random often: each such read decompresses a whole frame for a small part of it,
//! so they are cut small in the background (`upkeep/cut_hot`).
//!
//! A table of fixed size counts, without a lock. A group of blocks has one slot, which it shares with others:
//! whoever is counted less gives way. What is counted halves with time, and time is counted in reads, so that
//! what was read often long ago does not stay hot. Counts may get lost when threads meet: they decide about
//! work, never about data.

use std::collections::VecDeque;
use std::sync::OnceLock;

use layout::entry::FRAME_BLOCKS_MAX;

use crate::sync::{AtomicU64, Mutex, Ordering};

/// Most groups in the table: 2 GiB of data have a slot each, and the table takes 512 KiB.
const SLOTS_MAX: u64 = 1 << 16;
/// Least groups in the table.
const SLOTS_MIN: u64 = 1 << 6;
/// Counts halve after this many reads for each slot.
const READS_A_SLOT: u64 = 8;
/// Groups that wait to be cut. If there are more, they are counted further.
const WAITING_MAX: u64 = 1024;
/// A group that waits for longer is cold again, unless it is read.
const WAITING_AGES: u64 = 3;
/// Time for which a group that would grow too much is not looked at again.
const REFUSED_AGES: u64 = 64;

/// In place of a count: the group waits to be cut.
const WAITING: u64 = 254;
/// In place of a count: the group was not to be cut.
const REFUSED: u64 = 255;

/// A slot: in its upper bits the group with 1 added (0: none), then 8 bits for the age, then 8 for the count.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    tag: u64,
    /// Ages since it was written.
    idle: u64,
    count: u64,
}

impl Slot {
    fn unpack(packed: u64, age: u64) -> Slot {
        let (tag, count) = (packed >> 16, packed & 0xff);
        // A thread that is behind meets a slot that is ahead.
        let idle = Some(age.wrapping_sub(packed >> 8) & 0xff).filter(|idle| *idle < 128).unwrap_or(0);
        let count = match count {
            WAITING if idle < WAITING_AGES => WAITING,
            REFUSED if idle < REFUSED_AGES => REFUSED,
            WAITING | REFUSED => 0,
            count => count.checked_shr(idle as u32).unwrap_or(0),
        };
        Slot { tag, idle, count }
    }

    fn pack(tag: u64, count: u64, age: u64) -> u64 {
        tag << 16 | (age & 0xff) << 8 | count
    }
}

/// Counts of random reads, and the groups that are to be cut.
pub(crate) struct Heat {
    /// Made at the first read that is counted.
    slots: OnceLock<Box<[AtomicU64]>>,
    reads: AtomicU64,
    /// Random reads of a group, weighted by age, from which on it is hot.
    often: u64,
    waiting: Mutex<VecDeque<u64>>,
    /// Length of the queue, for who need not lock it.
    waiting_count: AtomicU64,
}

impl Heat {
    /// Groups are hot after `often` random reads.
    pub(crate) fn new(often: u8) -> Heat {
        Heat {
            slots: OnceLock::new(),
            reads: AtomicU64::new(0),
            often: u64::from(often).clamp(2, WAITING - 1),
            waiting: Mutex::new(VecDeque::new()),
            waiting_count: AtomicU64::new(0),
        }
    }

    fn slot(slots: &[AtomicU64], group: u64) -> &AtomicU64 {
        // Multiplied by the golden ratio, neighbours and equal strides are spread evenly.
        let spread = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &slots[spread as usize & (slots.len() - 1)]
    }

    fn age(slots: &[AtomicU64], reads: u64) -> u64 {
        reads / (slots.len() as u64 * READS_A_SLOT)
    }

    /// Counts a read of a small part of a frame, with this block, that had to be decompressed for it. The
    /// drive has this many blocks.
    pub(crate) fn read_at_random(&self, block: u64, blocks: u64) {
        let make = || {
            let slots = (blocks / FRAME_BLOCKS_MAX).next_power_of_two().clamp(SLOTS_MIN, SLOTS_MAX);
            (0..slots).map(|_| AtomicU64::new(0)).collect()
        };
        let slots = self.slots.get_or_init(make);
        let group = block / FRAME_BLOCKS_MAX;
        let age = Heat::age(slots, self.reads.fetch_add(1, Ordering::Relaxed));
        let slot = Heat::slot(slots, group);
        let packed = slot.load(Ordering::Relaxed);
        let was = Slot::unpack(packed, age);
        let replace = |tag: u64, count: u64| {
            let new = Slot::pack(tag, count, age);
            slot.compare_exchange(packed, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let is_own = was.tag == group + 1;
        match was.count {
            // It is still hot.
            WAITING if is_own && was.idle > 0 => _ = replace(was.tag, WAITING),
            WAITING | REFUSED => {}
            0 if !is_own => _ = replace(group + 1, 1),
            count if !is_own => _ = replace(was.tag, count - 1),
            count if count + 1 < self.often => _ = replace(was.tag, count + 1),
            _ if self.waiting_count.load(Ordering::Relaxed) >= WAITING_MAX => {}
            _ => {
                let mut waiting = self.waiting.lock();
                if replace(was.tag, WAITING) {
                    waiting.push_back(group);
                    self.waiting_count.store(waiting.len() as u64, Ordering::Relaxed);
                }
            }
        }
    }

    /// A whole frame, with this block, was read: it is streamed, and stays large.
    pub(crate) fn read_whole(&self, block: u64) {
        let Some(slots) = self.slots.get() else { return };
        let group = block / FRAME_BLOCKS_MAX;
        let slot = Heat::slot(slots, group);
        let packed = slot.load(Ordering::Relaxed);
        if packed >> 16 == group + 1 && packed & 0xff != REFUSED {
            let _ = slot.compare_exchange(packed, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns whether groups wait to be cut.
    pub(crate) fn has_hot(&self) -> bool {
        self.waiting_count.load(Ordering::Relaxed) > 0
    }

    /// Takes the group that has waited longest to be cut and is still hot.
    pub(crate) fn take_hot(&self) -> Option<Hot<'_>> {
        loop {
            let group = {
                let mut waiting = self.waiting.lock();
                let group = waiting.pop_front()?;
                self.waiting_count.store(waiting.len() as u64, Ordering::Relaxed);
                group
            };
            let slots = self.slots.get()?;
            let packed = Heat::slot(slots, group).load(Ordering::Relaxed);
            let was = Slot::unpack(packed, Heat::age(slots, self.reads.load(Ordering::Relaxed)));
            if (was.tag, was.count) == (group + 1, WAITING) {
                return Some(Hot { heat: self, group, then: Some(0) });
            }
        }
    }
}

/// A group that is being cut. If nothing else is said, it is counted anew afterwards.
pub(crate) struct Hot<'a> {
    heat: &'a Heat,
    group: u64,
    /// Count of its slot afterwards. `None`: it waits again.
    then: Option<u64>,
}

impl Hot<'_> {
    /// Its first block.
    pub(crate) fn first(&self) -> u64 {
        self.group * FRAME_BLOCKS_MAX
    }

    /// It would grow too much. It is not looked at again for a long time.
    pub(crate) fn refuse(mut self) {
        self.then = Some(REFUSED);
    }

    /// It is to be looked at again.
    pub(crate) fn put_back(mut self) {
        self.then = None;
        let mut waiting = self.heat.waiting.lock();
        waiting.push_back(self.group);
        self.heat.waiting_count.store(waiting.len() as u64, Ordering::Relaxed);
    }
}

impl Drop for Hot<'_> {
    fn drop(&mut self) {
        let (Some(then), Some(slots)) = (self.then, self.heat.slots.get()) else { return };
        let slot = Heat::slot(slots, self.group);
        let packed = slot.load(Ordering::Relaxed);
        if packed >> 16 == self.group + 1 {
            let age = Heat::age(slots, self.heat.reads.load(Ordering::Relaxed));
            let new = if then == 0 { 0 } else { Slot::pack(self.group + 1, then, age) };
            // Else a reader was faster.
            let _ = slot.compare_exchange(packed, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const OFTEN: u8 = 8;
    /// Blocks of a drive whose table has as few slots as there may be.
    const SMALL: u64 = 512;

    /// Reads some block of a group.
    fn read(heat: &Heat, group: u64, times: usize) {
        (0..times).for_each(|time| heat.read_at_random(8 * group + time as u64 % 8, SMALL));
    }

    /// Lets counts halve some times.
    fn fade(heat: &Heat, halvings: u64) {
        heat.reads.fetch_add(halvings * SLOTS_MIN * READS_A_SLOT, Ordering::Relaxed);
    }

    /// Takes a group, cuts it, and returns it.
    fn cut(heat: &Heat) -> Option<u64> {
        heat.take_hot().map(|hot| hot.first() / 8)
    }

    #[test]
    fn what_is_read_often_is_hot_once() {
        let heat = Heat::new(OFTEN);
        assert_eq!(cut(&heat), None);
        read(&heat, 5, 7);
        assert!(!heat.has_hot());
        read(&heat, 5, 100);
        assert!(heat.has_hot());
        assert_eq!((cut(&heat), cut(&heat), heat.has_hot()), (Some(5), None, false));
        read(&heat, 5, 7);
        assert_eq!(cut(&heat), None, "it is counted anew");
        read(&heat, 5, 1);
        let hot = heat.take_hot().expect("hot");
        read(&heat, 5, 100);
        assert_eq!(cut(&heat), None, "it is taken");
        hot.put_back();
        assert_eq!((cut(&heat), cut(&heat)), (Some(5), None));
    }

    #[test]
    fn what_is_refused_is_left_alone_for_long_and_not_for_ever() {
        let heat = Heat::new(OFTEN);
        read(&heat, 5, 8);
        heat.take_hot().expect("hot").refuse();
        for _ in 0..REFUSED_AGES - 4 {
            heat.read_whole(40);
            read(&heat, 5, 20);
            assert_eq!(cut(&heat), None);
            fade(&heat, 1);
        }
        fade(&heat, 4);
        read(&heat, 5, 8);
        assert_eq!(cut(&heat), Some(5));
    }

    #[test]
    fn what_is_streamed_is_not_hot() {
        let heat = Heat::new(OFTEN);
        for _ in 0..10 {
            read(&heat, 5, 7);
            heat.read_whole(8 * 5 + 3);
            heat.read_whole(8 * 6);
        }
        assert_eq!(cut(&heat), None);
        read(&heat, 5, 8);
        heat.read_whole(40);
        read(&heat, 5, 7);
        assert_eq!(cut(&heat), None, "it waited and was streamed");
        read(&heat, 5, 1);
        assert_eq!((cut(&heat), cut(&heat)), (Some(5), None));
    }

    #[test]
    fn heat_fades_and_comes_again() {
        let heat = Heat::new(OFTEN);
        read(&heat, 5, 7);
        fade(&heat, 1);
        read(&heat, 5, 4);
        assert_eq!(cut(&heat), None, "7 are 3 now");
        read(&heat, 5, 1);
        assert_eq!(cut(&heat), Some(5));
        read(&heat, 5, 8);
        fade(&heat, WAITING_AGES);
        assert_eq!(cut(&heat), None, "it waited until it was cold");
        for _ in 0..2 * WAITING_AGES {
            read(&heat, 5, 8);
            fade(&heat, 1);
        }
        assert_eq!(cut(&heat), Some(5), "it waited and was read");
        fade(&heat, 100);
        read(&heat, 5, 7);
        assert_eq!(cut(&heat), None);
    }

    #[test]
    fn a_scan_of_everything_does_not_displace_what_is_hot() {
        let heat = Heat::new(OFTEN);
        let read = |group: u64| heat.read_at_random(8 * group, 1 << 20);
        for pass in 0..10 {
            (0..2).for_each(|_| read(77));
            // Not one of them is read again.
            (0..1000).for_each(|n| read((1 << 30) + pass * 1000 + n));
        }
        assert_eq!((cut(&heat), cut(&heat)), (Some(77), None));
    }

    #[test]
    fn those_that_wait_are_bounded_and_none_is_lost() {
        let heat = Heat::new(OFTEN);
        let read = |group: u64, times: usize| {
            (0..times).for_each(|_| heat.read_at_random(8 * group, 1 << 19));
        };
        let groups = 3 * WAITING_MAX;
        (0..groups).for_each(|group| read(group, 8));
        let mut taken: Vec<u64> = std::iter::from_fn(|| cut(&heat)).collect();
        assert_eq!(taken.len() as u64, WAITING_MAX);
        for _ in 0..2 {
            (0..groups).for_each(|group| read(group, 1));
            taken.extend(std::iter::from_fn(|| cut(&heat)));
        }
        taken.sort_unstable();
        // Two that share a slot displace each other.
        assert!(taken.len() as u64 > groups * 9 / 10, "{}", taken.len());
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
