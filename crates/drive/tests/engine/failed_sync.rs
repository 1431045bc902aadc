//! A sync fails on a backing behind a cache, then a restart, then a power cut. Everything that the drive
//! called durable after the restart survives, although the cache showed data that never reached the medium.

use crate::caching;
use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use caching::Caching;
use codec::testdata::{fio_like, random};
use common::{Erased, create_options, erased, run, spawner};
use drive::{CreateOptions, Drive, Error, MEMORY_SHAPE, OpenOptions, WipeOptions};
use layout::memory::SYNC_FAILED_AT;
use media::{Arena, IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 13 << 20;
const BLOCKS: u64 = 64;
/// More syncs than the first life takes.
const SYNCS_MAX: u64 = 40;
/// Cached pages that reach the medium at a power cut: none, or every other one.
const LUCK: [fn(usize) -> bool; 2] = [|_| false, |page| page % 2 == 0];

/// Version of each block: 0 for nothing, otherwise the number of a write.
type Versions = BTreeMap<u64, u64>;

/// Content of a block, which begins with the block number and the version.
fn contents(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = match version {
        0 => return vec![0; BLOCK as usize],
        _ if version.is_multiple_of(2) => random(block * 1000 + version, BLOCK as usize),
        _ => fio_like(block * 1000 + version, BLOCK as usize, 50),
    };
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn open(media: &Arc<Caching>, entropy: u64) -> Result<Drive<Erased>, Error> {
    run(Drive::open(erased(media.clone()), OpenOptions::new(entropy, spawner())))
}

/// Opens a drive and checks it.
fn open_sound(media: &Arc<Caching>, entropy: u64, when: &str) -> (Drive<Erased>, Versions) {
    let drive = open(media, entropy).unwrap_or_else(|error| panic!("{when}: {error}"));
    let versions = versions_of(&drive);
    assert_eq!(run(drive.check(true)).expect("check"), Vec::<String>::new(), "{when}");
    (drive, versions)
}

fn versions_of(drive: &Drive<Erased>) -> Versions {
    let mut back = vec![0; (BLOCKS * BLOCK) as usize];
    run(drive.read(0, &mut back)).expect("read");
    let version = |(block, bytes): (u64, &[u8])| {
        let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        assert!(bytes == contents(block, version), "block {block} holds nothing that was written there");
        (block, version)
    };
    (0..).zip(back.chunks(BLOCK as usize)).map(version).collect()
}

/// The first life of a drive.
struct Life {
    media: Arc<Caching>,
    /// Versions that were called durable, and versions that were written.
    durable: Versions,
    written: Versions,
    newest: u64,
    /// True if a sync failed.
    failed: bool,
}

impl Life {
    /// Creates a drive and uses it until the sync with this number, counted from its opening, fails.
    fn until(failing_sync: u64) -> Life {
        let media = Arc::new(Caching::new(PHYSICAL));
        let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, 64 << 20) };
        run(Drive::create(&*media, &options)).expect("create");
        let drive = open(&media, 1).expect("open");
        media.failing_sync.store(media.syncs.load(SeqCst) + failing_sync, SeqCst);
        let nothing: Versions = (0..BLOCKS).map(|block| (block, 0)).collect();
        let mut life = Life { media, durable: nothing.clone(), written: nothing, newest: 0, failed: false };
        life.failed = life.use_drive(&drive).is_err();
        life.media.failing_sync.store(u64::MAX, SeqCst);
        life
    }

    fn use_drive(&mut self, drive: &Drive<Erased>) -> Result<(), Error> {
        for step in 0..20 {
            for i in 0..3 {
                let block = (step * 7 + i * 11) % BLOCKS;
                self.newest += 1;
                run(drive.write(block * BLOCK, &contents(block, self.newest), false))?;
                self.written.insert(block, self.newest);
            }
            if step % 4 == 3 {
                run(drive.checkpoint())?;
            }
            if step % 6 == 5 {
                run(drive.set_logical_capacity((64 << 20) + step * (1 << 20)))?;
            }
            run(drive.flush())?;
            self.durable = self.written.clone();
        }
        run(drive.close())
    }

    /// Checks that each block has the version that was called durable, or the last one written.
    fn assert_explains(&self, found: &Versions, when: &str) {
        for (block, version) in found {
            let may_be = [self.durable[block], self.written[block]];
            assert!(may_be.contains(version), "{when}: block {block} has version {version}, not {may_be:?}");
        }
    }
}

#[test]
fn what_the_drive_showed_and_took_after_the_restart_survives_a_power_cut() {
    let mut failures = 0;
    for failing_sync in 0..SYNCS_MAX {
        let when = format!("sync {failing_sync} fails");
        let life = Life::until(failing_sync);
        failures += u64::from(life.failed);
        // The server is restarted. The cache is unchanged.
        let (drive, shown) = open_sound(&life.media, 2, &when);
        life.assert_explains(&shown, &when);
        // A power cut at once, and one after another durable write.
        let at_once = life.media.cut(LUCK[0]);
        run(drive.write(0, &contents(0, 1001), true)).expect("write");
        drop(drive);
        for (media, block_0) in [(at_once, shown[&0]), (life.media.cut(LUCK[0]), 1001)] {
            let (_, found) = open_sound(&media, 3, &format!("{when}, and a power cut"));
            let expected = Versions::from_iter(shown.clone().into_iter().chain([(0, block_0)]));
            assert_eq!(found, expected, "{when}, and a power cut");
        }
    }
    assert!(failures > 20, "{failures} failures");
}

