//! Opening with the memory that a killed run left: all that was acknowledged is there, or the memory is
//! refused and nothing was written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use drive::{Drive, Error, KeptMemory, Left, MEMORY_SHAPE, OpenOptions, Verdict};
use layout::memory::{CHECKPOINT_AT, DURABLE_AT, LAPSED_AT, OPENINGS_AT, SYNC_FAILED_AT};
use layout::{Head, PAGE_BYTES, PackHeader};
use media::{Arena, IoBuf, Media, MemoryMedia};
use parking_lot::Mutex;

use crate::common::{Erased, create_options, erased, run, spawner};
use crate::faulty::Faulty;
use crate::image::Image;

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
    Left { memory: Arc::new(memory.snapshot().expect("a copy")), is_elsewhere: false }
}

/// A memory as it was left, but for one word.
fn with_word(left: &Left, at: usize, word: u64) -> Left {
    let file = Kept { bytes: left.memory.bytes().expect("bytes").into(), verdict: Mutex::default() };
    file.store(at, word).expect("stored");
    Left { memory: Arc::new(file), is_elsewhere: left.is_elsewhere }
}

/// A memory that is not mapped, as that of a server.
struct Kept {
    bytes: Mutex<Vec<u8>>,
    verdict: Mutex<Option<Verdict>>,
}

impl KeptMemory for Kept {
    fn bytes(&self) -> io::Result<Vec<u8>> {
        Ok(self.bytes.lock().clone())
    }

    fn store(&self, at: usize, word: u64) -> io::Result<()> {
        self.bytes.lock()[at..at + 8].copy_from_slice(&word.to_le_bytes());
        Ok(())
    }

    fn judged(&self, verdict: Verdict) {
        *self.verdict.lock() = Some(verdict);
    }
}

impl Kept {
    fn of(memory: &Arena) -> Arc<Kept> {
        Arc::new(Kept { bytes: memory.bytes().into(), verdict: Mutex::default() })
    }
}

