//! Creates the stored drives that `tests/drives` does not have yet. Existing ones are never created again:
//! they were written by the release that the manifest names.
//!
//! ```text
//! cargo test -p drive --test engine make_drives -- --ignored
//! ```

use std::fs;
use std::io::Write;

use crate::common::create_options;
use crate::faulty::Faulty;
use crate::host::{Host, MIB, lines, noise, numbered};
use crate::image::Image;
use crate::kinds::alike;
use crate::stored::{
    Stored, compress, contents, directory, faults, image_of, manifest, media_of, open_read_only,
};
use codec::Policy;
use drive::{CreateOptions, Settle, WipeOptions};
use layout::{RecordKind, SegmentRow, SegmentUse};
use media::{Media, MemoryMedia};

/// Release and date for the manifest.
const WRITTEN: &str = concat!(env!("CARGO_PKG_VERSION"), ", 2026-11-29");
/// Size of the smallest drive with segments of 512 KiB.
const PHYSICAL: u64 = 13 * MIB;
const LOGICAL: u64 = 16 * MIB;

/// An image, its logical contents, and which blocks of these are damaged.
struct Made {
    image: Vec<u8>,
    contents: Vec<u8>,
    unreadable: Vec<u64>,
    full: bool,
}

struct Kind {
    name: &'static str,
    holds: &'static str,
    make: fn() -> Made,
}

const KINDS: &[Kind] = &[
    Kind { name: "empty", holds: "nothing: never opened", make: empty },
    Kind {
        name: "codecs",
        holds: "raw, LZ4, Zstandard, DEFLATE; single blocks, frames of 2, 4 and 8; fills",
        make: codecs,
    },
    Kind { name: "full", holds: "as much incompressible data as fits", make: full },
    Kind { name: "left-out", holds: "frames moved in part, behind the newest checkpoint", make: left_out },
    Kind { name: "holes", holds: "frames with dead blocks, full, closed", make: holes },
    Kind {
        name: "dictionaries",
        holds: "a dictionary, a retired one, records of both, settled frames",
        make: dictionaries,
    },
    Kind {
        name: "not-closed",
        holds: "data, ranges, fills and TRIM behind the newest checkpoint",
        make: not_closed,
    },
    Kind { name: "divided", holds: "a write divided over two packs, last in the log", make: divided },
    Kind {
        name: "divided-cut",
        holds: "the first of the two packs of a divided write, last in the log",
        make: divided_cut,
    },
    Kind { name: "map", holds: "leaves in all three codings, zeroed and trimmed leaves", make: map },
    Kind {
        name: "overlays",
        holds: "a checkpoint with overlays, in pairs and as runs, and a table of two pages",
        make: overlays,
    },
    Kind {
        name: "checkpoint-cut",
        holds: "a power cut while a checkpoint's table was written",
        make: checkpoint_cut,
    },
    Kind { name: "bad-segments", holds: "segments that took no write", make: bad_segments },
    Kind { name: "damaged", holds: "a damaged segment with a record that cannot be read", make: damaged },
    Kind { name: "grown", holds: "twice its first sizes, closed", make: grown },
    Kind { name: "grown-cut", holds: "twice its first size, with the table of before", make: grown_cut },
    Kind { name: "wiped", holds: "data of after two wipes, and packs of before", make: wiped },
    Kind { name: "sectors-4096", holds: "sectors of 4096 bytes", make: sectors },
    Kind {
        name: "keep-allocated",
        holds: "compatible feature 0: freed space stays allocated",
        make: keep_allocated,
    },
    Kind {
        name: "far-copies",
        holds: "read-only-compatible feature 0: far copies of superblock and checkpoints, closed",
        make: far_copies,
    },
    Kind { name: "noted", holds: "a last checkpoint that notes that it is durable, closed", make: noted },
    Kind { name: "openings", holds: "the ids of three openings, closed", make: openings },
    Kind {
        name: "later-bytes",
        holds: "bytes and flags that this release does not use, everywhere; a table of three pages, closed",
        make: later_bytes,
    },
];