#[test]
fn a_power_cut_while_the_drive_is_opened_again_loses_nothing() {
    for failing_sync in 0..SYNCS_MAX {
        let life = Life::until(failing_sync);
        let mut steps = 0;
        loop {
            let when = format!("sync {failing_sync} fails, {steps} steps of opening");
            let media = life.media.fork();
            media.steps_left.store(steps, SeqCst);
            let is_open = open(&media, 2).is_ok();
            for luck in LUCK {
                life.assert_explains(&open_sound(&media.cut(luck), 3, &when).1, &when);
            }
            if is_open {
                assert!(steps > 8, "{steps}");
                break;
            }
            steps += 1;
        }
    }
}

/// Another sync fails while the drive is opened, and it is opened a third time before the power is cut.
#[test]
fn a_sync_that_fails_while_the_drive_is_opened_again_loses_nothing() {
    for failing_sync in 0..SYNCS_MAX {
        let life = Life::until(failing_sync);
        for second in 0..8 {
            let when = format!("sync {failing_sync} fails, then {second} of opening");
            let media = life.media.fork();
            media.failing_sync.store(second, SeqCst);
            let _ = open(&media, 2);
            media.failing_sync.store(u64::MAX, SeqCst);
            let (_, shown) = open_sound(&media, 3, &when);
            life.assert_explains(&shown, &when);
            assert_eq!(open_sound(&media.cut(LUCK[0]), 4, &when).1, shown, "{when}");
        }
    }
}

/// A page that only the cache shows accepts no writes any more. Its content is written elsewhere, and is not
/// called durable before.
#[test]
fn a_page_that_takes_no_write_at_the_next_opening_loses_nothing() {
    let mut notes_counts = [0; 2];
    for life in (0..SYNCS_MAX).map(Life::until).filter(|life| life.failed) {
        for page in life.media.at_risk() {
            let mut steps = 0;
            loop {
                let when =
                    format!("life of {} writes, page {page} takes no write, {steps} steps", life.newest);
                let media = life.media.fork_unwritable(Some(page));
                media.steps_left.store(steps, SeqCst);
                let opened = open(&media, 2);
                for luck in LUCK {
                    life.assert_explains(&open_sound(&media.cut(luck), 3, &when).1, &when);
                }
                if let Ok(drive) = opened {
                    let status = drive.status();
                    let of_segment = "takes no writes and is not used any more";
                    let of_copy = "a copy of ";
                    let notes = |what| status.notes.iter().filter(|note| note.contains(what)).count();
                    notes_counts[0] += notes(of_segment);
                    notes_counts[1] += notes(of_copy);
                    assert!(notes(of_segment) + notes(of_copy) > 0, "{when}: {:?}", status.notes);
                    assert!(status.counters.write_errors_count > 0, "{when}");
                    assert_eq!(status.segments_bad_count as usize, notes(of_segment), "{when}");
                    break;
                }
                steps += 1;
            }
        }
    }
    assert!(notes_counts.iter().all(|notes_counts| *notes_counts > 10), "{notes_counts:?}");
}

#[test]
fn a_power_cut_during_a_wipe_leaves_the_drive_as_it_was_or_empty() {
    for failing_sync in 0..SYNCS_MAX {
        let life = Life::until(failing_sync);
        let (mut steps, mut emptied) = (0, 0);
        loop {
            let when = format!("sync {failing_sync} fails, {steps} steps of a wipe");
            let media = life.media.fork();
            media.steps_left.store(steps, SeqCst);
            let is_wiped = run(Drive::wipe(&*media, WipeOptions::any())).is_ok();
            for luck in LUCK {
                let (_, found) = open_sound(&media.cut(luck), 3, &when);
                let is_empty = found.values().all(|version| *version == 0);
                assert!(!is_wiped || is_empty, "{when}: it was wiped");
                if !is_empty {
                    life.assert_explains(&found, &when);
                }
                emptied += u64::from(is_empty);
            }
            if is_wiped {
                assert!(steps > 6 && emptied > 0, "{steps} steps, {emptied} empty");
                break;
            }
            steps += 1;
        }
    }
}

/// Creates a drive on which every block has version 2.
fn written() -> (Arc<Caching>, Drive<Erased>) {
    let media = Arc::new(Caching::new(PHYSICAL));
    run(Drive::create(
        &*media,
        &CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, BLOCKS * BLOCK) },
    ))
    .expect("create");
    let drive = open(&media, 1).expect("open");
    for block in 0..BLOCKS {
        run(drive.write(block * BLOCK, &contents(block, 2), true)).expect("write");
    }
    (media, drive)
}

