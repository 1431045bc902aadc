//! The mapping of an area, and who uses which place in it.
//!
//! All `unsafe` of the area is here. Words of page 0, the entries and the number of a message are atomic.
//! Data is written to a place while only one value refers to it ([`Landing`], or a place that is being
//! taken), and read while others do ([`Hold`]).
//!
//! Other mappings, of this process and of others, are there before and after this one, and may overlap with
//! it: a process maps an area as soon as it may serve it, and unmaps it when its last request has ended. At
//! any time one of them is used: whoever serves an area knows that nobody else does any more. Allocating
//! pages changes no content, and undoes no store of another mapping.
#![allow(unsafe_code, reason = "a mapping")]

use std::hint::black_box;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io, ptr, slice};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::shape::{MESSAGE, PAGE_BYTES, Shape};

/// Called before each store to the area.
#[cfg(test)]
pub(super) type Watcher = Box<dyn Fn() + Send + Sync>;

/// An area in the memory of this process.
pub(super) struct Memory {
    base: NonNull<u8>,
    file: OwnedFd,
    shape: Shape,
    places: Mutex<Places>,
    #[cfg(test)]
    pub(super) watcher: Option<Watcher>,
    #[cfg(test)]
    pub(super) planted: Option<super::Planted>,
}

// SAFETY: the mapping belongs to this value alone. Who may write to a place is the only one that refers to
// it, and all else is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

struct Places {
    /// How many hold each place.
    holders: Vec<u8>,
    /// Number of small and of large places that nobody holds.
    free: [usize; 2],
}

impl Places {
    fn change(&mut self, place: usize, is_large: bool, change: impl FnOnce(u8) -> u8) {
        let holders = &mut self.holders[place];
        let was_free = *holders == 0;
        *holders = change(*holders);
        let free = &mut self.free[usize::from(is_large)];
        match (was_free, *holders == 0) {
            (true, false) => *free -= 1,
            (false, true) => *free += 1,
            _ => {}
        }
    }
}

impl Memory {
    /// Maps a file, which must be as long as the shape says and cannot become shorter.
    pub(super) fn map(file: OwnedFd, shape: Shape) -> io::Result<Memory> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { mmap(ptr::null_mut(), shape.len_bytes(), access, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let free = [shape.small.into(), shape.large.into()];
        let places = Mutex::new(Places { holders: vec![0; shape.places()], free });
        Ok(Memory {
            base,
            file,
            shape,
            places,
            #[cfg(test)]
            watcher: None,
            #[cfg(test)]
            planted: None,
        })
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// A point at which the process may be killed.
    fn step(&self) {
        #[cfg(test)]
        if let Some(watcher) = &self.watcher {
            watcher();
        }
    }

    /// Stores a word of page 0 or of an entry. Whatever was stored before is in the area before it.
    pub(super) fn store(&self, at: usize, word: u64) {
        assert!(at + size_of::<u64>() <= self.shape.table_bytes(), "word {at} of the table");
        self.store_anywhere(at, word);
    }

    fn store_anywhere(&self, at: usize, word: u64) {
        self.step();
        self.word(at).store(word, Ordering::Release);
    }

    /// Loads a word of page 0 or of an entry.
    pub(super) fn load(&self, at: usize) -> u64 {
        assert!(at + size_of::<u64>() <= self.shape.table_bytes(), "word {at} of the table");
        self.word(at).load(Ordering::Acquire)
    }

    /// A word of the table, or the number of a message.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(size_of::<u64>()) && at + size_of::<u64>() <= self.shape.len_bytes());
        // SAFETY: within the mapping, and aligned. The table has only words. The number of a message is used
        // as a word by its `Landing` alone, while it has lent no bytes, and the first word of a page by who
        // allocates it, while nobody has bytes of the place.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast().as_ptr()) }
    }

    /// Allocates pages, in the tables of this process too: the kernel ends a request with an error if it has
    /// to do that itself for a process that is being killed.
    pub(super) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.shape.len_bytes());
        let page_bytes = rustix::param::page_size();
        let start = range.start / page_bytes * page_bytes;
        // SAFETY: within the mapping, whose last page may be larger than what is used of it. No content
        // changes.
        let populated = unsafe {
            let at = self.base.add(start).as_ptr().cast();
            madvise(at, range.end.next_multiple_of(page_bytes) - start, Advice::LinuxPopulateWrite)
        };
        match populated {
            // Linux before 5.14.
            Err(Errno::INVAL) => self.touch(range),
            populated => populated?,
        }
        Ok(())
    }

    /// As [`Memory::populate`], by a store to each page. It is one with the load before it: the first word of
    /// a page may be the state of an entry.
    fn touch(&self, range: Range<usize>) {
        for at in range.step_by(PAGE_BYTES) {
            // A zero that the compiler knows is no store: it makes a fence of that.
            self.word(at).fetch_or(black_box(0), Ordering::Relaxed);
        }
    }

    /// Gives back the pages of a place that nobody holds. Its content is zeros then.
    pub(super) fn punch(&self, place: usize) -> io::Result<bool> {
        let places = self.places.lock();
        if places.holders[place] > 0 {
            return Ok(false);
        }
        let Range { start, end } = self.shape.place(place);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, start as u64, (end - start) as u64)?;
        Ok(true)
    }

    /// Returns whether there is a small place, and a large one.
    pub(super) fn has_free(&self) -> [bool; 2] {
        self.places.lock().free.map(|free| free > 0)
    }

    /// Holds a place that nobody else does. `None`: there is none of that number, or somebody does.
    pub(super) fn hold(self: &Arc<Self>, place: usize) -> Option<Hold> {
        let mut places = self.places.lock();
        if places.holders.get(place) != Some(&0) {
            return None;
        }
        places.change(place, self.shape.is_large(place), |_| 1);
        Some(Hold::new(self.clone(), place))
    }

    fn lowest(self: &Arc<Self>, range: Range<usize>) -> Option<Hold> {
        let place = {
            let places = self.places.lock();
            range.start + places.holders[range].iter().position(|holders| *holders == 0)?
        };
        self.hold(place)
    }

    /// Copies data into the small place with the lowest number. `None`: all are in use, or it is too long.
    pub(super) fn take_small(self: &Arc<Self>, data: &[u8]) -> Option<Hold> {
        let hold = self.lowest(0..self.shape.small.into())?;
        let at = self.shape.data(hold.place);
        if data.len() > at.len() {
            return None;
        }
        let (first, second) = data.split_at(data.len() / 2);
        for (at, part) in [(at.start, first), (at.start + first.len(), second)] {
            self.step();
            // SAFETY: within the place, and nobody else holds it. The data is of a large place.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), self.base.add(at).as_ptr(), part.len()) };
        }
        Some(hold)
    }

    /// Takes the large place with the lowest number. `None`: all are in use.
    pub(super) fn take_large(self: &Arc<Self>) -> Option<Landing> {
        self.lowest(self.shape.small.into()..self.shape.places()).map(Landing)
    }

    /// Bytes of a place.
    ///
    /// # Safety
    ///
    /// Nobody writes to it while they are used.
    unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.shape.len_bytes());
        // SAFETY: within the mapping, which the kernel has initialised.
        unsafe { slice::from_raw_parts(self.base.add(range.start).as_ptr(), range.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: a mapping of this length. Whoever refers to a place holds this value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.shape.len_bytes()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?})", self.shape)
    }
}