#[test]
#[ignore = "writes to tests/drives"]
fn make_the_drives_that_are_missing() {
    let known = manifest().drive;
    let path = directory().join("manifest.toml");
    for kind in KINDS.iter().filter(|kind| known.iter().all(|stored| stored.name != kind.name)) {
        let stored = made(kind);
        let mut file = fs::File::create_new(stored.0.path()).expect("a file that is not there");
        file.write_all(&compress(&stored.1)).expect("write");
        let mut file = fs::OpenOptions::new().append(true).open(&path).expect("a manifest");
        file.write_all(stored.0.to_toml().as_bytes()).expect("write");
    }
}

#[test]
#[ignore = "takes longer than the others"]
fn the_same_is_made_each_time() {
    for kind in KINDS {
        assert!((kind.make)().image == (kind.make)().image, "{}", kind.name);
    }
}

/// Creates a drive. Returns its entry and image.
fn made(kind: &Kind) -> (Stored, Vec<u8>) {
    let made = (kind.make)();
    let drive = open_read_only(&media_of(&made.image));
    let (bytes, unreadable) = contents(&drive);
    assert!(bytes == made.contents, "{}: it does not hold what was written", kind.name);
    assert_eq!(unreadable, made.unreadable, "{}", kind.name);
    let stored = Stored {
        name: kind.name.into(),
        holds: kind.holds.into(),
        written: WRITTEN.into(),
        image_sha256: crate::stored::sha256(&made.image),
        logical_bytes: bytes.len() as u64,
        contents_sha256: crate::stored::sha256(&bytes),
        faults: faults(&drive, &unreadable),
        unreadable_blocks: unreadable,
        full: made.full,
    };
    (stored, made.image)
}

fn options() -> CreateOptions {
    CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, LOGICAL) }
}

fn new(options: &CreateOptions) -> Host<MemoryMedia> {
    Host::create(MemoryMedia::new(options.physical_size_bytes), options)
}

impl<M: Media> Host<M> {
    /// Returns the image as after a power cut now, or after the drive was closed.
    fn made(self) -> Made {
        let image = image_of(&*self.media);
        Made { image, contents: self.contents, unreadable: Vec::new(), full: false }
    }
}

/// Writes a small amount of each kind of data.
fn some(host: &mut Host<impl Media>) {
    for block in 0..24 {
        host.write(block, &lines(block, 1));
    }
    let frames: Vec<u8> = (32..64).flat_map(|block| lines(block, 1)).collect();
    host.write(32, &frames);
    host.write(70, &noise(70));
    host.write(80, &[0x20; 8192]);
}

fn empty() -> Made {
    let media = MemoryMedia::new(PHYSICAL);
    crate::common::run(drive::Drive::create(&media, &options())).expect("create");
    Made { image: image_of(&media), contents: vec![0; LOGICAL as usize], unreadable: Vec::new(), full: false }
}

fn codecs() -> Made {
    let mut host = new(&CreateOptions { codec: Policy::None, ..options() });
    let policies = [
        Policy::None,
        Policy::Lz4,
        Policy::Zstd(1),
        Policy::Zstd(9),
        Policy::Zstd(-3),
        Policy::Deflate(6),
        Policy::Auto,
    ];
    for (first, policy) in (0..).step_by(64).zip(policies) {
        host.do_on(async |drive| drive.set_codec(policy).await);
        // Frames of 2, 4, 8, 4 and 2 blocks, then single ones.
        let data: Vec<u8> = (first + 2..first + 22).flat_map(|block| lines(block, 1)).collect();
        host.write(first + 2, &data);
        for block in first + 32..first + 36 {
            host.write(block, &lines(block, 2));
        }
        host.write(first + 40, &noise(first));
        host.write(first + 41, &[first as u8; 4096]);
        host.flush();
    }
    let codecs = Image::of_any(&host.media).records(RecordKind::Data).into_iter();
    let mut codecs: Vec<u8> = codecs.map(|record| record.header.codec & 15).collect();
    codecs.sort_unstable();
    codecs.dedup();
    assert_eq!(codecs, [0, 1, 2, 3]);
    host.close();
    host.made()
}

