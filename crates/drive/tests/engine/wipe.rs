//! Factory reset.

use crate::common;
use crate::image;
use std::ops::ControlFlow::{Break, Continue};

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, erased, new_drive, open, run, spawner};
use drive::{CopyState, Drive, Error, OpenOptions, WipeOptions, WipeTarget, find_copies};
use image::Image;
use layout::RecordKind;
use media::{IoBuf, Media, MemoryMedia};

const MIB: u64 = 1 << 20;

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * 4096, &random(block, 4096), false)).expect("write");
}

fn block(drive: &Drive<Erased>, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    run(drive.read(block * 4096, &mut bytes)).expect("read");
    bytes
}

fn wipe(media: &Arc<MemoryMedia>) {
    run(Drive::wipe(&**media, WipeOptions::any())).expect("wipe");
}

#[test]
fn data_and_statistics_go_identity_and_wear_stay() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    (0..1000).for_each(|b| write(&drive, b));
    // The last checkpoint counts what was written before its cut.
    let before = drive.status();
    run(drive.close()).expect("close");
    wipe(&media);
    let drive = open(&media, 2);
    let after = drive.status();
    assert_eq!((after.uuid, after.logical_capacity_bytes), (before.uuid, 128 * MIB));
    assert_eq!((after.logical_used_bytes, after.counters.host_written_bytes), (0, 0));
    assert!(after.lifetime_written_bytes >= before.counters.physical_written_bytes);
    assert!((0..1000).all(|b| block(&drive, b) == [0; 4096]));
    assert_sound(&drive);
    // The drive works.
    write(&drive, 3);
    run(drive.close()).expect("close");
    let drive = open(&media, 3);
    assert!(block(&drive, 3) == random(3, 4096) && block(&drive, 4) == [0; 4096]);
    assert!(drive.status().lifetime_written_bytes > after.lifetime_written_bytes);
}

#[test]
fn wear_adds_up_over_several_wipes() {
    let (media, drive) = new_drive(32 * MIB, 64 * MIB);
    write(&drive, 0);
    run(drive.close()).expect("close");
    drop(drive);
    let mut last = 0;
    for round in 0..3 {
        wipe(&media);
        let drive = open(&media, round + 2);
        write(&drive, round);
        run(drive.close()).expect("close");
        let worn = drive.status().lifetime_written_bytes;
        assert!(worn > last);
        last = worn;
    }
}

#[test]
fn a_log_that_was_not_closed_is_wiped_with_the_rest() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    (0..1000).for_each(|b| write(&drive, b));
    run(drive.flush()).expect("flush");
    drop(drive);
    wipe(&media);
    let drive = open(&media, 2);
    assert!((0..1000).all(|b| block(&drive, b) == [0; 4096]));
}

#[test]
fn sector_size_and_capacity_may_change_with_it() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    run(drive.close()).expect("close");
    let options = WipeOptions {
        sector_bytes: Some(4096),
        logical_capacity_bytes: Some(32 * MIB),
        ..WipeOptions::any()
    };
    run(Drive::wipe(&*media, options)).expect("wipe");
    let drive = open(&media, 2);
    assert_eq!((drive.sector_bytes(), drive.logical_capacity_bytes()), (4096, 32 * MIB));
}

#[test]
fn options_that_cannot_be_wipe_nothing() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    write(&drive, 5);
    run(drive.close()).expect("close");
    for options in [
        WipeOptions { sector_bytes: Some(1024), ..WipeOptions::any() },
        WipeOptions { logical_capacity_bytes: Some(0), ..WipeOptions::any() },
        WipeOptions { logical_capacity_bytes: Some(4097), ..WipeOptions::any() },
        WipeOptions { target: WipeTarget::Id([8; 16]), ..WipeOptions::any() },
        WipeOptions { target: WipeTarget::NoDrive, ..WipeOptions::any() },
    ] {
        assert!(matches!(run(Drive::wipe(&*media, options)), Err(Error::Invalid(_))));
    }
    assert!(block(&open(&media, 2), 5) == random(5, 4096));
}

#[test]
fn a_damaged_drive_can_be_wiped_another_thing_cannot() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    for b in 0..3 {
        write(&drive, b);
        run(drive.flush()).expect("flush");
    }
    drop(drive);
    let image = Image::of(&media);
    image.zero(image.newest(RecordKind::Data, 1).pack, 4096);
    run(Drive::open(erased(media.clone()), OpenOptions::new(9, spawner()))).err().expect("damaged");
    wipe(&media);
    assert_sound(&open(&media, 2));
    let blank = MemoryMedia::new(64 * MIB);
    assert!(matches!(run(Drive::wipe(&blank, WipeOptions::any())), Err(Error::NotADrive)));
}

