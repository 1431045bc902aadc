//! Mistakes planted in what a killed run leaves, and in openings with it. Each has a story that ends well
//! without the mistake, and badly with it.

use crate::common::{Erased, create_options, erased};
use crate::faulty::{Faulty, Tasks, poll};

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use drive::{Drive, Error, Left, MEMORY_SHAPE, OpenOptions, Planted, PlantedBug};
use layout::memory::RunMemory;
use media::{Arena, IoBuf, Media};

const BLOCK: u64 = 4096;
const SIZE: u64 = 32 << 20;
/// Polls after which a request waits for nothing but what is held.
const POLLS: usize = 300;

/// A run of a drive that can be killed.
struct Life {
    media: Arc<Faulty>,
    tasks: Tasks,
    memory: Arena,
    drive: Drive<Erased>,
}

/// What a killed run leaves.
struct Killed {
    media: Arc<Faulty>,
    memory: Arena,
}

fn copy(media: &Faulty) -> Arc<Faulty> {
    let (tasks, copy) = (Tasks::default(), Arc::new(Faulty::new(SIZE)));
    tasks.run(copy.write(0, Arc::new(bytes(media)))).expect("a write");
    copy
}

fn bytes(media: &Faulty) -> IoBuf {
    let (bytes, read) = Tasks::default().run(media.read(0, IoBuf::zeroed(SIZE as usize)));
    read.expect("a read");
    bytes
}

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

impl Life {
    fn new(planted: Planted) -> Life {
        let media = Arc::new(Faulty::new(SIZE));
        Tasks::default().run(Drive::create(&*media, &create_options(SIZE, SIZE))).expect("create");
        Life::open(media, 1, &[], planted).expect("opened")
    }

    fn open(media: Arc<Faulty>, entropy: u64, left: &[&Arena], planted: Planted) -> Result<Life, Error> {
        let (tasks, memory) = (Tasks::default(), Arena::private(MEMORY_SHAPE).expect("an arena"));
        let mut options = OpenOptions::new(entropy, tasks.spawner());
        options.memory = Some(memory.clone());
        let copy = |memory: &&Arena| Arc::new(memory.snapshot().expect("a copy"));
        options.left_memories =
            left.iter().map(|memory| Left { memory: copy(memory), is_elsewhere: false }).collect();
        options.between_records = Some(between_records);
        options.planted = planted;
        let drive = tasks.run(Drive::open(erased(media.clone()), options))?;
        Ok(Life { media, tasks, memory, drive })
    }

    fn write(&self, blocks: Range<u64>, version: u64) {
        let data: Vec<u8> = blocks.clone().flat_map(|block| contents(block, version)).collect();
        self.tasks.run(self.drive.write(blocks.start * BLOCK, &data, false)).expect("a write");
    }

    fn flush(&self) {
        self.tasks.run(self.drive.flush()).expect("a flush");
    }

    fn holds(&self, mut blocks: Range<u64>, version: u64) -> Result<(), String> {
        let mut back = vec![0; BLOCK as usize];
        let wrong = blocks.find(|block| {
            let read = self.tasks.run(self.drive.read(block * BLOCK, &mut back));
            read.is_err() || back != contents(*block, version)
        });
        wrong.map_or(Ok(()), |block| Err(format!("block {block} is not of version {version}")))
    }

    fn kill(self) -> Killed {
        Killed { memory: self.memory.snapshot().expect("a copy"), media: copy(&self.media) }
    }
}

impl Killed {
    fn open(&self, planted: Planted) -> Result<Life, String> {
        Life::open(copy(&self.media), 9, &[&self.memory], planted).map_err(|error| error.to_string())
    }

    /// Returns the numbers of the sealed packs in the memory.
    fn sealed(&self) -> Vec<u64> {
        let bytes = self.memory.bytes();
        let memory = RunMemory::decode(&bytes).expect("a memory");
        memory.sealed.iter().map(|pack| pack.header.sequence).collect()
    }
}

fn is_found(bug: PlantedBug, story: fn(Planted) -> Result<(), String>) {
    assert_eq!(story(Planted::default()), Ok(()));
    if !Planted::IS_POSSIBLE {
        eprintln!("skipped: no mistakes can be planted in this build");
        return;
    }
    let found = story(Planted::new(Some(bug))).expect_err("a mistake that shows");
    eprintln!("{bug:?}: {found}");
}

