//! Damage in the part of the log that an opening reads: data that was durable is lost where it is damaged,
//! and nowhere else.

use crate::common;
use crate::image;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use codec::testdata::{fio_like, random};
use common::{Erased, assert_sound, erased, new_drive, new_media, open, run, spawner};
use drive::{Drive, Error, OpenOptions, State};
use image::Image;
use layout::RecordKind;
use layout::geometry::OWN_FIRST_BLOCK;
use media::{IoBuf, Media, MemoryMedia};

const BLOCK: u64 = 4096;
/// Blocks, and those among them that share a pack.
const BLOCKS: u64 = 60;
const TOGETHER: u64 = 6;
/// In a pack that later ones call durable.
const HIT: u64 = 20;

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block + version * 1000, BLOCK as usize)
}

fn write(drive: &Drive<Erased>, block: u64, version: u64) {
    run(drive.write(block * BLOCK, &contents(block, version), false)).expect("write");
}

fn read(drive: &Drive<Erased>, block: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; BLOCK as usize];
    run(drive.read(block * BLOCK, &mut bytes)).map(|()| bytes)
}

fn assert_holds(drive: &Drive<Erased>, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        assert!(read(drive, block).expect("read") == contents(block, 0), "block {block}");
    }
}

/// A drive that was not closed, with several packs of flushed writes after its checkpoint; then more is done,
/// and flushed.
fn not_closed(more: impl Fn(&Drive<Erased>)) -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    for first in (0..BLOCKS).step_by(TOGETHER as usize) {
        (first..first + TOGETHER).for_each(|block| write(&drive, block, 0));
        run(drive.flush()).expect("flush");
    }
    more(&drive);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    (media, image)
}