#[test]
fn without_any_checkpoint_it_works_too() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    for (slot, copy) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        image.zero(image.geometry().checkpoint_offset(slot, copy), 4096);
    }
    wipe(&media);
    assert!(block(&open(&media, 2), 1) == [0; 4096]);
}

/// A backing that performs a number of writes and syncs, and then fails. Of the first write that fails, it
/// takes one page, like a full file system.
struct Until {
    memory: Arc<MemoryMedia>,
    left: AtomicU64,
    torn: AtomicBool,
}

impl Until {
    fn take(&self) -> io::Result<()> {
        let taken = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        taken.map(drop).map_err(|_| io::Error::other("the power is cut"))
    }
}

impl Media for Until {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        self.memory.read(offset, buf).await
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        if let Err(cut) = self.take() {
            if !self.torn.swap(true, SeqCst) {
                let mut page = IoBuf::zeroed(4096);
                page.copy_from_slice(&buf[..4096]);
                self.memory.write(offset, Arc::new(page)).await?;
            }
            return Err(cut);
        }
        self.memory.write(offset, buf).await
    }

    async fn sync(&self) -> io::Result<()> {
        self.take()
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len).await
    }
}

/// What a wipe leaves when it is cut short is no damage.
fn no_copy_is_a_fault(media: &Arc<MemoryMedia>) {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(3, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    assert_eq!(run(drive.check(false)).expect("check"), Vec::<String>::new());
    let (_, checkpoints) = run(find_copies(&**media));
    let damaged = checkpoints.iter().filter(|found| matches!(found.state, CopyState::Damaged(_)));
    assert_eq!(damaged.count(), 0, "{checkpoints:?}");
}

#[test]
fn a_wipe_cut_short_on_a_new_drive_leaves_no_damage() {
    for steps in 1..6 {
        let memory = Arc::new(MemoryMedia::new(32 * MIB));
        run(Drive::create(&*memory, &create_options(32 * MIB, 64 * MIB))).expect("create");
        let until =
            Until { memory: memory.clone(), left: AtomicU64::new(steps), torn: AtomicBool::new(false) };
        run(Drive::wipe(&until, WipeOptions::any())).ok();
        no_copy_is_a_fault(&memory);
    }
}

#[test]
fn cut_short_anywhere_it_was_done_or_not() {
    // An odd and an even number of checkpoints, closed and not.
    for (reopened, closed) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut wiped = 0;
        for steps in 0.. {
            let memory = Arc::new(MemoryMedia::new(32 * MIB));
            run(Drive::create(&*memory, &create_options(32 * MIB, 64 * MIB))).expect("create");
            if reopened {
                drop(open(&memory, 10));
            }
            let drive = open(&memory, 1);
            write(&drive, 7);
            run(drive.flush()).expect("flush");
            if closed {
                run(drive.close()).expect("close");
            }
            drop(drive);
            let until =
                Until { memory: memory.clone(), left: AtomicU64::new(steps), torn: AtomicBool::new(false) };
            let done = run(Drive::wipe(&until, WipeOptions::any())).is_ok();
            if closed {
                no_copy_is_a_fault(&memory);
            }
            let drive = open(&memory, 2);
            let found = block(&drive, 7);
            assert!(found == [0; 4096] || found == random(7, 4096));
            assert!(!done || found == [0; 4096]);
            wiped += u64::from(found == [0; 4096]);
            assert_sound(&drive);
            if done {
                // Of a drive that was not closed, the last checkpoint is written again before.
                let expected = if closed { 7 } else { 11 };
                assert!(steps == expected && wiped >= 2, "{steps} steps, wiped in {wiped}");
                break;
            }
        }
    }
}

#[test]
fn the_space_goes_back_to_the_backing_only_once_the_drive_is_empty() {
    let (media, drive) = new_drive(64 * MIB, 128 * MIB);
    write(&drive, 7);
    run(drive.close()).expect("close");
    drop(drive);
    assert!(matches!(run(Drive::discard_all(&*media, |_, _| Continue(()))), Err(Error::Invalid(_))));
    assert!(block(&open(&media, 2), 7) == random(7, 4096));
    wipe(&media);
    let mut progress = Vec::new();
    let discarded = Drive::discard_all(&*media, |done, all| {
        progress.push((done, all));
        Continue(())
    });
    assert!(run(discarded).expect("discard"));
    assert_eq!(progress.first().map(|t| t.0), Some(0));
    assert!(progress.last().is_some_and(|(done, all)| done == all && *all > 60 * MIB));
    // Whoever is in a hurry ends it.
    assert!(!run(Drive::discard_all(&*media, |_, _| Break(()))).expect("ended"));
    assert_sound(&open(&media, 3));
}