fn full() -> Made {
    let mut host = new(&CreateOptions { codec: Policy::None, ..options() });
    host.fill(0, noise);
    host.close();
    Made { full: true, ..host.made() }
}

fn left_out() -> Made {
    let mut host = new(&options());
    frames_with_holes(&mut host, 24);
    host.do_on(async |drive| drive.checkpoint().await);
    while host.do_on(async |drive| drive.clean().await) {}
    host.sync_moved();
    let records = Image::of_any(&host.media).records(RecordKind::Data);
    assert!(records.iter().filter(|record| record.header.left_out != 0).count() > 10);
    host.made()
}

/// Writes frames of equal blocks that lose up to seven of them, among data that is trimmed again.
fn frames_with_holes(host: &mut Host<impl Media>, frames: u64) {
    let ballast = |frame| 2048 + frame * 32;
    for frame in 0..frames {
        host.write(frame * 8, &alike(frame % 3));
        host.write(ballast(frame), &(0..24).flat_map(noise).collect::<Vec<_>>());
    }
    for block in 0..frames * 8 {
        match (block / 8 * 5 + block % 8 * 3) % 7 {
            1 | 4 => host.write(block, &noise(block)),
            2 | 5 => host.trim(block, 1),
            _ => {}
        }
    }
    host.trim(2048, 2048);
    host.flush();
}

fn holes() -> Made {
    let mut host = new(&options());
    frames_with_holes(&mut host, 24);
    host.fill(512, noise);
    host.close();
    Made { full: true, ..host.made() }
}

fn dictionaries() -> Made {
    let mut host = new(&CreateOptions { codec: Policy::Auto, ..options() });
    host.sample_blocks = 128;
    host.reopen();
    let mut trained = Vec::new();
    for kind in 0..2 {
        let page = |block: u64| -> Vec<u8> {
            let page = crate::host::page(block);
            if kind == 0 { page } else { page.into_iter().rev().map(|byte| byte ^ 0x55).collect() }
        };
        for block in 1024..1424 {
            host.write(block, &page(block));
        }
        trained.extend(host.do_on(async |drive| drive.train().await).ids);
        // Data that needs a dictionary stays in place when the dictionary is retired, because it is in
        // separate segments.
        host.close();
        host.reopen();
        let first = kind * 64;
        for block in (first..first + 32).step_by(2).chain((first..first + 32).skip(1).step_by(2)) {
            host.write(block, &page(block));
        }
        host.close();
        host.reopen();
    }
    assert_eq!(trained, [1, 2]);
    // The training data is removed, to make the image small.
    host.trim(1024, 512);
    host.do_on(async |drive| drive.checkpoint().await);
    let mut next = Some(64);
    while let Some(block) = next.filter(|block| *block < 80) {
        next = host.do_on(async |drive| drive.settle_step(block, Settle::All).await).next_block;
    }
    for _ in 0..2 {
        // Closing makes the heads leave the segments with dead data.
        host.close();
        host.reopen();
        host.tidy();
    }
    let status = host.drive().dictionaries();
    assert!(status.iter().any(|d| d.in_use) && status.iter().any(|d| !d.in_use), "{status:?}");
    let of_settled = host.drive().status().composition.settled;
    assert!(of_settled.iter().any(|share| share.logical_bytes > 0), "{of_settled:?}");
    host.close();
    discard_free(&host);
    host.made()
}

/// Zeroes the free segments of a closed drive, including those promised to heads.
fn discard_free(host: &Host<MemoryMedia>) {
    let image = Image::of_any(&host.media);
    let newest = image.newest_checkpoint();
    let geometry = image.geometry();
    image.change_checkpoints(|checkpoint| {
        let free = |row: &SegmentRow| row.usage == SegmentUse::Free;
        let rows =
            (0..).zip(checkpoint.rows.iter()).filter(|(_, row)| checkpoint.number == newest && free(row));
        for (segment, _) in rows {
            image.zero(geometry.segment_offset(segment), geometry.segment_bytes as usize);
        }
    });
}

