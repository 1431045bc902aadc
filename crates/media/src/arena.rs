//! Memory for packs, in one mapping: a table of words in front, regions behind it.
//!
//! The mapping may be of a file in memory, so that it survives the process. Nobody but the owner of the table
//! decides when a region is used again: a dropped buffer gives its units back, and [`Arena::reclaim`] makes
//! them free.
//!
//! A file gets its pages before they are used, some at a time ([`Arena::grow`]): without room for them the
//! process would be killed by its next store, and a page fault inside a lock might wait for whatever waits
//! for that lock.

mod regions;

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io, ptr, slice};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use self::regions::Regions;
use crate::buffer::Owner;
use crate::{IoBuf, PAGE_BYTES};

/// Number of the largest regions whose pages a file gets at once.
const GROWTH_REGIONS: usize = 16;
/// Number of the largest regions whose pages a file keeps while nothing happens.
const IDLE_REGIONS: usize = 4;

/// Room that growth leaves to others on a file system with a limit.
const LEFT_TO_OTHERS_BYTES: u64 = 32 << 20;

/// Bytes of a word of the table.
const WORD_BYTES: usize = size_of::<u64>();

/// Called with an arena: see [`Arena::watched`].
pub type ArenaWatcher = Box<dyn Fn(&Arena) + Send + Sync>;

/// Sizes of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaShape {
    /// Bytes of the table, a multiple of [`PAGE_BYTES`].
    pub table_bytes: usize,
    /// Bytes of a unit, a multiple of [`PAGE_BYTES`]. Regions are whole units.
    pub unit_bytes: usize,
    /// Number of units.
    pub units: usize,
    /// Bytes of the largest region.
    pub largest_bytes: usize,
}

impl ArenaShape {
    /// Bytes of the whole mapping.
    pub fn len_bytes(&self) -> usize {
        self.table_bytes + self.units * self.unit_bytes
    }

    fn units_of_largest(&self) -> usize {
        self.largest_bytes.div_ceil(self.unit_bytes)
    }
}

/// Memory for packs: see the [module](self). Clones share it.
#[derive(Clone)]
pub struct Arena(Arc<Inner>);

struct Inner {
    base: NonNull<u8>,
    shape: ArenaShape,
    regions: Regions,
    /// The file. `None`: the memory is of this process.
    file: Option<OwnedFd>,
    growing: Mutex<()>,
    watcher: Option<ArenaWatcher>,
}

