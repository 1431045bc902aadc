//! A bit that flips in a header of the part of the log that an opening reads costs nothing.

use crate::common;
use crate::image;

use std::ops::Range;
use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, assert_sound, erased, new_drive, open, run, spawner};
use drive::{Drive, OpenOptions, State};
use image::Image;
use layout::RecordKind;
use layout::pack::PACK_HEADER_BYTES;
use layout::record::RECORD_HEADER_BYTES;
use media::MemoryMedia;

const BLOCK: u64 = 4096;
const SIZE: u64 = 64 << 20;
const BLOCKS: u64 = 60;
/// Trimmed blocks.
const TRIMMED: Range<u64> = 100..103;

fn contents(block: u64) -> Vec<u8> {
    random(block, BLOCK as usize)
}

fn read(drive: &Drive<Erased>, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    run(drive.read(block * BLOCK, &mut bytes)).expect("read");
    bytes
}

fn assert_holds(drive: &Drive<Erased>, when: &str) {
    for block in 0..BLOCKS {
        assert!(read(drive, block) == contents(block), "{when}: block {block}");
    }
    TRIMMED.for_each(|block| assert!(read(drive, block) == [0; BLOCK as usize], "{when}: block {block}"));
}

/// A drive that was not closed, with several packs of flushed writes and a TRIM after its checkpoint.
fn not_closed() -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(SIZE, 2 * SIZE);
    let write = |block: u64| run(drive.write(block * BLOCK, &contents(block), false)).expect("write");
    TRIMMED.for_each(write);
    for first in (0..BLOCKS).step_by(6) {
        (first..first + 6).for_each(write);
        if first == 30 {
            run(drive.trim(TRIMMED.start * BLOCK, 3 * BLOCK, false)).expect("trim");
        }
        run(drive.flush()).expect("flush");
    }
    // Two that call the others durable.
    for block in [0, 1] {
        write(block);
        run(drive.flush()).expect("flush");
    }
    drop(drive);
    let image = Image::of(&media);
    (media, image)
}

fn flip(image: &Image, bit: u64) {
    let byte = image.read(bit / 8, 1)[0];
    image.write(bit / 8, &[byte ^ 1 << (bit % 8)]);
}

/// Bits of the headers of a pack and of its records.
fn header_bits(image: &Image, pack: u64) -> Vec<u64> {
    let header = layout::PackHeader::decode(&image.read(pack, PACK_HEADER_BYTES)).expect("a pack");
    let mut bytes: Vec<u64> = (pack..pack + PACK_HEADER_BYTES as u64).collect();
    layout::pack::walk_records(&image.read(pack, header.used as usize), header.records, |at, _| {
        let at = pack + u64::from(at);
        bytes.extend(at..at + RECORD_HEADER_BYTES as u64);
        Ok(())
    })
    .expect("records");
    bytes.into_iter().flat_map(|byte| byte * 8..byte * 8 + 8).collect()
}

/// Packs with data, a TRIM and nodes, which later ones call durable.
fn durable_packs(image: &Image) -> Vec<u64> {
    let packs = image.packs();
    let durable = packs.iter().map(|(_, header)| header.durable).max().expect("packs");
    let opening = packs.iter().find(|(_, header)| header.checkpoint == image.newest_checkpoint());
    let first = opening.expect("packs of the newest run").1.sequence;
    let is_read = packs.into_iter().filter(|(_, header)| (first..=durable).contains(&header.sequence));
    is_read.map(|(position, _)| position).collect()
}

#[test]
fn each_bit_of_a_header_is_mended_and_costs_nothing() {
    let (_, image) = not_closed();
    let trim = image.newest(RecordKind::Range, TRIMMED.start).pack;
    let data = image.newest(RecordKind::Data, 20).pack;
    // One of every byte of the headers of a pack of data; all of the first record and of that of a TRIM.
    let bits = header_bits(&image, data);
    let of_trim = header_bits(&image, trim).into_iter().rev().take(128);
    let first = bits[PACK_HEADER_BYTES * 8..].iter().take(128).copied();
    let each_byte = bits.chunks(8).enumerate().map(|(n, byte)| byte[n * 5 % 8]);
    for (n, bit) in each_byte.chain(first).chain(of_trim).enumerate() {
        let (media, image) = not_closed();
        let pack = bit / 8 / BLOCK * BLOCK;
        let whole = image.read(pack, 4096);
        flip(&image, bit);
        let when = format!("bit {} of byte {}", bit % 8, bit / 8);
        // Not each time, because that takes long.
        let all = || image.read(0, if n % 50 == 0 { SIZE as usize } else { 0 });
        let damaged = all();
        let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
        let drive =
            run(Drive::open(erased(media.clone()), options)).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert_holds(&drive, &when);
        assert_sound(&drive);
        drop(drive);
        assert!(all() == damaged, "{when}: a look has written something");

        let drive = open(&media, 2);
        assert_eq!(drive.status().state, State::Online);
        assert_eq!(drive.status().recovered.damaged_records_count, 0);
        let notes = drive.status().notes;
        assert!(
            notes.iter().any(|note| note.contains("a bit had flipped in the headers of pack")),
            "{notes:?}"
        );
        assert_holds(&drive, &when);
        assert_sound(&drive);
        assert!(image.read(pack, 4096) == whole, "{when}: it is right on the medium");
        drop(drive);
        let drive = open(&media, 3);
        assert!(drive.status().notes.is_empty(), "{when}: once");
        assert_holds(&drive, &when);
        run(drive.close()).expect("close");
    }
}

#[test]
fn bits_in_several_packs_are_mended_together() {
    for round in 0..40_u64 {
        let (media, image) = not_closed();
        let packs = durable_packs(&image);
        let mut z = round;
        let mut draw = |below: usize| {
            z = z.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (z >> 33) as usize % below
        };
        let mut hit = Vec::new();
        for _ in 0..3 {
            let pack = packs[draw(packs.len())];
            if !hit.contains(&pack) {
                let bits = header_bits(&image, pack);
                flip(&image, bits[draw(bits.len())]);
                hit.push(pack);
            }
        }
        let options = OpenOptions::new(2, spawner());
        let drive = run(Drive::open(erased(media.clone()), options));
        let drive = drive.unwrap_or_else(|error| panic!("round {round}, packs at {hit:?}: {error}"));
        let when = format!("round {round}");
        assert_holds(&drive, &when);
        assert_sound(&drive);
        run(drive.close()).expect("close");
        assert_holds(&open(&media, 3), &when);
    }
}

/// The same bytes are what a crash may leave.
#[test]
fn the_last_pack_is_not_mended_without_proof_that_it_was_durable() {
    let (media, image) = not_closed();
    let (last, _) = image.packs().pop().expect("packs");
    flip(&image, (last + 60) * 8);
    let drive = open(&media, 2);
    assert!(drive.status().notes.is_empty());
    assert_holds(&drive, "without the last pack, which wrote the same again");
    assert_sound(&drive);
}