fn not_closed() -> Made {
    let mut host = new(&options());
    some(&mut host);
    host.do_on(async |drive| drive.checkpoint().await);
    for block in 10..40 {
        host.write(block, &lines(block, 2));
    }
    host.trim(20, 3);
    host.trim(512, 600);
    host.zeroes(100, 600);
    host.write(1000, &[0x77; 64 << 10]);
    host.write(2000, &noise(1));
    host.flush();
    host.made()
}

/// Creates a drive whose log ends with a divided write. Returns also the contents before that write.
fn ending_divided() -> (Host<MemoryMedia>, Vec<u8>) {
    let mut host = new(&CreateOptions { codec: Policy::None, ..options() });
    some(&mut host);
    for step in 0..60 {
        let before = host.contents.clone();
        let data: Vec<u8> = (0..41).flat_map(|block| noise(step * 50 + block)).collect();
        host.write(512 + step % 3 * 64, &data);
        let packs = Image::of_any(&host.media).packs();
        if let [.., (_, first), (_, second)] = &packs[..]
            && first.continued > 0
        {
            assert_eq!(first.sequence + 1, second.sequence);
            return (host, before);
        }
        host.flush();
    }
    panic!("no write was divided");
}

fn divided() -> Made {
    let (mut host, _) = ending_divided();
    host.flush();
    host.made()
}

fn divided_cut() -> Made {
    let (host, before) = ending_divided();
    let image = Image::of_any(&host.media);
    let (position, header) = image.packs().pop().expect("packs");
    image.zero(position, header.len as usize);
    Made { contents: before, ..host.made() }
}

fn map() -> Made {
    let mut host = new(&options());
    some(&mut host);
    // A dense leaf, one filled with a word, and one trimmed after it was written.
    for block in 512..1000 {
        host.write(block, &numbered(block));
    }
    host.zeroes(1024, 512);
    host.write(1536, &[0x55; 1 << 20]);
    for block in 2048..2060 {
        host.write(block, &lines(block, 1));
    }
    host.flush();
    host.do_on(async |drive| drive.checkpoint().await);
    host.trim(2048, 512);
    host.close();
    let nodes = Image::of_any(&host.media).records(RecordKind::Node);
    assert!((0..3).all(|coding| nodes.iter().any(|node| node.header.codec == coding)), "all codings");
    host.made()
}

/// Creates a drive whose leaves are on the medium, opens it again, and changes leaves that are not in memory.
fn with_changes(physical: u64) -> Host<MemoryMedia> {
    let mut host = new(&CreateOptions { physical_size_bytes: physical, ..options() });
    some(&mut host);
    for leaf in 1..8 {
        host.write(leaf * 512, &lines(leaf, 1));
    }
    host.close();
    host.reopen();
    for leaf in 1..7 {
        host.write(leaf * 512 + 1, &lines(leaf, 2));
    }
    host.zeroes(3000, 100);
    host.trim(7 * 512, 2);
    host.flush();
    host
}

fn overlays() -> Made {
    let mut host = with_changes(96 * MIB);
    host.do_on(async |drive| drive.checkpoint().await);
    let overlays = Image::of_any(&host.media).records(RecordKind::Overlay);
    assert!([0, 2].iter().all(|coding| overlays.iter().any(|overlay| overlay.header.codec == *coding)));
    host.write(9, &lines(9, 3));
    host.flush();
    host.made()
}

fn checkpoint_cut() -> Made {
    let host = with_changes(96 * MIB);
    let before = image_of(&*host.media);
    host.do_on(async |drive| drive.checkpoint().await);
    let image = Image::of_any(&host.media);
    let [first, second] = image.copies_of(image.newest_checkpoint());
    // Only the header page of the first copy was written, and nothing of the second.
    for (start, len) in [(first + 4096, 8192), (second, 12288)] {
        let old = before[start as usize..][..len].to_vec();
        assert!(image.read(start, len) != old, "nothing was written there");
        image.write(start, &old);
    }
    host.made()
}