/// A run leaves packs, and the next one does not see them. It has numbered its own alike when it is killed.
#[test]
fn a_memory_of_another_run() {
    is_found(PlantedBug::OtherRunTaken, |planted| {
        let life = Life::new(planted);
        life.media.hold_writes.store(true, SeqCst);
        (0..20).for_each(|part| life.write(part * 32..(part + 1) * 32, 1));
        let first = life.kill();
        assert!(first.sealed().len() > 5, "{:?}", first.sealed());
        let life = Life::open(first.media, 2, &[], planted).expect("opened");
        life.write(700..705, 2);
        let second = life.kill();
        let left = [&second.memory, &first.memory];
        let life = Life::open(second.media, 3, &left, planted).map_err(|error| error.to_string())?;
        life.holds(700..705, 2)
    });
}

/// A reader keeps a pack in memory that is written, and that a checkpoint has made unnecessary.
#[test]
fn packs_before_the_cut() {
    is_found(PlantedBug::CutOverlooked, |planted| {
        let life = Life::new(planted);
        life.write(0..1, 1);
        life.flush();
        life.media.hold_writes.store(true, SeqCst);
        life.write(1..2, 1);
        assert!(life.tasks.give_up(life.drive.flush(), POLLS).is_none());
        // It waits for the first block, and has the second.
        life.media.hold_reads.store(true, SeqCst);
        let mut back = vec![0; 2 * BLOCK as usize];
        let drive = life.drive.clone();
        let mut reading = Box::pin(drive.read(0, &mut back));
        assert!(poll(reading.as_mut()).is_none());
        life.media.hold_writes.store(false, SeqCst);
        life.flush();
        life.tasks.run(life.drive.checkpoint()).expect("a checkpoint");
        life.write(2..3, 1);
        life.media.hold_reads.store(false, SeqCst);
        let killed = life.kill();
        assert_eq!(killed.sealed().len(), 1, "{:?}", killed.sealed());
        killed.open(planted)?.holds(0..3, 1)
    });
}

/// The memory of a run meets a copy of the drive that is older.
#[test]
fn packs_written_before_they_are_judged() {
    is_found(PlantedBug::WrittenUnjudged, |planted| {
        let life = Life::new(planted);
        life.write(0..20, 1);
        life.flush();
        let older = copy(&life.media);
        life.write(10..40, 2);
        life.flush();
        life.write(30..50, 3);
        let killed = life.kill();
        let before = bytes(&older);
        let refused = Life::open(older.clone(), 2, &[&killed.memory], planted).map(drop);
        assert!(matches!(refused, Err(Error::Damaged(_))), "{refused:?}");
        match before[..] == bytes(&older)[..] {
            true => killed.open(planted)?.holds(30..50, 3),
            false => Err("something was written".into()),
        }
    });
}

/// A bit flips in the header of the newest pack on the medium, which is flushed.
#[test]
fn a_memory_that_is_not_believed() {
    is_found(PlantedBug::MemoryProvesNothing, |planted| {
        let life = Life::new(planted);
        life.write(0..8, 1);
        life.flush();
        let pack = life.media.attempts.lock().last().expect("a pack").start;
        life.write(8..9, 1);
        let killed = life.kill();
        crate::image::Image::of_any(&killed.media).flip_bit(pack + 60);
        killed.open(planted)?.holds(0..9, 1)
    });
}

/// The medium does not take a pack. Its contents are written elsewhere, and a checkpoint follows. The run is
/// killed after each step of that.
#[test]
fn a_pack_that_was_not_taken() {
    is_found(PlantedBug::FailedPackFreed, |planted| {
        for polls in 1..POLLS {
            let life = Life::new(planted);
            life.write(0..8, 1);
            life.flush();
            let end = life.media.attempts.lock().last().expect("a pack").end;
            life.media.unwritable.lock().push(end..end + BLOCK);
            life.write(8..16, 1);
            let is_flushed = life.tasks.give_up(life.drive.flush(), polls).is_some();
            if is_flushed {
                assert_eq!(life.drive.status().segments_bad_count, 1);
                return Ok(());
            }
            // Publishes what was given back.
            life.write(16..20, 1);
            life.kill().open(planted)?.holds(0..20, 1)?;
        }
        panic!("it is never flushed");
    });
}

thread_local! {
    /// The next pair of records panics.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

fn between_records() {
    if PANICS.take() {
        // Past the hook, so nothing is printed.
        resume_unwind(Box::new("on purpose"));
    }
}

/// A panic in the middle of a batch.
#[test]
fn half_a_batch_after_a_panic() {
    is_found(PlantedBug::PublishedAfterPanic, |planted| {
        let life = Life::new(planted);
        life.write(0..64, 1);
        PANICS.set(true);
        catch_unwind(AssertUnwindSafe(|| life.write(0..64, 2))).expect_err("a panic");
        let killed = life.kill();
        killed.open(planted)?.holds(0..64, 1)
    });
}
