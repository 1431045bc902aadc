//! Requests that outlive the process that read them: a memory between the kernel and the server.
//!
//! ```text
//!            read(2)              into an entry                done               answer, free
//! landing  ----------> message  ----------------->  HAVE  ---------->  DONE(result)  ---------->  FREE
//! ```
//!
//! A process may be killed between any two stores. The next one executes what it finds as HAVE, answers what
//! is DONE, and takes up the message in the place that receives, if that is in no entry yet. Each state is
//! one aligned store of 64 bits, behind the stores of what it stands for.
//!
//! - DONE is stored behind the execution of a change, and before its answer. Later: the client has its
//!   answer, writes the block anew, and the next server executes the old write over it. Earlier: an answer
//!   without a change.
//! - The place of the data of a write is used again when both its entry is free and its [`Payload`] is
//!   dropped.
//! - Messages are received into pages that are in the tables of this process (`MADV_POPULATE_WRITE`): else
//!   the kernel ends the request with an error if the process is being killed meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};

use self::entry::{FREE, Kept, STATE, done_state};
pub use self::error::AreaError;
use self::memory::{Hold, Landing, Memory};
use self::shape::{HEAD_BYTES, LANDING, SMALL_BYTES, Shape};
use crate::wire::{Message, Operation, Question, WRITE_HEADER_BYTES, parse};

mod entry;
mod error;
mod memory;
mod shape;

#[cfg(test)]
mod model;

/// A mistake that the tests must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// The next server does not look at the place that receives.
    SkipsLanding,
    /// A message is removed before its request is in an entry.
    ClearsEarly,
    /// A payload does not keep its place.
    ReusesPlaces,
    /// The state is stored before what it stands for.
    StateFirst,
}

/// Seals without which an area could be truncated under its users.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Large places that keep their pages while nothing happens.
const IDLE_PLACES: usize = 4;

/// Requests in a memory that outlives this process. One task at a time uses it.
#[derive(Debug)]
pub struct Area {
    memory: Arc<Memory>,
    /// The place that receives.
    landing: Option<Landing>,
    /// What each entry holds until it is freed: also one that was dropped, which stays for the next server.
    holds: Vec<Option<Hold>>,
    free_entries: Vec<usize>,
    /// Pages of the large places.
    pages: Vec<Pages>,
    /// It is known what was left.
    is_open: bool,
}

/// What is known of the pages of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Perhaps another process has left some.
    Unknown,
    /// In the tables of this process.
    Present,
    /// None.
    Absent,
}

/// Place of a request in an area, from its arrival until its answer. One that is dropped stays for the next
/// server.
#[derive(Debug)]
pub struct Entry {
    number: usize,
    is_change: bool,
}

/// Data of a write, in the area. Dropping it gives its place back, once its entry is free too.
#[derive(Debug)]
pub struct Payload {
    hold: Hold,
    len: usize,
}

/// A request that is to be executed.
#[derive(Debug)]
pub struct Taken {
    /// Number of the request, for its answer.
    pub unique: u64,
    /// What is to be done.
    pub operation: Operation,
    /// Its place, for [`Area::done`] and [`Area::free`].
    pub entry: Entry,
    /// Data of a write.
    pub payload: Option<Payload>,
}

/// What was read from the device.
#[derive(Debug)]
pub enum Received {
    /// A request for the drive.
    Request(Taken),
    /// A question. It must be answered before the next call of [`Area::receive`].
    Question {
        /// Number of the request, for its answer.
        unique: u64,
        /// What is asked.
        question: Question,
    },
    /// Nothing is to be done.
    Nothing,
}

/// What the last server left.
#[derive(Debug)]
pub enum Left {
    /// A request that is to be executed, perhaps again.
    Request(Taken),
    /// A change that was executed, and whose answer is to be given, perhaps again. The kernel refuses a
    /// second answer with ENOENT, which is no failure. The answer is [`Reply::new(unique, operation,
    /// result)`](crate::wire::Reply::new).
    Answer {
        /// Its place, for [`Area::free`].
        entry: Entry,
        /// Number of the request.
        unique: u64,
        /// What was done.
        operation: Operation,
        /// Its result: success, or an error number.
        result: Result<(), i32>,
    },
    /// A question. It must be answered before the first call of [`Area::receive`].
    Question {
        /// Number of the request, for its answer.
        unique: u64,
        /// What is asked.
        question: Question,
    },
}

impl Area {
    /// Makes the memory of an area, without requests. Its pages are allocated when they are used.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory or no descriptors.
    pub fn create() -> io::Result<OwnedFd> {
        Self::create_of(Shape::default())
    }

    fn create_of(shape: Shape) -> io::Result<OwnedFd> {
        let memory = memfd_create("pumice-requests", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, shape.len_bytes() as u64)?;
        let head = shape.head();
        if pwrite(&memory, &head, 0)? != head.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        fcntl_add_seals(&memory, SIZE_SEALS | SealFlags::SEAL)?;
        Ok(memory)
    }

