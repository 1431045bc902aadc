//! A write that does not fit at the end of a segment is divided over two packs. The ends of segments are
//! used, and the write is still atomic.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, erased, open, run};
use drive::{CreateOptions, Drive, OpenOptions};
use image::Image;
use layout::{Head, PackHeader};
use media::{IoBuf, Media, MemoryMedia};

type Memory = Drive<Erased>;

const KIB: u64 = 1 << 10;
const PHYSICAL: u64 = 16 << 20;
/// Number of places that are written repeatedly, each with one atomic write.
const PLACES: u64 = 12;
const PLACE: u64 = 256 * KIB;

fn new_drive(physical: u64, segment_bytes: Option<u32>) -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(physical));
    let options = CreateOptions { segment_bytes, ..create_options(physical, 2 * physical) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    (media, drive)
}

/// Percentage of the occupied segments that holds live data, after writes of `len` bytes.
fn use_of_segments(physical: u64, len: u64) -> f64 {
    let (_, drive) = new_drive(physical, None);
    let before = drive.status();
    for at in (0..physical / 2).step_by(len as usize) {
        run(drive.write(at, &random(at, len as usize), false)).expect("write");
    }
    run(drive.flush()).expect("flush");
    let after = drive.status();
    let taken = u64::from(before.segments_free_count - after.segments_free_count);
    after.physical_used_bytes as f64 * 100.0 / (taken * u64::from(after.segment_bytes)) as f64
}

#[test]
fn ends_of_segments_are_used_whatever_the_length_of_writes() {
    for (physical, len) in [(256, 256), (256, 240), (256, 200), (256, 128), (1024, 256), (1024, 240)] {
        let percent = use_of_segments(physical << 20, len * KIB);
        assert!(
            percent >= 94.0,
            "{physical} MiB, writes of {len} KiB: {percent:.1} % of the segments hold data"
        );
    }
}

fn copy_of(media: &MemoryMedia) -> Arc<MemoryMedia> {
    const PIECE: u64 = 256 << 10;
    let copy = MemoryMedia::new(media.size_bytes());
    for at in (0..media.size_bytes()).step_by(PIECE as usize) {
        let len = PIECE.min(media.size_bytes() - at) as usize;
        let (buf, result) = run(media.read(at, IoBuf::zeroed(len)));
        result.expect("read");
        if buf.iter().any(|byte| *byte != 0) {
            run(copy.write(at, Arc::new(buf))).expect("write");
        }
    }
    Arc::new(copy)
}

/// Returns the medium after a power cut that lost all packs with numbers above `sequence`.
fn cut_behind(media: &MemoryMedia, packs: &[(u64, PackHeader)], sequence: u64) -> Arc<MemoryMedia> {
    let copy = copy_of(media);
    let image = Image::of(&copy);
    for (position, header) in packs.iter().filter(|(_, header)| header.sequence > sequence) {
        image.zero(*position, header.len as usize);
    }
    copy
}

/// A drive written place by place, and the version of each place. 0 means nothing.
struct Written {
    media: Arc<MemoryMedia>,
    drive: Memory,
    versions: [u64; PLACES as usize],
    newest: u64,
}

fn contents(place: u64, version: u64, len: u64) -> Vec<u8> {
    match version {
        0 => vec![0; len as usize],
        _ => random(version * PLACES + place, len as usize),
    }
}

impl Written {
    fn new() -> Written {
        let (media, drive) = new_drive(PHYSICAL, Some(512 << 10));
        Written { media, drive, versions: [0; PLACES as usize], newest: 0 }
    }

    /// Writes the next version of a place.
    fn write(&mut self, place: u64) {
        self.newest += 1;
        let data = contents(place, self.newest, len_of(place));
        run(self.drive.write(place * PLACE, &data, false)).expect("write");
        self.versions[place as usize] = self.newest;
    }
}

/// Length of writes to a place: from 4 to 256 KiB, so that packs and segments end at any position.
fn len_of(place: u64) -> u64 {
    (PLACE - place * 23 % 64 * 4 * KIB).max(4 * KIB)
}