// SAFETY: the mapping belongs to this value alone. Regions in use belong to their buffers, and the words of
// the table are atomic.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Arena {
    /// An arena that only this process sees, all zeros. Its pages are allocated when they are used.
    ///
    /// # Errors
    /// If the kernel has no addresses left.
    pub fn private(shape: ArenaShape) -> io::Result<Arena> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), shape.len_bytes(), access, flags) }?;
        Self::at(base.cast(), shape, None)
    }

    /// An arena in a file as long as the shape says, all zeros. The file gets pages for the table and the
    /// first regions.
    ///
    /// # Errors
    /// If the file cannot be mapped, or there is no room for these pages.
    pub fn shared(file: impl AsFd, shape: ArenaShape) -> io::Result<Arena> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { mmap(ptr::null_mut(), shape.len_bytes(), access, MapFlags::SHARED, &file, 0) }?;
        let arena = Self::at(base.cast(), shape, Some(file.as_fd().try_clone_to_owned()?))?;
        arena.back(0..shape.table_bytes)?;
        arena.grow_by_a_step()?;
        Ok(arena)
    }

    fn at(base: *mut u8, shape: ArenaShape, file: Option<OwnedFd>) -> io::Result<Arena> {
        assert!(
            shape.table_bytes.is_multiple_of(PAGE_BYTES) && shape.unit_bytes.is_multiple_of(PAGE_BYTES),
            "regions are aligned for direct I/O"
        );
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let backed = if file.is_some() { 0 } else { shape.units };
        let regions = Regions::new(shape.units, backed, shape.units_of_largest());
        let growing = Mutex::new(());
        Ok(Arena(Arc::new(Inner { base, shape, regions, file, growing, watcher: None })))
    }

    /// Shows the arena to `watcher` before each store to its table: as a process leaves it that is killed
    /// there. For tests, with one thread only.
    ///
    /// # Panics
    /// If there are clones or buffers.
    pub fn watched(self, watcher: ArenaWatcher) -> Arena {
        let Ok(mut inner) = Arc::try_unwrap(self.0) else { panic!("an arena is watched from its beginning") };
        inner.watcher = Some(watcher);
        Arena(Arc::new(inner))
    }

    /// Sizes of the arena.
    pub fn shape(&self) -> ArenaShape {
        self.0.shape
    }

    /// Stores a word of the table, with release order. `at` is its offset in bytes.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn store(&self, at: usize, value: u64) {
        if let Some(watcher) = &self.0.watcher {
            watcher(self);
        }
        self.word(at).store(value, Ordering::Release);
    }

    /// Loads a word of the table.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(WORD_BYTES) && at < self.0.shape.table_bytes, "word {at} of the table");
        // SAFETY: within the mapping, aligned, and nothing but words is in the table.
        unsafe { AtomicU64::from_ptr(self.0.base.add(at).cast().as_ptr()) }
    }

    /// A copy of all bytes. Buffers that are being written to may be in any state.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: the whole mapping, initialised by the kernel.
        unsafe { slice::from_raw_parts(self.0.base.as_ptr(), self.0.shape.len_bytes()) }.to_vec()
    }

    /// An independent copy with what is in use, for the next process. It is not watched.
    ///
    /// # Errors
    /// As [`Arena::private`].
    pub fn snapshot(&self) -> io::Result<Arena> {
        let (copy, shape) = (Arena::private(self.0.shape)?, self.0.shape);
        let are_free = self.0.regions.are_free();
        let used = (0..shape.units).filter(|unit| !are_free[*unit]);
        let used = used.map(|unit| (shape.table_bytes + unit * shape.unit_bytes, shape.unit_bytes));
        for (at, len) in [(0, shape.table_bytes)].into_iter().chain(used) {
            // SAFETY: within both mappings, of which the new one has no other user.
            unsafe { self.0.base.add(at).copy_to_nonoverlapping(copy.0.base.add(at), len) };
        }
        copy.0.regions.set_free(are_free);
        Ok(copy)
    }

    /// Returns a buffer of `len` bytes in a region that is large enough, with unspecified content: at the
    /// lowest place that is free. `None` if there is none.
    pub fn take(&self, len: usize) -> Option<IoBuf> {
        let count = len.div_ceil(self.0.shape.unit_bytes).max(1);
        let first = self.0.regions.take(count)?;
        // SAFETY: within the mapping.
        let at = unsafe { self.0.base.add(self.0.shape.table_bytes + first * self.0.shape.unit_bytes) };
        // SAFETY: these units were free, so nobody else refers to them.
        Some(unsafe { IoBuf::owned(at, len, count * self.0.shape.unit_bytes, self.0.clone()) })
    }

    /// Gets more pages for the file if there is little room, and waits for them. To be called outside of
    /// locks.
    pub fn grow(&self) {
        if !self.0.regions.is_low() {
            return;
        }
        // One at a time.
        let Some(_growing) = self.0.growing.try_lock() else { return };
        if self.grow_by_a_step().is_err() {
            self.0.regions.set_exhausted();
        }
    }

    fn grow_by_a_step(&self) -> io::Result<()> {
        let shape = self.0.shape;
        let backed = self.0.regions.backed();
        let step = GROWTH_REGIONS * shape.units_of_largest();
        let until = (backed + step).min(shape.units);
        let at = |unit: usize| shape.table_bytes + unit * shape.unit_bytes;
        self.must_have_room((until - backed) * shape.unit_bytes)?;
        self.back(at(backed)..at(until))?;
        self.0.regions.set_backed(until);
        Ok(())
    }

    /// Gives back pages of the file behind the last region that is in use. A few stay, and the next buffers
    /// bring the others back. To be called outside of locks.
    pub fn give_back(&self) {
        let (Some(file), Some(_growing)) = (&self.0.file, self.0.growing.try_lock()) else { return };
        let shape = self.0.shape;
        let kept = IDLE_REGIONS * shape.units_of_largest();
        let Some(freed) = self.0.regions.take_unused(kept) else { return };
        let (at, len) = (shape.table_bytes + freed.start * shape.unit_bytes, freed.len() * shape.unit_bytes);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Without it they stay allocated, which does no harm.
        let _ = fallocate(file, flags, at as u64, len as u64);
    }

    /// Fails if the file system would have too little room for others.
    fn must_have_room(&self, bytes: usize) -> io::Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let space = fstatvfs(file)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        // One without a limit reports no blocks at all.
        match space.f_blocks > 0 && free < bytes as u64 + LEFT_TO_OTHERS_BYTES {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Allocates pages of the file and of this process.
    fn back(&self, range: Range<usize>) -> io::Result<()> {
        let (Some(file), false) = (&self.0.file, range.is_empty()) else { return Ok(()) };
        fallocate(file, FallocateFlags::empty(), range.start as u64, range.len() as u64)?;
        // SAFETY: within the mapping. No content changes.
        let populated = unsafe {
            let start = self.0.base.add(range.start).as_ptr().cast();
            madvise(start, range.len(), Advice::LinuxPopulateWrite)
        };
        match populated {
            // Older kernels do not know it: pages come when they are used.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether there is room for this many of the largest regions.
    pub fn has_room(&self, count: usize) -> bool {
        self.0.regions.has_room(count)
    }

    /// Makes regions free that were given back. `publish` is called before with the first unit of each.
    pub fn reclaim(&self, publish: impl FnMut(usize)) {
        self.0.regions.reclaim(publish);
    }

    /// The number of the first unit of a buffer's region. `None` if the buffer is elsewhere.
    pub fn unit_of(&self, buf: &IoBuf) -> Option<usize> {
        let at = buf.as_ptr().addr().checked_sub(self.0.base.addr().get() + self.0.shape.table_bytes)?;
        Some(at / self.0.shape.unit_bytes).filter(|unit| *unit < self.0.shape.units)
    }
}

impl Inner {
    fn range(&self, at: NonNull<u8>, capacity: usize) -> Range<usize> {
        let unit_bytes = self.shape.unit_bytes;
        let first = (at.addr().get() - self.base.addr().get() - self.shape.table_bytes) / unit_bytes;
        first..first + capacity / unit_bytes
    }
}

impl Owner for Inner {
    fn shrink(&self, at: NonNull<u8>, capacity: usize, len: usize) -> usize {
        let range = self.range(at, capacity);
        let kept = len.div_ceil(self.shape.unit_bytes).max(1);
        self.regions.free(range.start + kept..range.end);
        kept * self.shape.unit_bytes
    }

    fn give_back(&self, at: NonNull<u8>, capacity: usize) {
        self.regions.give_back(self.range(at, capacity));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: a mapping of this length, and each buffer holds the arena, so there is none any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.shape.len_bytes()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({:?})", self.0.shape)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const UNIT: usize = 64 << 10;
    const SHAPE: ArenaShape =
        ArenaShape { table_bytes: PAGE_BYTES, unit_bytes: UNIT, units: 8, largest_bytes: 4 * UNIT };

    fn arena() -> Arena {
        Arena::private(SHAPE).expect("an arena")
    }

    fn unit(arena: &Arena, buf: &IoBuf) -> usize {
        arena.unit_of(buf).expect("in the arena")
    }

    #[test]
    fn a_region_is_used_again_only_after_it_was_published_as_free() {
        let arena = arena();
        let first = arena.take(6 * UNIT).expect("room");
        assert!(arena.take(3 * UNIT).is_none());
        let second = arena.take(UNIT + 1).expect("room");
        assert_eq!((unit(&arena, &first), unit(&arena, &second)), (0, 6));
        drop((second, first));
        assert!(arena.take(1).is_none() && !arena.has_room(1), "given back is not free");
        let mut published = Vec::new();
        arena.reclaim(|unit| published.push(unit));
        assert_eq!(published, [6, 0]);
        assert!(arena.has_room(2) && !arena.has_room(3));
        assert_eq!(unit(&arena, &arena.take(8 * UNIT).expect("room")), 0);
    }

    #[test]
    fn a_region_that_shrinks_keeps_its_content_and_gives_up_its_end_at_once() {
        let arena = arena();
        let mut buf = arena.take(8 * UNIT).expect("room");
        buf.fill(7);
        buf.set_len(UNIT + 5);
        buf.shrink();
        assert_eq!((buf.len(), buf.capacity()), (UNIT + 5, 2 * UNIT));
        let mut other = arena.take(6 * UNIT).expect("room");
        other.fill(9);
        assert!(buf.iter().all(|byte| *byte == 7));
        drop(buf);
        arena.reclaim(|unit| assert_eq!(unit, 0));
        assert_eq!(unit(&arena, &arena.take(2 * UNIT).expect("room")), 0);
    }

    #[test]
    fn buffers_keep_an_arena_and_a_file_shows_what_is_in_it() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(SHAPE.len_bytes() as u64).expect("room");
        let arena = Arena::shared(&file, SHAPE).expect("an arena");
        arena.store(8, 0x0102_0304);
        let mut buf = arena.take(3).expect("room");
        buf.copy_from_slice(b"abc");
        drop(arena);
        let mut found = [0; 12];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 4).expect("a read");
        assert_eq!(found, [0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found[..3], PAGE_BYTES as u64).expect("a read");
        assert_eq!(&found[..3], b"abc");
        assert_eq!(&buf[..], b"abc");
    }

    #[test]
    fn a_file_gets_pages_as_they_are_needed() {
        let shape = ArenaShape { units: 64 * 8, largest_bytes: 8 * UNIT, ..SHAPE };
        let file = tempfile::tempfile().expect("a file");
        file.set_len(shape.len_bytes() as u64).expect("room");
        let arena = Arena::shared(&file, shape).expect("an arena");
        assert!(arena.has_room(GROWTH_REGIONS) && !arena.has_room(GROWTH_REGIONS + 1));
        arena.grow();
        assert!(!arena.has_room(GROWTH_REGIONS + 1), "there is enough");
        let mut taken = Vec::new();
        for _ in 0..64 {
            arena.grow();
            taken.push(arena.take(8 * UNIT).expect("room"));
        }
        arena.grow();
        assert!(!arena.has_room(1) && arena.take(1).is_none());
    }

    #[test]
    fn an_idle_file_keeps_few_pages() {
        let shape = ArenaShape { units: 64 * 8, largest_bytes: 8 * UNIT, ..SHAPE };
        let file = tempfile::tempfile().expect("a file");
        file.set_len(shape.len_bytes() as u64).expect("room");
        let arena = Arena::shared(&file, shape).expect("an arena");
        let units = || (file.metadata().expect("a file").blocks() * 512 - PAGE_BYTES as u64) / UNIT as u64;
        assert_eq!(units(), 16 * 8);
        let mut taken: Vec<_> = (0..6).map(|_| arena.take(8 * UNIT).expect("room")).collect();
        taken.last_mut().expect("some").fill(7);
        arena.give_back();
        assert_eq!(units(), 6 * 8, "those in use");
        assert_eq!(taken.last().map(|buf| buf[0]), Some(7));
        taken.clear();
        arena.give_back();
        assert_eq!(units(), 6 * 8, "given back is not free");
        arena.reclaim(|_| {});
        arena.give_back();
        assert_eq!(units(), 4 * 8);
        arena.grow();
        assert_eq!(units(), 4 * 8, "nothing was taken");
        let first = arena.take(UNIT).expect("room");
        arena.grow();
        assert!(arena.has_room(GROWTH_REGIONS), "there is enough again");
        assert_eq!(arena.unit_of(&first), Some(0));
    }

    #[test]
    fn threads_share_no_region() {
        let arena = Arena::private(ArenaShape { units: 64, ..SHAPE }).expect("an arena");
        std::thread::scope(|scope| {
            for id in 0..4_u8 {
                let arena = &arena;
                scope.spawn(move || {
                    for round in 0..500_usize {
                        let Some(mut buf) = arena.take((1 + round % 4) * UNIT) else { continue };
                        buf.fill(id);
                        std::thread::yield_now();
                        assert!(buf.iter().all(|byte| *byte == id));
                        drop(buf);
                        arena.reclaim(|_| {});
                    }
                });
            }
        });
    }

    #[test]
    fn a_watcher_sees_the_arena_before_each_store() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let arena = arena().watched(Box::new({
            let seen = seen.clone();
            move |arena: &Arena| {
                let bytes = arena.snapshot().expect("a copy").bytes();
                seen.lock().push((bytes[16], bytes[PAGE_BYTES]));
            }
        }));
        let mut buf = arena.take(1).expect("room");
        buf[0] = 5;
        arena.store(16, 1);
        buf[0] = 6;
        arena.store(16, 2);
        assert_eq!((&**seen.lock(), arena.load(16)), (&[(0, 5), (1, 6)][..], 2));
    }
}