    /// Checks that a memory is an area: its seals, its head and its size. Nothing is mapped, and no page is
    /// allocated, so another process may be using it.
    ///
    /// # Errors
    ///
    /// With an [`AreaError`] if it is not one. What requests it has is known to [`Area::left`] alone.
    pub fn check(memory: &OwnedFd) -> io::Result<()> {
        Self::shape_of(memory).map(drop)
    }

    fn shape_of(memory: &OwnedFd) -> io::Result<Shape> {
        // Only of a memfd there are seals to ask for.
        if !fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SIZE_SEALS)) {
            return Err(AreaError::NotSealed.into());
        }
        let mut head = [0; HEAD_BYTES];
        if pread(memory, &mut head, 0)? != head.len() {
            return Err(AreaError::NotAnArea.into());
        }
        let shape = Shape::of_head(&head)?;
        if fstat(memory)?.st_size as u64 != shape.len_bytes() as u64 {
            return Err(AreaError::NotAnArea.into());
        }
        Ok(shape)
    }

    /// Maps an area. [`Area::left`] is to be called next. No other process, and nothing else of this one, may
    /// be using it.
    ///
    /// # Errors
    ///
    /// If it cannot be mapped, or with an [`AreaError`] if it is not one.
    pub fn open(memory: OwnedFd) -> io::Result<Area> {
        let shape = Self::shape_of(&memory)?;
        let memory = Memory::map(memory, shape)?;
        memory.populate(0..shape.table_bytes())?;
        Ok(Area {
            memory: Arc::new(memory),
            landing: None,
            holds: (0..shape.entries).map(|_| None).collect(),
            // None before it is known what was left.
            free_entries: Vec::new(),
            pages: vec![Pages::Unknown; shape.large.into()],
            is_open: false,
        })
    }

    /// Returns what the last server left. To be called first: nothing is received before, and a second
    /// call finds nothing. No other
    /// process may have the area mapped any more, or be within a system call for it.
    ///
    /// # Errors
    ///
    /// With an [`AreaError`] if the area is damaged.
    pub fn left(&mut self) -> io::Result<Vec<Left>> {
        let mut found = Vec::new();
        if std::mem::replace(&mut self.is_open, true) {
            return Ok(found);
        }
        let mut uniques = BTreeSet::new();
        for number in (0..self.holds.len()).rev() {
            let Some(kept) = Kept::load(&self.memory, number)? else {
                self.free_entries.push(number);
                continue;
            };
            if !uniques.insert(kept.unique) {
                return Err(AreaError::Damaged("a request is there twice").into());
            }
            found.push(self.found(number, kept)?);
        }
        #[cfg(test)]
        if self.memory.planted == Some(Planted::SkipsLanding) {
            return Ok(found);
        }
        found.extend(self.landed(&uniques)?);
        Ok(found)
    }

    /// An entry that was left.
    fn found(&mut self, number: usize, kept: Kept) -> Result<Left, AreaError> {
        let Kept { unique, operation, place, result } = kept;
        if let Some(place) = place {
            // Only one request has it.
            let hold = self.memory.hold(place).ok_or(AreaError::Damaged("two requests have one place"))?;
            self.holds[number] = Some(hold);
        }
        let entry = Entry { number, is_change: operation.is_change() };
        Ok(match result {
            Some(result) => Left::Answer { entry, unique, operation, result },
            None => Left::Request(self.taken(entry, unique, operation)),
        })
    }

    /// What was received last, if it is in no entry.
    fn landed(&mut self, uniques: &BTreeSet<u64>) -> io::Result<Option<Left>> {
        let Some(place) = self.memory.load(LANDING).checked_sub(1) else { return Ok(None) };
        let place = usize::try_from(place).map_err(|_| AreaError::Damaged("no place receives"))?;
        if self.holds.iter().flatten().any(|hold| hold.place() == place) {
            // It has become the data of a write.
            self.memory.store(LANDING, 0);
            return Ok(None);
        }
        let landing = self.memory.hold(place).and_then(Landing::new);
        let landing = landing.ok_or(AreaError::Damaged("no place receives"))?;
        let unique = landing.unique();
        // The kernel has written all of a message, or nothing.
        let length = landing.message(size_of::<u32>()).try_into().map_or(0, u32::from_ne_bytes);
        self.landing = Some(landing);
        if unique == 0 || uniques.contains(&unique) {
            self.clear_landing();
            return Ok(None);
        }
        Ok(match self.accept(length as usize)? {
            Received::Request(taken) => Some(Left::Request(taken)),
            Received::Question { unique, question } => Some(Left::Question { unique, question }),
            Received::Nothing => None,
        })
    }

    /// Receives one message. `read` reads from the device into the bytes that it is given.
    ///
    /// # Errors
    ///
    /// Those of `read` (`WouldBlock`: nothing is there; ENODEV: it is not mounted any more), and
    /// `OutOfMemory` without [room](Area::has_room).
    pub fn receive(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Received> {
        if !self.has_room() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (landing, is_new) = match self.landing.take() {
            Some(landing) => (landing, false),
            None => (self.memory.take_large().ok_or(io::ErrorKind::OutOfMemory)?, true),
        };
        let place = landing.place();
        let landing = self.landing.insert(landing);
        landing.clear();
        if is_new {
            self.memory.store(LANDING, place as u64 + 1);
        }
        let shape = self.memory.shape();
        let pages = &mut self.pages[place - usize::from(shape.small)];
        if *pages != Pages::Present {
            self.memory.populate(shape.place(place))?;
            *pages = Pages::Present;
        }
        match landing.fill(read) {
            Ok(length) => self.accept(length),
            Err(error) => {
                self.clear_landing();
                Err(error)
            }
        }
    }

    fn clear_landing(&mut self) {
        if let Some(landing) = &mut self.landing {
            landing.clear();
        }
    }

    /// Takes up the message that was received last.
    fn accept(&mut self, length: usize) -> io::Result<Received> {
        let Some(landing) = self.landing.take() else { return Ok(Received::Nothing) };
        let (unique, operation) = match parse(landing.message(length)) {
            Message::Request { unique, operation } => (unique, operation),
            // It is removed when the next one is received: it has been answered then.
            Message::Question { unique, question } => {
                self.landing = Some(landing);
                return Ok(Received::Question { unique, question });
            }
            Message::NoAnswer => {
                self.landing = Some(landing);
                self.clear_landing();
                return Ok(Received::Nothing);
            }
        };
        let number = self.free_entries.pop().ok_or(AreaError::Damaged("no entry is free"))?;
        let entry = Entry { number, is_change: operation.is_change() };
        let hold = match operation {
            Operation::Write { length, .. } if length as usize > SMALL_BYTES => landing.into_hold(),
            Operation::Write { .. } => {
                let data = &landing.message(length)[WRITE_HEADER_BYTES..];
                let hold = self.memory.take_small(data).ok_or(AreaError::Damaged("no place is free"))?;
                self.landing = Some(landing);
                hold
            }
            _ => {
                self.landing = Some(landing);
                self.keep(number, unique, operation, None);
                return Ok(Received::Request(self.taken(entry, unique, operation)));
            }
        };
        self.keep(number, unique, operation, Some(hold));
        Ok(Received::Request(self.taken(entry, unique, operation)))
    }

    /// Enters a request, and removes the message.
    fn keep(&mut self, number: usize, unique: u64, operation: Operation, hold: Option<Hold>) {
        #[cfg(test)]
        if self.memory.planted == Some(Planted::ClearsEarly) {
            self.clear_landing();
        }
        let place = hold.as_ref().map(Hold::place);
        self.holds[number] = hold;
        Kept { unique, operation, place, result: None }.store(&self.memory, number);
        match self.landing {
            Some(_) => self.clear_landing(),
            // The place has the data.
            None => self.memory.store(LANDING, 0),
        }
    }

    fn taken(&self, entry: Entry, unique: u64, operation: Operation) -> Taken {
        let payload = match (operation, &self.holds[entry.number]) {
            (Operation::Write { length, .. }, Some(hold)) => {
                Some(Payload { hold: hold.again(), len: length as usize })
            }
            _ => None,
        };
        Taken { unique, operation, entry, payload }
    }

    /// Returns whether there is room for one more request.
    pub fn has_room(&self) -> bool {
        let [small, large] = self.memory.has_free();
        !self.free_entries.is_empty() && small && (large || self.landing.is_some())
    }

    /// Records that a change was executed, with its result: success, or an error number. To be called before
    /// its answer is written to the device. Reads and flushes do not need it: they are executed again.
    pub fn done(&mut self, entry: &Entry, result: Result<(), i32>) {
        if entry.is_change {
            self.memory.store(self.memory.shape().entry_word(entry.number, STATE), done_state(result));
        }
    }

    /// Forgets a request. To be called after its answer was written to the device.
    pub fn free(&mut self, entry: Entry) {
        self.memory.store(self.memory.shape().entry_word(entry.number, STATE), FREE);
        self.holds[entry.number] = None;
        self.free_entries.push(entry.number);
    }

    /// Gives memory back that no request uses. For an idle drive.
    pub fn trim(&mut self) {
        let small = usize::from(self.memory.shape().small);
        let is_kept = |place: usize| place - small < IDLE_PLACES;
        // A question may still be there.
        if self.landing.as_ref().is_some_and(|landing| !is_kept(landing.place()) && landing.unique() == 0) {
            self.memory.store(LANDING, 0);
            self.landing = None;
        }
        for (number, pages) in self.pages.iter_mut().enumerate().skip(IDLE_PLACES) {
            // Without success they stay, which does no harm.
            if *pages != Pages::Absent && self.memory.punch(small + number).unwrap_or(false) {
                *pages = Pages::Absent;
            }
        }
    }
}

/// Number of requests in an area that another process may be using.
#[cfg(test)]
pub(crate) fn waiting(memory: &OwnedFd) -> usize {
    let (shape, mut table) = (Shape::default(), vec![0; Shape::default().table_bytes()]);
    assert_eq!(pread(memory, &mut table, 0).expect("a memory"), table.len());
    (0..shape.entries.into()).filter(|entry| table[shape.entry_word(*entry, STATE)] != 0).count()
}

impl Payload {
    /// The data. It is aligned to 4096 bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.hold.data(self.len)
    }
}