/// The check is done like `pumice check`: nothing is written.
#[test]
fn a_check_finds_no_fault_in_what_a_wipe_that_was_cut_short_leaves() {
    let (media, drive) = written();
    run(drive.close()).expect("close");
    let (mut steps, mut is_wiped) = (0, false);
    while !is_wiped {
        let media = media.fork();
        media.steps_left.store(steps, SeqCst);
        is_wiped = run(Drive::wipe(&*media, WipeOptions::any())).is_ok();
        // After a power cut, and after a kill. (A copy that a power cut leaves partly written would be
        // reported.)
        for left in [media.cut(|_| false), media.fork()] {
            let opening = OpenOptions { read_only: true, ..OpenOptions::new(3, spawner()) };
            let drive = run(Drive::open(erased(left), opening)).expect("open");
            let faults = run(drive.check(true)).expect("check");
            assert_eq!(faults, Vec::<String>::new(), "after {steps} steps of a wipe");
        }
        steps += 1;
    }
    assert!(steps > 6, "{steps}");
}

#[test]
fn an_opening_without_room_to_write_the_log_again_sets_nothing_aside() {
    let (media, drive) = written();
    drop(drive);
    let mut refused = 0;
    for room in 0..200 {
        let full = media.fork();
        full.room.store(room, SeqCst);
        match open(&full, 2) {
            Err(Error::BackingFull) => refused += 1,
            Err(error) => panic!("room for {room} writes: {error}"),
            Ok(_) => break,
        }
        // The backing has space again.
        let (drive, versions) = open_sound(&full.fork(), 3, &format!("room for {room} writes"));
        assert!(versions.iter().all(|(_, version)| *version == 2) && versions.len() as u64 == BLOCKS);
        let status = drive.status();
        assert_eq!((status.segments_bad_count, status.notes), (0, vec![]), "room for {room} writes");
    }
    assert!((5..200).contains(&refused), "{refused}");
}

/// A wipe that returns an error has not wiped the drive. A wipe that succeeds has, even if it lacked space
/// for some writes.
#[test]
fn a_wipe_without_room_is_done_or_not_as_it_says() {
    let (media, drive) = written();
    run(drive.close()).expect("close");
    let mut answers = Vec::new();
    for room in 0..12 {
        let full = media.fork();
        full.room.store(room, SeqCst);
        let answer = run(Drive::wipe(&*full, WipeOptions::any()));
        // The backing has space again.
        let (_, versions) = open_sound(&full.fork(), 3, &format!("room for {room} writes"));
        let left = versions.iter().filter(|(_, version)| **version == 2).count() as u64;
        assert_eq!(left, if answer.is_ok() { 0 } else { BLOCKS }, "room for {room} writes: {answer:?}");
        answers.push(answer.map(|wiped| wiped.not_taken.len()));
    }
    assert_eq!(answers.first(), Some(&Err(Error::BackingFull)));
    assert_eq!(answers.last(), Some(&Ok(0)));
    assert!(answers.iter().flatten().any(|not_taken| *not_taken > 1), "{answers:?}");
}

/// The memory of a run that the newest checkpoint may name is no garbage, although its opening has failed.
#[test]
fn an_opening_that_fails_tells_whether_a_checkpoint_may_name_it() {
    const ENTROPY: u64 = 0x5eed_0f0a_0ced_1234;
    let is_named = |media: &Arc<Caching>| {
        let (bytes, read) = run(media.read(0, IoBuf::zeroed(1 << 20)));
        read.expect("read");
        bytes.chunks_exact(BLOCK as usize).any(|page| page[96..104] == ENTROPY.to_le_bytes())
    };
    let life = Life::until(9);
    let (mut before, mut unnamed, mut named) = (0, 0, 0);
    for steps in 0.. {
        let media = life.media.fork();
        media.steps_left.store(steps, SeqCst);
        let options = OpenOptions::new(ENTROPY, spawner());
        let begun = options.begun.clone();
        if run(Drive::open(erased(media.clone()), options)).is_ok() {
            break;
        }
        match (begun.load(SeqCst), is_named(&media)) {
            (false, true) => panic!("{steps} steps: a checkpoint names a run that had not begun"),
            (false, false) => before += 1,
            (true, false) => unnamed += 1,
            (true, true) => named += 1,
        }
    }
    assert!(before > 0 && unnamed > 0 && named > 0, "{before}, {unnamed}, {named}");
}

/// A memory says that a sync failed, before any request hears of it.
#[test]
fn a_memory_tells_of_a_failed_sync() {
    let life = Life::until(9);
    let media = life.media.fork();
    let memory = Arena::private(MEMORY_SHAPE).expect("an arena");
    let options = OpenOptions { memory: Some(memory.clone()), ..OpenOptions::new(7, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("opened");
    let word = || u64::from_le_bytes(memory.bytes()[SYNC_FAILED_AT..][..8].try_into().expect("a word"));
    run(drive.write(0, &contents(0, 2), true)).expect("a write");
    assert_eq!(word(), 0);
    media.failing_sync.store(media.syncs.load(SeqCst), SeqCst);
    run(drive.write(0, &contents(0, 3), true)).expect_err("its sync fails");
    assert_eq!(word(), 1);
}