/// Reads the version of each place of a drive. Each must be a complete one of the given versions.
fn versions_of(drive: &Memory, newest: u64) -> [u64; PLACES as usize] {
    std::array::from_fn(|place| {
        let place = place as u64;
        let mut back = vec![0; len_of(place) as usize];
        run(drive.read(place * PLACE, &mut back)).expect("read");
        let is = |version: &u64| back == contents(place, *version, back.len() as u64);
        (0..=newest).rev().find(is).unwrap_or_else(|| panic!("place {place} holds no version whole"))
    })
}

/// Packs that the newest checkpoint does not vouch for, in order.
fn tail(image: &Image) -> Vec<(u64, PackHeader)> {
    let durable = std::cell::Cell::new((0, 0));
    image.change_checkpoints(|checkpoint| {
        durable.set(durable.get().max((checkpoint.number, checkpoint.durable.max(checkpoint.sequence))));
    });
    let packs = image.packs();
    packs.into_iter().filter(|(_, header)| header.sequence > durable.get().1).collect()
}

#[test]
fn a_divided_write_shows_whole_or_not_at_all() {
    let mut written = Written::new();
    let mut divided = 0;
    for step in 0..60_u64 {
        // Cleaning and checkpoints in between leave an open pack of moved records.
        if step % 5 == 3 {
            run(written.drive.checkpoint()).expect("checkpoint");
        }
        if step % 3 == 1 {
            run(written.drive.clean()).expect("clean");
        }
        let (before, sealed) = (written.versions, written.drive.status().sequence);
        written.write(step * 5 % PLACES);
        let image = Image::of(&written.media);
        let packs = tail(&image);
        let is_divided = |header: &PackHeader| header.sequence > sealed && header.continued > 0;
        let Some((_, first)) = packs.iter().find(|(_, header)| is_divided(header)) else { continue };
        let at = first.sequence;
        let second = packs.iter().find(|(_, header)| header.sequence == at + 1);
        let (_, second) = second.expect("the second pack of a divided write");
        divided += 1;
        assert_eq!((first.head, second.head), (Head::Host, Head::Host));
        assert_ne!(first.segment, second.segment);
        for (sequence, expected) in [(at, before), (at + 1, written.versions)] {
            let media = cut_behind(&written.media, &packs, sequence);
            let drive = open(&media, 1000 + step);
            assert_eq!(
                versions_of(&drive, written.newest),
                expected,
                "step {step}, cut behind pack {sequence}"
            );
            assert_sound(&drive);
            // Once more, now from the checkpoint.
            drop(drive);
            let drive = open(&media, 2000 + step);
            assert_eq!(versions_of(&drive, written.newest), expected, "step {step}, the second opening");
        }
    }
    assert!(divided >= 5, "{divided} divided writes");
}

/// Whichever pack is the last one after a power cut, the drive holds a state that it had after one of its
/// writes.
#[test]
fn any_end_of_a_log_with_divided_writes_is_a_state_that_was() {
    let mut written = Written::new();
    run(written.drive.checkpoint()).expect("checkpoint");
    let mut states = vec![written.versions];
    for step in 0..24_u64 {
        written.write(step * 7 % PLACES);
        states.push(written.versions);
        if step % 6 == 5 {
            run(written.drive.clean()).expect("clean");
        }
    }
    let packs = tail(&Image::of(&written.media));
    assert!(packs.iter().any(|(_, header)| header.continued > 0), "no write was divided");
    let mut reached = 0;
    for (_, header) in &packs {
        let media = cut_behind(&written.media, &packs, header.sequence);
        let drive = run(Drive::open(
            erased(media.clone()),
            OpenOptions { read_only: true, ..OpenOptions::new(9, common::spawner()) },
        ))
        .expect("open");
        let versions = versions_of(&drive, written.newest);
        let state = states.iter().rposition(|state| *state == versions);
        let state = state.unwrap_or_else(|| panic!("pack {}: {versions:?} never was", header.sequence));
        assert!(state >= reached, "pack {}: an earlier state than before it", header.sequence);
        reached = state;
    }
    assert!(reached >= 20, "{reached}");
}
