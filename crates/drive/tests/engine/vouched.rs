//! An opening writes again what nothing shows to be durable, and nothing else.

use crate::common;
use crate::faulty;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive};
use faulty::{Faulty, Tasks};
use layout::{Geometry, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 64 << 20;

struct Case {
    media: Arc<Faulty>,
    tasks: Tasks,
    geometry: Geometry,
    drive: Drive<Erased>,
    /// Bytes of log between two checkpoints.
    checkpoint_bytes: u64,
}

impl Case {
    fn new(checkpoint_bytes: u64) -> Case {
        let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
        let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, PHYSICAL) };
        tasks.run(Drive::create(&*media, &options)).expect("create");
        let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
        let geometry = Superblock::decode(&page).expect("superblock").geometry;
        let drive = tasks.open(&media, |options| options.checkpoint_bytes = checkpoint_bytes);
        media.attempts.lock().clear();
        Case { media, tasks, geometry, drive, checkpoint_bytes }
    }

    fn write(&self, block: u64, blocks: u64) {
        let data = random(block, (blocks * BLOCK) as usize);
        self.tasks.run(self.drive.write(block * BLOCK, &data, false)).expect("write");
    }

    /// Packs written since the last call.
    fn packs(&self) -> Vec<Range<u64>> {
        let mut packs = std::mem::take(&mut *self.media.attempts.lock());
        packs.retain(|at| at.start >= self.geometry.segments_offset());
        packs
    }

    /// Kills the process and opens the drive again. Returns the bytes of these packs that were written again.
    fn written_again(&mut self, packs: &[Range<u64>]) -> u64 {
        self.media.attempts.lock().clear();
        let checkpoint_bytes = self.checkpoint_bytes;
        self.drive = self.tasks.open(&self.media, |options| options.checkpoint_bytes = checkpoint_bytes);
        let again = self.packs();
        let within =
            |pack: &&Range<u64>| again.iter().any(|again| again.start <= pack.start && pack.end <= again.end);
        packs.iter().filter(within).map(|pack| pack.end - pack.start).sum()
    }
}

#[test]
fn packs_that_a_later_one_calls_durable_are_not_written_again() {
    let mut case = Case::new(256 << 20);
    for block in 0..8 {
        case.write(block, 1);
        case.tasks.run(case.drive.flush()).expect("flush");
    }
    let mut packs = case.packs();
    // No pack calls the last of them durable yet.
    assert_eq!(packs.len(), 8);
    let last = packs[7].end - packs[7].start;
    assert_eq!(case.written_again(&packs), last);
    // At the next tick one does.
    case.write(9, 1);
    case.tasks.run(case.drive.flush()).expect("flush");
    packs = case.packs();
    case.drive.tick();
    case.tasks.turn();
    assert_eq!(case.packs().len(), 1, "a pack that vouches");
    assert_eq!(case.written_again(&packs), 0);
}

#[test]
fn a_log_that_no_host_flushes_is_synced_now_and_then() {
    const LOG: u64 = 16 << 20;
    let mut case = Case::new(LOG);
    let before = case.media.syncs.load(SeqCst);
    let mut packs = Vec::new();
    for piece in 0..56 {
        case.write(piece * 64, 64);
        (0..4).for_each(|_| case.tasks.turn());
        packs.extend(case.packs());
    }
    let all: u64 = packs.iter().map(|pack| pack.end - pack.start).sum();
    assert!(all > 12 << 20, "{all} bytes of log");
    assert!(case.media.syncs.load(SeqCst) - before >= 2, "syncs");
    let again = case.written_again(&packs);
    assert!(again > 0 && again <= LOG / 4 + (1 << 20), "{again} of {all} bytes were written again");
}

/// A drive that was closed notes that its last checkpoint is durable. If the process ended before that, the
/// next opening writes the checkpoint again.
#[test]
fn the_last_checkpoint_of_a_closed_drive_is_not_written_again() {
    let case = Case::new(256 << 20);
    case.write(1, 1);
    case.tasks.run(case.drive.close()).expect("close");
    let number = case.drive.status().checkpoint_number;
    let places = case.geometry.checkpoint_offsets(number);
    let rewrites = |media: &Arc<Faulty>| {
        media.attempts.lock().clear();
        drop(case.tasks.open(media, |_| {}));
        places.map(|at| media.attempts_at(&(at..at + BLOCK)))
    };
    let copy = |note: bool| {
        let copy = Arc::new(Faulty::new(PHYSICAL));
        let (mut all, _) = case.tasks.run(case.media.read(0, IoBuf::zeroed(PHYSICAL as usize)));
        // Flags are at byte 60 of the header page.
        let is_noted = places.map(|at| all[at as usize + 60] & 2 != 0);
        assert_eq!(is_noted, [true, false]);
        if !note {
            // The other copy is as it was before the note.
            let [first, second] = places.map(|at| at as usize);
            all.copy_within(second..second + BLOCK as usize, first);
        }
        case.tasks.run(copy.write(0, Arc::new(all))).expect("write");
        copy
    };
    assert_eq!(rewrites(&copy(true)), [0, 0]);
    assert_eq!(rewrites(&copy(false)), [1, 1]);
}