/// Keeps a place from being used again.
#[derive(Debug)]
pub(super) struct Hold {
    memory: Arc<Memory>,
    place: usize,
    /// Planted: it is not counted.
    #[cfg(test)]
    is_lost: bool,
}

impl Hold {
    fn new(memory: Arc<Memory>, place: usize) -> Hold {
        Hold {
            memory,
            place,
            #[cfg(test)]
            is_lost: false,
        }
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// Holds it once more.
    pub(super) fn again(&self) -> Hold {
        #[cfg(test)]
        if self.memory.planted == Some(super::Planted::ReusesPlaces) {
            let mut lost = Hold::new(self.memory.clone(), self.place);
            lost.is_lost = true;
            return lost;
        }
        let is_large = self.memory.shape.is_large(self.place);
        self.memory.places.lock().change(self.place, is_large, |holders| holders + 1);
        Hold::new(self.memory.clone(), self.place)
    }

    /// The first bytes of its data.
    pub(super) fn data(&self, len: usize) -> &[u8] {
        let Range { start, end } = self.memory.shape.data(self.place);
        // SAFETY: a place that is held is not written to.
        unsafe { self.memory.bytes(start..end.min(start + len)) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.is_lost {
            return;
        }
        let is_large = self.memory.shape.is_large(self.place);
        self.memory.places.lock().change(self.place, is_large, |holders| holders - 1);
    }
}

/// A large place that receives, which nobody else holds.
#[derive(Debug)]
pub(super) struct Landing(Hold);

impl Landing {
    /// `None`: it is not a large one.
    pub(super) fn new(hold: Hold) -> Option<Landing> {
        hold.memory.shape.is_large(hold.place).then_some(Landing(hold))
    }

    pub(super) fn place(&self) -> usize {
        self.0.place
    }

    fn memory(&self) -> &Memory {
        &self.0.memory
    }

    fn message_at(&self) -> Range<usize> {
        let Range { start, end } = self.memory().shape.place(self.0.place);
        start + MESSAGE..end
    }

    /// Where the number of a message is.
    fn unique_at(&self) -> usize {
        self.message_at().start + 8
    }

    /// Number of the message that is there. Zero: there is none.
    pub(super) fn unique(&self) -> u64 {
        self.memory().word(self.unique_at()).load(Ordering::Acquire)
    }

    /// Removes the message that is there.
    pub(super) fn clear(&mut self) {
        if self.unique() != 0 {
            self.memory().store_anywhere(self.unique_at(), 0);
        }
    }

    /// Lends its bytes to a call that reads a message into them.
    pub(super) fn fill<R>(&mut self, read: impl FnOnce(&mut [u8]) -> R) -> R {
        let Range { start, end } = self.message_at();
        // SAFETY: within the mapping, and nobody else refers to the place.
        read(unsafe { slice::from_raw_parts_mut(self.memory().base.add(start).as_ptr(), end - start) })
    }

    /// The message, of this length at most.
    pub(super) fn message(&self, len: usize) -> &[u8] {
        let Range { start, end } = self.message_at();
        // SAFETY: nobody else refers to the place, and this value writes only when it is borrowed to be
        // changed.
        unsafe { self.memory().bytes(start..end.min(start.saturating_add(len))) }
    }

    /// From now on it has the data of a write.
    pub(super) fn into_hold(self) -> Hold {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const SHAPE: Shape = Shape { entries: 2, small: 2, large: 3 };

    fn memory() -> Arc<Memory> {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a memory");
        ftruncate(&file, SHAPE.len_bytes() as u64).expect("room");
        Arc::new(Memory::map(file, SHAPE).expect("mapped"))
    }

    fn allocated(memory: &Memory) -> u64 {
        rustix::fs::fstat(&memory.file).expect("a file").st_blocks as u64 * 512
    }

    #[test]
    fn a_place_is_free_when_nobody_holds_it() {
        let memory = memory();
        let first = memory.take_small(b"abc").expect("room");
        let again = first.again();
        let second = memory.take_small(b"def").expect("room");
        assert_eq!((first.place(), second.place(), memory.has_free()), (0, 1, [false, true]));
        drop(first);
        assert!(memory.take_small(b"x").is_none() && memory.hold(0).is_none());
        assert_eq!((again.data(3), second.data(2)), (&b"abc"[..], &b"de"[..]));
        drop(again);
        assert_eq!(memory.take_small(&[0; 9000]).map(|hold| hold.place()), None, "too long");
        assert_eq!(memory.take_small(b"x").map(|hold| hold.place()), Some(0));
        assert!(memory.hold(5).is_none(), "there are five");
        assert_eq!(memory.take_large().map(|landing| landing.place()), Some(2));
    }

    #[test]
    fn pages_come_and_go() {
        for populate in [|memory: &Memory, at| memory.populate(at).expect("pages"), Memory::touch] {
            let memory = memory();
            assert_eq!(allocated(&memory), 0);
            let mut landing = memory.take_large().expect("room");
            landing.fill(|bytes| bytes[8] = 7);
            populate(&memory, SHAPE.place(landing.place()));
            assert_eq!((allocated(&memory), landing.unique()), (260 << 10, 7));
            assert!(!memory.punch(landing.place()).expect("no change"), "it is held");
            let place = landing.place();
            drop(landing);
            assert!(memory.punch(place).expect("punched"));
            assert_eq!(allocated(&memory), 0);
        }
    }

    #[test]
    fn allocating_pages_undoes_no_store_of_another_mapping() {
        const STORES: u64 = 20_000;
        let memory = memory();
        let file = memory.file.try_clone().expect("a descriptor");
        let other = Memory::map(file, SHAPE).expect("mapped");
        let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    other.touch(0..SHAPE.table_bytes());
                    rounds.fetch_add(1, Ordering::AcqRel);
                }
            });
            // The state of the first entry begins a page.
            let state = memory.word(SHAPE.entry_word(0, 0));
            let lost = (1..=STORES).find(|number| {
                let before = rounds.load(Ordering::Acquire);
                state.store(*number, Ordering::Release);
                // The round that was under way is over then.
                while rounds.load(Ordering::Acquire) < before + 2 {
                    std::thread::yield_now();
                }
                state.load(Ordering::Acquire) != *number
            });
            is_over.store(true, Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, None, "a store was undone");
    }

    #[test]
    fn data_of_a_large_place_is_aligned() {
        let memory = memory();
        let mut landing = memory.take_large().expect("room");
        let len = landing.fill(|bytes| {
            bytes[80..84].copy_from_slice(b"data");
            bytes.len()
        });
        assert_eq!(len, 80 + (256 << 10));
        let hold = landing.into_hold();
        assert_eq!(hold.data(4), b"data");
        assert_eq!((hold.data(1).as_ptr().addr() % 4096, hold.data(usize::MAX / 2).len()), (0, 256 << 10));
    }
}