fn lefts(memories: &[&Arc<Kept>]) -> Vec<Left> {
    memories.iter().map(|memory| Left { memory: (*memory).clone(), is_elsewhere: false }).collect()
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

/// Why a drive is damaged that lacks what a memory says was durable. Nothing is written, and whoever accepts
/// the damage sees what is left.
fn damaged(media: &Arc<MemoryMedia>, left: &Left) -> String {
    let before = bytes(media);
    let kept =
        Arc::new(Kept { bytes: left.memory.bytes().expect("bytes").into(), verdict: Mutex::default() });
    let Err(Error::Damaged(why)) = open(media, 2, &memory(), &lefts(&[&kept])).map(drop) else {
        panic!("it was opened")
    };
    assert_eq!(*kept.verdict.lock(), Some(Verdict::Contradicts));
    let mut options = OpenOptions { read_only: true, ..OpenOptions::new(2, spawner()) };
    options.left_memories = lefts(&[&kept]);
    let looked = run(Drive::open(erased(media.clone()), options.clone())).map(drop);
    assert_eq!(looked, Err(Error::Damaged(why.clone())));
    options.accept_damage = true;
    let drive = run(Drive::open(erased(media.clone()), options)).expect("what is left");
    assert!(matches!(drive.status().state, drive::State::Damaged(_)), "{:?}", drive.status().state);
    assert!(before[..] == bytes(media)[..], "something was written");
    why
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
    let why = damaged(&older, &left);
    assert!(why.contains("or an older copy"), "{why}");
    let drive = open(&media, 3, &memory(), &[left]).expect("opened");
    holds(&drive, 295..310, 3);
}

/// As a disk leaves it that lost its cache.
#[test]
fn a_backing_that_lacks_only_what_was_not_flushed_is_not_damaged() {
    let (media, memory) = (new_media(), memory());
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    run(drive.flush()).expect("a flush");
    let older = copy(&media);
    // Several packs, of which all but the last are written.
    write(&drive, 20..600, 1);
    let why = refused(&older, &left(&memory));
    assert!(why.contains("the log on the backing"), "{why}");
    holds(&open(&media, 2, &self::memory(), &[left(&memory)]).expect("opened"), 0..600, 1);
}

/// The place of the open pack was never written, and what it held before cannot be read any more.
#[test]
fn places_of_packs_in_the_memory_need_not_be_readable() {
    let (media, _, left) = killed();
    let bytes = bytes(&media);
    let packs = bytes.chunks_exact(PAGE_BYTES).zip(0..).filter_map(|(page, at)| {
        let header = PackHeader::decode(page).ok()?;
        (header.head == Head::Host)
            .then_some((header.sequence, at * PAGE_BYTES as u64 + u64::from(header.len)))
    });
    let (_, behind) = packs.max().expect("a pack of the host");
    let faulty = Arc::new(Faulty::holding(bytes.to_vec()));
    faulty.lost.lock().push(behind..behind + PAGE_BYTES as u64);
    faulty.heals.store(true, SeqCst);
    let mut options = OpenOptions::new(2, spawner());
    (options.memory, options.left_memories) = (Some(memory()), vec![left]);
    let drive = run(Drive::open(erased(faulty), options)).expect("opened");
    holds(&drive, 295..310, 3);
    holds(&drive, 20..295, 2);
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
    let put = |at: usize, word: u64| with_word(&left, at, word);
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
    assert_eq!(drive.status().runs, [2, 1]);
    // One that is older is opened as it is, and does not pass for the next state.
    let drive = open(&older, 3, &memory(), &[elsewhere]).expect("opened");
    holds(&drive, 0..20, 1);
    assert_eq!(drive.status().runs, [3, !1]);
    let drive = open(&media, 4, &memory(), &[left]).expect("opened");
    holds(&drive, 295..310, 3);
    assert_eq!(drive.status().runs, [4, 1]);
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

#[test]
fn a_memory_that_is_gone_is_missed_where_something_is_lost_with_it() {
    let boot = [5; 16];
    for (write_cache, is_missed) in [(true, true), (false, false)] {
        let media = new_media();
        let options = |entropy| OpenOptions { boot, write_cache, ..OpenOptions::new(entropy, spawner()) };
        let with_memory = OpenOptions { memory: Some(memory()), ..options(1) };
        let drive = run(Drive::open(erased(media.clone()), with_memory)).expect("opened");
        write(&drive, 0..20, 1);
        assert!(!drive.misses_memory());
        let left = copy(&media);
        let needs = OpenOptions { needs_memory: true, ..options(2) };
        let refused = run(Drive::open(erased(copy(&left)), needs));
        assert_eq!(matches!(&refused, Err(Error::LeftMemory(why)) if why.contains("gone")), is_missed);
        let next = run(Drive::open(erased(left.clone()), options(2))).expect("opened");
        assert_eq!(next.misses_memory(), is_missed);
        // That one had none that could be missed.
        drop(next);
        assert!(!run(Drive::open(erased(copy(&left)), options(3))).expect("opened").misses_memory());
        // Another boot is a power cut.
        let other = OpenOptions { boot: [6; 16], ..options(2) };
        assert!(!run(Drive::open(erased(copy(&media)), other)).expect("opened").misses_memory());
        run(drive.close()).expect("closed");
        assert!(!run(Drive::open(erased(media), options(4))).expect("opened").misses_memory());
    }
}

#[test]
fn only_what_nobody_needs_is_over_and_only_what_stops_an_opening_is_refused() {
    let (media, memory) = (new_media(), memory());
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    let good = Kept::of(&memory);
    // Killed before it began: the magic number is missing. And one that began, and acknowledged nothing.
    let unborn = Kept::of(&memory);
    unborn.store(0, 0).expect("stored");
    let early = Kept::of(&memory);
    early.store(CHECKPOINT_AT, 0).expect("stored");
    early.store(48, 77).expect("stored");
    let crc = crc32c::crc32c(&early.bytes.lock()[16..72]);
    early.bytes.lock()[12..16].copy_from_slice(&crc.to_le_bytes());
    let broken = Kept::of(&memory);
    broken.store(48, 99).expect("stored");
    let dead = copy(&media);
    let error = open(&dead, 2, &self::memory(), &lefts(&[&unborn, &early, &broken])).map(drop);
    assert!(matches!(error, Err(Error::LeftMemory(_))), "{error:?}");
    let verdict = |memory: &Arc<Kept>| *memory.verdict.lock();
    assert_eq!([&unborn, &early].map(verdict), [Some(Verdict::Over); 2]);
    assert_eq!(verdict(&broken), Some(Verdict::Refused));
    // One that is whole is used, whatever lies beside it.
    let again = open(&dead, 3, &self::memory(), &lefts(&[&broken, &good])).expect("opened");
    holds(&again, 0..20, 1);
    assert_eq!(verdict(&good), None, "it was used");
    run(again.close()).expect("closed");
    // A closed drive needs none.
    drop(open(&dead, 4, &self::memory(), &lefts(&[&broken])).expect("opened"));
}

/// A pack of blocks 0 to 19 that was flushed and that nothing on the backing calls durable: its place, and
/// what a kill leaves. The memory holds block 20, which came later.
fn flushed_last() -> (Arc<MemoryMedia>, u64, Left) {
    let (media, memory) = (new_media(), memory());
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    run(drive.flush()).expect("a flush");
    write(&drive, 20..21, 1);
    let (pack, _) = Image::of(&media).packs().pop().expect("a pack");
    (media, pack, left(&memory))
}

#[test]
fn a_bit_that_flips_in_what_only_the_memory_vouches_for_is_mended() {
    for at in [0, 8, 30, 60, 100, 112, 125] {
        for (is_elsewhere, read_only) in [(false, false), (false, true), (true, false)] {
            let (media, pack, left) = flushed_last();
            let left = Left { is_elsewhere, ..left };
            Image::of(&media).flip_bit(pack + at);
            let options =
                OpenOptions { left_memories: vec![left], read_only, ..OpenOptions::new(2, spawner()) };
            let drive = run(Drive::open(erased(media.clone()), options));
            let drive =
                drive.unwrap_or_else(|error| panic!("byte {at}, {is_elsewhere}, {read_only}: {error}"));
            holds(&drive, 0..21, 1);
            let notes = drive.status().notes;
            assert!(notes.iter().any(|note| note.contains("a bit had flipped")), "{notes:?}");
            assert_eq!(run(drive.check(true)).expect("a check"), Vec::<String>::new());
            if !read_only {
                drop(drive);
                holds(&open(&media, 3, &memory(), &[]).expect("opened"), 0..21, 1);
            }
        }
    }
}

#[test]
fn flushed_data_that_only_the_memory_misses_is_damage() {
    let (media, pack, left) = flushed_last();
    Image::of(&media).zero(pack, BLOCK as usize);
    // Also of a memory that lacks something else.
    let lapsed = with_word(&left, LAPSED_AT, 1);
    for left in [&left, &lapsed] {
        let why = damaged(&media, left);
        assert!(why.contains("the memory of the killed server says everything up to"), "{why}");
    }
    // A memory that an older program wrote does not say what is durable.
    let why = refused(&media, &with_word(&left, DURABLE_AT, 0));
    assert!(why.contains("the log on the backing"), "{why}");
}

#[test]
fn data_that_is_damaged_in_what_only_the_memory_vouches_for_is_all_that_is_lost() {
    let (media, pack, left) = flushed_last();
    Image::of(&media).flip_bit(pack + 3 * BLOCK);
    let drive = open(&media, 2, &memory(), &[left]).expect("opened");
    assert_eq!(drive.status().recovered.damaged_records_count, 1);
    let mut back = vec![0; BLOCK as usize];
    let lost = (0..21).filter(|block| run(drive.read(block * BLOCK, &mut back)).is_err()).count();
    assert_eq!(lost, 1);
    holds(&drive, 20..21, 1);
}

/// A failed sync may lose what was written before it. The memory does not prove that it was there, and what
/// was durable before stays as it was.
#[test]
fn what_a_failed_sync_has_torn_replaces_nothing() {
    let (media, memory) = (new_media(), memory());
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    run(drive.flush()).expect("a flush");
    let durable = u64::from_le_bytes(memory.bytes()[DURABLE_AT..][..8].try_into().expect("a word"));
    write(&drive, 0..20, 2);
    run(drive.flush()).expect("a flush");
    write(&drive, 20..21, 1);
    let (pack, _) = Image::of(&media).packs().pop().expect("a pack");
    // As if the second flush had failed.
    let written = with_word(&left(&memory), DURABLE_AT, durable);
    let failed = with_word(&written, SYNC_FAILED_AT, 1);
    Image::of(&media).flip_bit(pack + 3 * BLOCK);
    let why = refused(&media, &failed);
    assert!(why.contains("the log on the backing"), "{why}");
    let drive = open(&media, 3, &self::memory(), &[]).expect("opened");
    assert_eq!(drive.status().recovered.damaged_records_count, 0);
    holds(&drive, 0..20, 1);
}

#[test]
fn a_durable_checkpoint_that_is_missing_is_damage() {
    let (media, memory) = (new_media(), memory());
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    run(drive.flush()).expect("a flush");
    let older = copy(&media);
    run(drive.checkpoint()).expect("a checkpoint");
    write(&drive, 20..21, 1);
    let why = damaged(&older, &left(&memory));
    assert!(why.contains("knows checkpoint"), "{why}");
}

/// Its newest checkpoint is of a run before that of the memory, also if nothing is in that memory.
#[test]
fn an_older_copy_of_a_closed_drive_is_damage() {
    let media = new_media();
    let drive = open(&media, 1, &memory(), &[]).expect("opened");
    write(&drive, 0..20, 1);
    run(drive.close()).expect("closed");
    drop(drive);
    let older = copy(&media);
    let memory = memory();
    let drive = open(&media, 2, &memory, &[]).expect("opened");
    write(&drive, 0..20, 2);
    run(drive.flush()).expect("a flush");
    run(drive.checkpoint()).expect("a checkpoint");
    let why = damaged(&older, &left(&memory));
    assert!(why.contains("of an earlier run"), "{why}");
    write(&drive, 20..21, 2);
    let kept = left(&memory);
    let why = damaged(&older, &kept);
    assert!(why.contains("of an earlier run"), "{why}");
    // One that has gone on by itself since: its run has begun where that of the memory did.
    drop(open(&older, 3, &self::memory(), &[]).expect("opened"));
    let why = damaged(&older, &kept);
    assert!(why.contains("of an earlier run"), "{why}");
    let drive = open(&media, 4, &self::memory(), &[kept]).expect("opened");
    holds(&drive, 0..21, 2);
}

/// No run has written its checkpoint, and none has taken the memory.
#[test]
fn a_copy_of_the_new_drive_is_damage() {
    let (media, memory) = (new_media(), memory());
    let new = copy(&media);
    let drive = open(&media, 1, &memory, &[]).expect("opened");
    write(&drive, 0..20, 1);
    let why = damaged(&new, &left(&memory));
    assert!(why.contains("of an earlier run"), "{why}");
}

#[test]
fn a_copy_says_what_it_lacks() {
    let (media, older, left) = killed();
    let elsewhere = Left { is_elsewhere: true, ..left };
    let note = |drive: &Drive<Erased>| {
        drive
            .status()
            .notes
            .iter()
            .any(|note| note.contains("another backing") && note.contains("older copy"))
    };
    // Not below a device.
    let mut options = OpenOptions { needs_memory: true, ..OpenOptions::new(2, spawner()) };
    options.left_memories = vec![elsewhere.clone()];
    let before = bytes(&older);
    let refused = run(Drive::open(erased(older.clone()), options)).map(drop);
    assert!(matches!(&refused, Err(Error::LeftMemory(why)) if why.contains("does not fit")), "{refused:?}");
    assert!(before[..] == bytes(&older)[..], "something was written");
    let drive = open(&older, 2, &memory(), std::slice::from_ref(&elsewhere)).expect("opened");
    assert!(note(&drive), "{:?}", drive.status().notes);
    let drive = open(&media, 3, &memory(), &[elsewhere]).expect("opened");
    assert!(!note(&drive), "{:?}", drive.status().notes);
}
