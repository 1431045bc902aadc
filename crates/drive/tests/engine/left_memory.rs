//! Opening with the memory that a killed run left: all that was acknowledged is there, or the memory is
//! refused and nothing was written.

use std::sync::Arc;

use drive::{Drive, Error, Left, MEMORY_SHAPE, OpenOptions};
use layout::memory::{LAPSED_AT, OPENINGS_AT};
use media::{Arena, IoBuf, Media, MemoryMedia};

use crate::common::{Erased, create_options, erased, run, spawner};

const BLOCK: u64 = 4096;
const SIZE: u64 = 32 << 20;

fn new_media() -> Arc<MemoryMedia> {
    let media = Arc::new(MemoryMedia::new(SIZE));
    run(Drive::create(&*media, &create_options(SIZE, SIZE))).expect("create");
    media
}

fn memory() -> Arena {
    Arena::private(MEMORY_SHAPE).expect("an arena")
}

fn open(
    media: &Arc<MemoryMedia>,
    entropy: u64,
    memory: &Arena,
    left: &[Left],
) -> Result<Drive<Erased>, Error> {
    let mut options = OpenOptions::new(entropy, spawner());
    options.memory = Some(memory.clone());
    options.left_memories = left.to_vec();
    run(Drive::open(erased(media.clone()), options))
}

/// What the next process finds.
fn left(memory: &Arena) -> Left {
    Left { arena: memory.snapshot().expect("a copy"), is_elsewhere: false }
}

fn bytes(media: &MemoryMedia) -> IoBuf {
    let (bytes, read) = run(media.read(0, IoBuf::zeroed(SIZE as usize)));
    read.expect("a read");
    bytes
}

fn copy(media: &MemoryMedia) -> Arc<MemoryMedia> {
    let copy = Arc::new(MemoryMedia::new(SIZE));
    run(copy.write(0, Arc::new(bytes(media)))).expect("a write");
    copy
}

fn content(block: u64, version: u8) -> Vec<u8> {
    let mut data = codec::testdata::random(block, BLOCK as usize);
    data[0] = version;
    data
}

fn write(drive: &Drive<Erased>, blocks: std::ops::Range<u64>, version: u8) {
    for block in blocks {
        run(drive.write(block * BLOCK, &content(block, version), false)).expect("a write");
    }
}

fn holds(drive: &Drive<Erased>, blocks: std::ops::Range<u64>, version: u8) {
    for block in blocks {
        let mut back = vec![0; BLOCK as usize];
        run(drive.read(block * BLOCK, &mut back)).expect("a read");
        assert!(back == content(block, version), "block {block} of version {version}");
    }
}

/// A drive whose newest blocks are in memory only, as a kill leaves it: backing, an older copy, memory.
fn killed() -> (Arc<MemoryMedia>, Arc<MemoryMedia>, Left) {
    let (media, memory) = (new_media(), memory());
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    run(drive.flush()).expect("a flush");
    let older = copy(&media);
    write(&drive, 10..300, 2);
    run(drive.flush()).expect("a flush");
    write(&drive, 295..310, 3);
    let left = left(&memory);
    (media, older, left)
}

fn refused(media: &Arc<MemoryMedia>, left: &Left) -> String {
    let before = bytes(media);
    let Err(Error::LeftMemory(why)) = open(media, 2, &memory(), std::slice::from_ref(left)).map(drop) else {
        panic!("the memory was used")
    };
    assert!(before[..] == bytes(media)[..], "something was written");
    why
}

#[test]
fn what_was_not_flushed_is_there() {
    let (media, _, left) = killed();
    for entropy in 2..5 {
        // An opening that is killed leaves the memory as it was.
        let drive = open(&copy(&media), entropy, &memory(), std::slice::from_ref(&left)).expect("opened");
        holds(&drive, 0..10, 1);
        holds(&drive, 10..295, 2);
        holds(&drive, 295..310, 3);
    }
    let second = memory();
    let drive = open(&media, 5, &second, std::slice::from_ref(&left)).expect("opened");
    // It was taken over, and is silently passed over.
    write(&drive, 305..320, 4);
    let both = [left, self::left(&second)];
    drop(drive);
    let drive = open(&media, 6, &memory(), &both).expect("opened");
    holds(&drive, 295..305, 3);
    holds(&drive, 305..320, 4);
    assert_eq!(run(drive.check(true)).expect("a check"), Vec::<String>::new());
}

#[test]
fn a_look_sees_it_and_writes_nothing() {
    let (media, _, left) = killed();
    let before = bytes(&media);
    let mut options = OpenOptions::new(2, spawner());
    (options.read_only, options.left_memories) = (true, vec![left]);
    let drive = run(Drive::open(erased(media.clone()), options)).expect("opened");
    holds(&drive, 295..310, 3);
    assert_eq!(run(drive.check(true)).expect("a check"), Vec::<String>::new());
    assert!(before[..] == bytes(&media)[..], "something was written");
}

#[test]
fn an_older_copy_of_the_drive_is_not_written_to() {
    let (media, older, left) = killed();
    let why = refused(&older, &left);
    assert!(why.contains("the log on the backing"), "{why}");
    let drive = open(&media, 3, &memory(), &[left]).expect("opened");
    holds(&drive, 295..310, 3);
}

#[test]
fn a_drive_that_was_opened_since_is_not_written_to() {
    let (media, _, left) = killed();
    drop(open(&media, 2, &memory(), &[]).expect("opened"));
    let why = refused(&media, &left);
    assert!(why.contains("opened elsewhere"), "{why}");
}

#[test]
fn a_memory_that_is_not_whole_is_refused() {
    let (media, _, left) = killed();
    let put = |at: usize, word: u64| {
        let left = self::left(&left.arena);
        left.arena.store(at, word);
        left
    };
    assert!(refused(&media, &put(LAPSED_AT, 1)).contains("too small"));
    assert!(refused(&media, &put(OPENINGS_AT, 3)).contains("3 openings"));
    assert!(refused(&media, &put(48, 99)).contains("checksum"));
    let drive = open(&media, 3, &memory(), &[left]).expect("opened");
    holds(&drive, 295..310, 3);
}

#[test]
fn a_copy_gets_what_its_original_acknowledged_and_takes_nothing_from_it() {
    let (media, older, left) = killed();
    let elsewhere = Left { is_elsewhere: true, ..left.clone() };
    let drive = open(&copy(&media), 2, &memory(), std::slice::from_ref(&elsewhere)).expect("opened");
    holds(&drive, 295..310, 3);
    // One that is older is opened as it is.
    let drive = open(&older, 3, &memory(), &[elsewhere]).expect("opened");
    holds(&drive, 0..20, 1);
    let drive = open(&media, 4, &memory(), &[left]).expect("opened");
    holds(&drive, 295..310, 3);
}

#[test]
fn memories_of_another_boot_or_drive_are_none() {
    let (media, _, left) = killed();
    let other = Arc::new(MemoryMedia::new(SIZE));
    let create = drive::CreateOptions { uuid: [8; 16], ..create_options(SIZE, SIZE) };
    run(Drive::create(&*other, &create)).expect("create");
    drop(open(&other, 2, &memory(), std::slice::from_ref(&left)).expect("opened"));
    let mut options = OpenOptions::new(3, spawner());
    (options.boot, options.left_memories) = ([9; 16], vec![left]);
    let drive = run(Drive::open(erased(media), options)).expect("opened");
    holds(&drive, 20..295, 2);
}
