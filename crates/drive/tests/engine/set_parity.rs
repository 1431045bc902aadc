//! The share of parity changes while a drive is in use.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive, Error};
use faulty::{Faulty, Tasks};
use layout::{Features, PAGE_BYTES, PackHeader, ParityForm, ParityShape, Superblock};
use media::{IoBuf, Media};

const CHUNK: usize = 64 << 10;
const PHYSICAL: u64 = 64 << 20;
const SEGMENT: u32 = 1 << 20;

fn contents(chunk: u64, version: u64) -> Vec<u8> {
    random(chunk * 1000 + version, CHUNK)
}

struct Host {
    media: Arc<Faulty>,
    tasks: Tasks,
    versions: Vec<u64>,
    entropy: u64,
}

impl Host {
    fn new(parity: ParityForm) -> Host {
        let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
        let options =
            CreateOptions { segment_bytes: Some(SEGMENT), parity, ..create_options(PHYSICAL, 64 << 20) };
        tasks.run(Drive::create(&*media, &options)).expect("create");
        Host { media, tasks, versions: vec![0; 1 << 10], entropy: 0 }
    }

    fn open(&mut self) -> Drive<Erased> {
        self.entropy += 1;
        let entropy = self.entropy;
        self.tasks.open(&self.media, |options| options.entropy = entropy)
    }

    /// Returns whether there was room.
    fn write(&mut self, drive: &Drive<Erased>, chunk: u64) -> bool {
        let data = contents(chunk, self.versions[chunk as usize] + 1);
        match self.tasks.run(drive.write(chunk * CHUNK as u64, &data, false)) {
            Ok(()) => self.versions[chunk as usize] += 1,
            Err(Error::NoSpace) => return false,
            Err(other) => panic!("{other}"),
        }
        while self.tasks.run(drive.maintain()).expect("maintain") {}
        true
    }

    fn fill(&mut self, drive: &Drive<Erased>) -> u64 {
        let first = self.versions.iter().position(|version| *version == 0).expect("room") as u64;
        (first..).find(|chunk| !self.write(drive, *chunk)).expect("an end")
    }

    fn set(&self, drive: &Drive<Erased>, form: ParityForm) -> Result<(), Error> {
        self.tasks.run(drive.set_parity(form))
    }

    fn settle(&self, drive: &Drive<Erased>) {
        for _ in 0..200 {
            drive.tick();
            self.tasks.turn();
            while self.tasks.run(drive.maintain()).expect("maintain") {}
        }
    }