fn bad_segments() -> Made {
    let mut host = Host::create(Faulty::new(PHYSICAL), &options());
    some(&mut host);
    host.flush();
    let geometry = Image::of_any(&host.media).geometry();
    for (round, segment) in [(0, 4), (1, 6)] {
        let start = geometry.segment_offset(segment);
        host.media.unwritable.lock().push(start..start + (64 << 10));
        for block in 0..300 {
            host.write(1000 + block, &noise(round * 1000 + block));
        }
        host.flush();
    }
    host.trim(1000, 300);
    host.flush();
    assert!(host.drive().status().segments_bad_count > 0);
    host.close();
    host.made()
}

fn damaged() -> Made {
    let mut host = new(&options());
    some(&mut host);
    for block in 512..700 {
        host.write(block, &noise(block));
    }
    host.trim(514, 180);
    host.close();
    let image = Image::of_any(&host.media);
    image.flip_bit(image.newest(RecordKind::Data, 513).payload() + 9);
    host.reopen();
    while host.do_on(async |drive| drive.clean().await) {}
    assert_eq!(host.drive().status().segments_damaged_count, 1);
    host.close();
    host.contents[513 * 4096..514 * 4096].fill(0);
    Made { unreadable: vec![513], ..host.made() }
}

/// Creates a drive on a backing of twice its size.
fn small() -> Host<MemoryMedia> {
    let mut host = Host::create(MemoryMedia::new(2 * PHYSICAL), &options());
    some(&mut host);
    host.flush();
    host
}

fn grown() -> Made {
    let mut host = small();
    host.do_on(async |drive| drive.set_physical_size(2 * PHYSICAL).await);
    host.do_on(async |drive| drive.set_logical_capacity(2 * LOGICAL).await);
    host.contents.resize(2 * LOGICAL as usize, 0);
    // More data than would have fit before.
    for first in (1024..3072).step_by(64) {
        host.write(first, &(first..first + 64).flat_map(noise).collect::<Vec<_>>());
    }
    host.write(8000, &lines(8000, 1));
    host.close();
    host.made()
}

fn grown_cut() -> Made {
    let host = small();
    host.do_on(async |drive| drive.set_physical_size(2 * PHYSICAL).await);
    host.made()
}

fn wiped() -> Made {
    let mut host = new(&options());
    for _ in 0..2 {
        some(&mut host);
        host.close();
        crate::common::run(drive::Drive::wipe(&*host.media, WipeOptions::any())).expect("wipe");
        host.contents.fill(0);
        host.reopen();
    }
    for block in 4..12 {
        host.write(block, &lines(block, 5));
    }
    host.flush();
    host.made()
}

fn sectors() -> Made {
    let mut host = new(&CreateOptions { sector_bytes: 4096, ..options() });
    some(&mut host);
    host.close();
    host.made()
}

fn noted() -> Made {
    let mut host = new(&options());
    some(&mut host);
    host.close();
    host.made()
}

fn later_bytes() -> Made {
    let mut host =
        new(&CreateOptions { physical_size_bytes: 180 * MIB, far_copies: Some(false), ..options() });
    some(&mut host);
    host.close();
    host.reopen();
    host.write(100, &lines(100, 1));
    host.close();
    Image::of_any(&host.media).use_later_bytes();
    host.made()
}

fn openings() -> Made {
    let mut host = new(&options());
    for round in 0..3 {
        host.write(round, &lines(round, 1));
        host.close();
        host.reopen();
    }
    host.close();
    host.made()
}

fn far_copies() -> Made {
    let physical_size_bytes = 16 * MIB;
    let mut host = new(&CreateOptions { physical_size_bytes, far_copies: Some(true), ..options() });
    some(&mut host);
    host.close();
    host.made()
}

fn keep_allocated() -> Made {
    let mut host = new(&CreateOptions { keep_allocated: true, ..options() });
    for block in 1000..1256 {
        host.write(block, &noise(block));
    }
    some(&mut host);
    host.trim(1000, 256);
    host.close();
    host.made()
}