fn refusal(media: &Arc<MemoryMedia>) -> String {
    match run(Drive::open(erased(media.clone()), OpenOptions::new(9, spawner()))) {
        Err(Error::Damaged(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a drive with a damaged log was opened"),
    }
}

#[test]
fn one_flipped_bit_costs_one_record() {
    let (media, image) = not_closed(|_| ());
    image.flip_bit(image.newest(RecordKind::Data, HIT).payload() + 100);
    let drive = open(&media, 2);
    assert_eq!(drive.status().state, State::Online);
    assert_eq!(drive.status().recovered.damaged_records_count, 1);
    assert_eq!(drive.status().counters.corrupt_records_count, 1);
    let notes = drive.status().notes;
    assert!(
        notes.iter().any(|note| note.contains("damaged records in the newest log: 1, the first in pack")),
        "{notes:?}"
    );
    let error = read(&drive, HIT).expect_err("a flipped bit");
    assert!(matches!(&error, Error::Corrupt(why) if why.contains("block 20 ")), "{error}");
    assert_holds(&drive, (0..BLOCKS).filter(|block| *block != HIT));

    // It is found in the map by the next opening, and gone once it is written again.
    run(drive.close()).expect("close");
    let drive = open(&media, 3);
    assert_eq!(drive.status().recovered.damaged_records_count, 0);
    read(&drive, HIT).expect_err("still damaged");
    write(&drive, HIT, 0);
    assert_holds(&drive, 0..BLOCKS);
    assert_sound(&drive);
}

#[test]
fn many_flipped_bits_cost_as_many_records() {
    let (media, image) = not_closed(|_| ());
    let hit = [1, 2, 9, 20, 21, 22, 23, 30, 41];
    let places = hit.map(|block| image.newest(RecordKind::Data, block).payload() + 7 * block);
    places.iter().for_each(|place| image.flip_bit(*place));
    let drive = open(&media, 2);
    assert_eq!(drive.status().recovered.damaged_records_count, hit.len() as u64);
    assert_holds(&drive, (0..BLOCKS).filter(|block| !hit.contains(block)));
    hit.iter().for_each(|block| assert!(matches!(read(&drive, *block), Err(Error::Corrupt(_))), "{block}"));
}

#[test]
fn what_was_overwritten_later_is_not_lost() {
    let (media, image) = not_closed(|drive| {
        write(drive, HIT, 1);
        run(drive.trim((HIT + 1) * BLOCK, BLOCK, false)).expect("trim");
    });
    let old = |block: u64| image.records(RecordKind::Data).into_iter().find(|r| r.header.block == block);
    let places = [HIT, HIT + 1].map(|block| old(block).expect("a record").payload() + 9);
    places.iter().for_each(|place| image.flip_bit(*place));
    let drive = open(&media, 2);
    assert!(read(&drive, HIT).expect("read") == contents(HIT, 1));
    assert_eq!(read(&drive, HIT + 1).expect("read"), vec![0; BLOCK as usize]);
    assert_holds(&drive, (0..BLOCKS).filter(|block| ![HIT, HIT + 1].contains(block)));
    assert_sound(&drive);
}

#[test]
fn the_blocks_of_a_frame_are_lost_together() {
    const FRAME: u64 = 64;
    let data = fio_like(5, 8 * BLOCK as usize, 60);
    let (media, image) = not_closed(|drive| {
        run(drive.write(FRAME * BLOCK, &data, false)).expect("write");
        run(drive.flush()).expect("flush");
        write(drive, 0, 0);
    });
    let frame = image.newest(RecordKind::Data, FRAME);
    assert!(frame.header.blocks() > 1, "a frame");
    image.flip_bit(frame.payload() + 50);
    let drive = open(&media, 2);
    let end = FRAME + frame.header.blocks();
    (FRAME..end).for_each(|block| assert!(matches!(read(&drive, block), Err(Error::Corrupt(_))), "{block}"));
    let rest = (end..FRAME + 8).map(|block| (block, (block - FRAME) as usize * BLOCK as usize));
    rest.for_each(|(block, at)| assert!(read(&drive, block).expect("read") == data[at..at + BLOCK as usize]));
    assert_holds(&drive, 0..BLOCKS);
}

#[test]
fn a_read_only_look_finds_the_same_and_writes_nothing() {
    let (media, image) = not_closed(|_| ());
    image.flip_bit(image.newest(RecordKind::Data, HIT).payload() + 100);
    let before = image.read(0, 64 << 20);
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    assert_holds(&drive, (0..BLOCKS).filter(|block| *block != HIT));
    read(&drive, HIT).expect_err("a flipped bit");
    assert_eq!(run(drive.check(true)).expect("check").len(), 1);
    let faults = run(drive.check(false)).expect("check");
    assert_eq!(faults, ["damaged records in the newest log: 1; a deep check says what is lost"]);
    run(drive.close()).expect("close");
    assert!(image.read(0, 64 << 20) == before);
}

/// What the map is made of must be whole. More than a bit of a header is not guessed.
#[test]
fn headers_and_what_is_told_in_a_payload_are_not_done_without() {
    let trimmed = |drive: &Drive<Erased>| {
        run(drive.trim(HIT * BLOCK, 2 * BLOCK, false)).expect("trim");
        run(drive.flush()).expect("flush");
        write(drive, 0, 0);
    };
    let places: [fn(&Image) -> u64; 3] = [
        |image| image.newest(RecordKind::Data, HIT).position + 5,
        |image| image.newest(RecordKind::Data, HIT).pack + 50,
        |image| image.newest(RecordKind::Range, HIT).payload() + 3,
    ];
    for place in places {
        let (media, image) = not_closed(trimmed);
        let place = place(&image);
        image.flip_bit(place);
        image.flip_bit(place + 1);
        let why = refusal(&media);
        assert!(why.contains("is missing or torn, but pack"), "{why}");
    }
}

/// The same bytes are what a crash leaves: nothing says that they were durable, so they were never
/// acknowledged as such.
#[test]
fn without_proof_it_is_the_end_of_the_log() {
    let (media, image) = not_closed(|drive| write(drive, HIT, 1));
    image.flip_bit(image.newest(RecordKind::Data, HIT).payload() + 100);
    let drive = open(&media, 2);
    assert_eq!(drive.status().recovered.damaged_records_count, 0);
    assert_holds(&drive, 0..BLOCKS);
}

/// The nodes that the newest checkpoint needs are in the log behind its cut. Without one, all below it would
/// be lost, and with the next checkpoints the older one that has it. So damage to one is damage to the log.
#[test]
fn a_node_of_the_newest_checkpoint_is_not_done_without() {
    for level in 0..=layout::ROOT.level {
        let (media, drive) = new_drive(64 << 20, 128 << 20);
        (0..BLOCKS).for_each(|block| write(&drive, block, 0));
        run(drive.close()).expect("close");
        let image = Image::of(&media);
        let before = image.read(0, 64 << 20);
        let node = image.node(level.into(), 0);
        image.flip_bit(node.payload() + 3);
        let why = refusal(&media);
        assert!(why.contains("is missing or torn"), "{why}");
        // Nothing was written: what the older checkpoint leads to is all there.
        image.flip_bit(node.payload() + 3);
        assert!(image.read(0, 64 << 20) == before);
        assert_holds(&open(&media, 2), 0..BLOCKS);
    }
}

/// As long as none vouches for more, each damaged pack is searched for anew.
#[test]
fn one_search_serves_for_many_damaged_packs() {
    const PACKS: u64 = 400;
    let (media, drive) = new_drive(1 << 30, 1 << 30);
    for block in 0..PACKS {
        write(&drive, block, 0);
        run(drive.flush()).expect("flush");
    }
    write(&drive, PACKS, 0);
    drop(drive);
    let image = Image::of(&media);
    let places: Vec<u64> = image.records(RecordKind::Data).iter().map(|r| r.payload() + 9).collect();
    // The last one was called durable by none.
    places[..PACKS as usize - 1].iter().for_each(|place| image.flip_bit(*place));
    let counting = Arc::new(Counting { media, reads: AtomicU64::new(0) });
    let drive = run(Drive::open(erased(counting.clone()), OpenOptions::new(9, spawner()))).expect("open");
    assert_eq!(drive.status().recovered.damaged_records_count, PACKS - 1);
    let reads = counting.reads.load(Relaxed);
    assert!(reads < 2000, "{reads} reads");
}

/// Counts reads.
struct Counting {
    media: Arc<MemoryMedia>,
    reads: AtomicU64,
}

impl Media for Counting {
    fn size_bytes(&self) -> u64 {
        self.media.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        self.reads.fetch_add(1, Relaxed);
        self.media.read(offset, buf).await
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.media.write(offset, buf).await
    }

    async fn sync(&self) -> io::Result<()> {
        self.media.sync().await
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.media.discard(offset, len).await
    }
}

/// A block similar to many others and without repetitions of its own: data for dictionaries.
fn log_lines(n: u64) -> Vec<u8> {
    let mut out = String::new();
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while out.len() < BLOCK as usize {
        z = (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        out += &format!(
            "time=2026 level=info host=web-{}.example request=\"GET /shop/article/{}\" bytes={}\n",
            z % 251,
            z >> 32 & 0xffff,
            z >> 40 & 0xffff
        );
    }
    out.truncate(BLOCK as usize);
    out.into_bytes()
}

/// Without it, all that was compressed with it would be lost.
#[test]
fn a_dictionary_is_not_done_without() {
    let media = new_media(codec::Policy::Auto);
    let options = OpenOptions { sample_blocks: 256, ..OpenOptions::new(1, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    for n in 0..600 {
        run(drive.write(n * BLOCK, &log_lines(n), false)).expect("write");
    }
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    run(drive.flush()).expect("flush");
    write(&drive, 9000, 0);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    let own = |r: &image::OnMedia| r.header.block >= OWN_FIRST_BLOCK;
    let dictionary = image.records(RecordKind::Data).into_iter().rfind(own).expect("its record");
    image.flip_bit(dictionary.payload() + 40);
    assert!(refusal(&media).contains("is missing or torn"));
}