    fn assert_whole(&self, drive: &Drive<Erased>) {
        let mut bytes = vec![0; CHUNK];
        for (chunk, version) in (0..).zip(&self.versions).filter(|(_, version)| **version > 0) {
            self.tasks.run(drive.read(chunk * CHUNK as u64, &mut bytes)).expect("read");
            assert!(bytes == contents(chunk, *version), "chunk {chunk}");
        }
        assert_eq!(self.tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
    }

    fn page(&self, position: u64) -> IoBuf {
        self.tasks.run(self.media.read(position, IoBuf::zeroed(PAGE_BYTES))).0
    }

    fn superblock(&self) -> Superblock {
        Superblock::decode(&self.page(0)).expect("a superblock")
    }

    /// Damages a page in each filling with parity of this form. Returns their number.
    fn damage(&self, form: ParityForm) -> usize {
        let geometry = self.superblock().geometry;
        let shape = ParityShape::new(SEGMENT, form).expect("parity");
        let starts = (0..geometry.segments()).map(|segment| geometry.segment_offset(segment));
        let is_its = |start: &u64| {
            let header = PackHeader::decode(&self.page(*start));
            header.is_ok_and(|header| header.parity == form)
                && self.page(start + u64::from(shape.index_offsets()[0]))[..8] == *b"PUPARITY"
        };
        let found: Vec<u64> = starts.filter(is_its).collect();
        for start in &found {
            let mut page = IoBuf::zeroed(PAGE_BYTES);
            page.copy_from_slice(&random(*start, PAGE_BYTES));
            self.tasks.run(self.media.write(start + PAGE_BYTES as u64, Arc::new(page))).expect("write");
        }
        found.len()
    }
}

fn invalid(result: Result<(), Error>) -> String {
    match result {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Forms follow each other, with writes, crashes and closings in between. Old fillings keep their parity.
#[test]
fn forms_follow_each_other_on_a_drive_in_use() {
    use ParityForm::{None, Part16, Part32, Part64};
    let mut host = Host::new(None);
    let mut drive = host.open();
    for (round, form) in [Part32, None, Part16, Part64, None, Part32].into_iter().enumerate() {
        let round = round as u64;
        for chunk in 0..150 {
            host.write(&drive, (chunk * 7 + round * 60) % 400);
        }
        host.set(&drive, form).expect("another form");
        assert_eq!(drive.status().parity.form, form);
        for chunk in 0..100 {
            host.write(&drive, (chunk * 11 + round * 90) % 400);
        }
        host.tasks.run(drive.flush()).expect("flush");
        match round % 3 {
            0 => {}
            1 => {
                drop(drive);
                drive = host.open();
            }
            _ => {
                host.tasks.run(drive.close()).expect("close");
                drop(drive);
                drive = host.open();
            }
        }
        assert_eq!(drive.status().parity.form, form);
        host.settle(&drive);
        host.assert_whole(&drive);
    }
    host.tasks.run(drive.close()).expect("close");
    drop(drive);
    let damaged: usize = [Part16, Part64, Part32].map(|form| host.damage(form)).iter().sum();
    assert!(damaged > 10, "{damaged}");
    let drive = host.open();
    host.assert_whole(&drive);
    assert!(drive.status().parity.repaired_pages_count > 0);
}

/// Without parity from now on, what has it is repaired by it. The bit that keeps others from writing stays.
#[test]
fn parity_that_is_there_repairs_after_it_was_switched_off() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    (0..200).for_each(|chunk| assert!(host.write(&drive, chunk)));
    host.set(&drive, ParityForm::None).expect("none");
    (200..300).for_each(|chunk| assert!(host.write(&drive, chunk)));
    host.tasks.run(drive.close()).expect("close");
    drop(drive);
    let superblock = host.superblock();
    assert_eq!(superblock.geometry.parity, ParityForm::None);
    assert_ne!(superblock.features.read_only_compatible & Features::PARITY, 0);
    let damaged = host.damage(ParityForm::Part32);
    assert!(damaged >= 10, "{damaged}");
    let drive = host.open();
    host.assert_whole(&drive);
    assert!(drive.status().parity.repaired_pages_count >= damaged as u64 / 2);
}

#[test]
fn a_form_that_leaves_too_little_room_is_refused() {
    let mut host = Host::new(ParityForm::None);
    let drive = host.open();
    let full = host.fill(&drive);
    let before = drive.space();
    let why = invalid(host.set(&drive, ParityForm::Part16));
    assert!(why.starts_with("parity 1/16 leaves room for ") && why.contains(" first"), "{why}");
    assert_eq!(invalid(drive.check_parity(ParityForm::Part16)), why);
    assert_eq!((drive.status().parity.form, drive.space()), (ParityForm::None, before));
    let superblock = host.superblock();
    assert!(!superblock.uses_parity());
    // A tenth less is little enough.
    let freed = full / 8;
    host.tasks.run(drive.trim(0, freed * CHUNK as u64, false)).expect("trim");
    host.versions[..freed as usize].fill(0);
    drive.check_parity(ParityForm::Part16).expect("room");
    host.set(&drive, ParityForm::Part16).expect("room");
    assert!(drive.space().1 < before.1);
    // All that it has room for now can be written, although segments are denser than new ones will be.
    let mut written = 0;
    while written < 2 * full && host.write(&drive, written % freed.max(1)) {
        written += 1;
    }
    (freed..full).for_each(|chunk| _ = host.write(&drive, chunk));
    host.assert_whole(&drive);
    host.tasks.run(drive.close()).expect("close");
    drop(drive);
    let drive = host.open();
    assert_eq!(drive.status().parity.form, ParityForm::Part16);
    host.assert_whole(&drive);
}

/// A full drive gets the room back that parity took, as cleaning moves what is in older fillings.
#[test]
fn less_parity_leaves_more_room() {
    let mut host = Host::new(ParityForm::Part16);
    let drive = host.open();
    let full = host.fill(&drive);
    host.set(&drive, ParityForm::None).expect("none");
    let fuller = host.fill(&drive);
    assert!(fuller * 100 > full * 104, "{full} chunks, then {fuller}");
    host.assert_whole(&drive);
    for round in 0..2 {
        (0..fuller).for_each(|chunk| assert!(host.write(&drive, chunk), "{round}: {chunk}"));
    }
    host.assert_whole(&drive);
    host.tasks.run(drive.flush()).expect("flush");
    drop(drive);
    let drive = host.open();
    host.assert_whole(&drive);
}

/// The superblock cannot be written: nothing has changed, and the drive says so.
#[test]
fn a_change_that_cannot_be_written_is_none() {
    let mut host = Host::new(ParityForm::None);
    let drive = host.open();
    (0..100).for_each(|chunk| assert!(host.write(&drive, chunk)));
    let limit = drive.space().1;
    host.media.full.store(true, SeqCst);
    assert!(host.set(&drive, ParityForm::Part16).is_err());
    host.media.full.store(false, SeqCst);
    (0..100).for_each(|_| {
        drive.tick();
        host.tasks.turn();
    });
    assert!(!drive.status().backing_full);
    assert_eq!((drive.status().parity.form, drive.space().1), (ParityForm::None, limit));
    (100..200).for_each(|chunk| assert!(host.write(&drive, chunk)));
    host.tasks.run(drive.close()).expect("close");
    drop(drive);
    let drive = host.open();
    assert_eq!(drive.status().parity.form, ParityForm::None);
    host.assert_whole(&drive);
}

/// A checkpoint was given up, or the backing had no room for the rest of it: the next change that fails is no
/// worse than any other.
#[test]
fn a_change_may_fail_while_a_checkpoint_is_unfinished() {
    for polls in 1..24 {
        let mut host = Host::new(ParityForm::None);
        let drive = host.open();
        (0..20).for_each(|chunk| assert!(host.write(&drive, chunk)));
        host.media.hold_syncs.store(true, SeqCst);
        assert!(host.tasks.give_up(drive.checkpoint(), polls).is_none(), "{polls}");
        host.media.hold_syncs.store(false, SeqCst);
        host.media.full.store(true, SeqCst);
        assert!(host.set(&drive, ParityForm::Part16).is_err(), "{polls}");
        host.media.full.store(false, SeqCst);
        host.set(&drive, ParityForm::Part16).expect("a change");
        (20..40).for_each(|chunk| assert!(host.write(&drive, chunk)));
        host.assert_whole(&drive);
    }
}
