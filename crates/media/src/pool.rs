//! Recycled page-aligned allocations.
//!
//! A fresh allocation of 128 KiB or more comes from the kernel, which faults in and zeroes each of its 4 KiB
//! pages on first touch. That costs several times as much as copying the data into it. [`crate::IoBuf`]
//! therefore returns its memory to this pool, and the next buffer of the same size class takes it while it is
//! still in the CPU cache.
//!
//! The pool is split into shards, each behind its own lock, and a thread always uses the same one. With a
//! thread per core that is as good as thread-local. The bound on memory does not grow with the number of
//! threads, and buffers that one thread makes and another drops need no special treatment.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::PAGE_BYTES;

/// Number of shards: a power of two, about the cores of a large host.
const SHARDS: usize = 16;
/// Most bytes that one shard keeps for reuse.
const SHARD_BYTES_MAX: usize = 16 << 20;
/// Most bytes of one size class that a shard keeps, so that sizes no longer in use do not fill it.
const CLASS_BYTES_MAX: usize = 8 << 20;
/// Number of size classes, 4 KiB to 1 MiB. Larger buffers are too rare to keep.
const CLASSES: usize = 28;
/// Capacity of the largest class, in bytes.
const CLASS_CAPACITY_MAX: usize = 1 << 20;

/// An unused allocation: page-aligned, of its class's capacity, initialised, owned by the pool alone.
struct Spare(NonNull<u8>);

// SAFETY: the pointer is the only reference to its allocation, and any thread may free or reuse it.
unsafe impl Send for Spare {}

struct Shard {
    bytes: usize,
    spares: [Vec<Spare>; CLASSES],
}

/// One shard on its own cache lines, to avoid false sharing with its neighbours.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

static POOL: [Padded; SHARDS] =
    [const { Padded(Mutex::new(Shard { bytes: 0, spares: [const { Vec::new() }; CLASSES] })) }; SHARDS];

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = Cell::new(NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS);
}

fn shard() -> &'static Mutex<Shard> {
    // A thread that is ending may still drop buffers: any shard is suitable.
    let index = SHARD.try_with(Cell::get).unwrap_or(0);
    &POOL[index].0
}

/// Returns the class for `len` bytes and its capacity, or `None` if `len` is over the largest class.
///
/// Classes are spaced by a quarter of a power of two (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80 ...
/// KiB), so that at most a fifth of a buffer is unused.
pub(crate) fn class_of(len: usize) -> Option<(usize, usize)> {
    if len > CLASS_CAPACITY_MAX {
        return None;
    }
    let pages = len.div_ceil(PAGE_BYTES).max(1);
    // Four steps per doubling from four pages on. Below that, every number of pages is a step.
    let doubling = (pages - 1).checked_ilog2().unwrap_or(0).saturating_sub(2);
    let steps = pages.div_ceil(1 << doubling);
    Some(((doubling as usize) * 4 + steps - 1, (steps << doubling) * PAGE_BYTES))
}

/// Takes an unused allocation of `class`, if the pool has one. The caller owns it from then on.
pub(crate) fn take(class: usize, capacity: usize) -> Option<NonNull<u8>> {
    let mut shard = shard().lock();
    let spare = shard.spares[class].pop()?;
    shard.bytes -= capacity;
    Some(spare.0)
}

/// Gives an allocation of exactly `capacity` bytes to the pool. Returns `false` if the pool does not take it;
/// the caller still owns it then.
///
/// # Safety
/// `ptr` must be page-aligned, own `capacity` initialised bytes, and not be used again by the caller if this
/// returns `true`.
pub(crate) unsafe fn give(ptr: NonNull<u8>, capacity: usize) -> bool {
    let Some((class, class_capacity)) = class_of(capacity) else { return false };
    if class_capacity != capacity {
        return false;
    }
    let mut shard = shard().lock();
    if shard.bytes + capacity > SHARD_BYTES_MAX
        || (shard.spares[class].len() + 1) * capacity > CLASS_BYTES_MAX
    {
        return false;
    }
    shard.bytes += capacity;
    shard.spares[class].push(Spare(ptr));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_size_in_order_without_gaps() {
        let mut last = None;
        for pages in 1..=CLASS_CAPACITY_MAX / PAGE_BYTES {
            let len = pages * PAGE_BYTES;
            let (class, capacity) = class_of(len).expect("within the largest class");
            assert!(class < CLASSES && capacity >= len && capacity - len <= capacity / 5, "{len} {capacity}");
            assert_eq!(class_of(capacity), Some((class, capacity)), "a class's capacity is in that class");
            match last {
                Some((before, before_capacity)) if before == class => assert_eq!(before_capacity, capacity),
                Some((before, before_capacity)) => assert!(class > before && capacity > before_capacity),
                None => {}
            }
            last = Some((class, capacity));
        }
        assert_eq!(class_of(CLASS_CAPACITY_MAX + 1), None);
        assert_eq!(class_of(0), Some((0, PAGE_BYTES)));
    }
}
