//! A stored drive with damage, opened read-only. The input is a list of changes to one of the drives in
//! `tests/drives`.

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::{CheckOptions, Drive, Error, OpenOptions, Zeroes};
use layout::{Checkpoint, PackHeader, RecordHeader, RecordKind, Superblock};
use media::Media;

use super::common::{erased, run, spawner};
use super::memory::Watch;
use super::seal;
use super::sparse::Sparse;

const PAGE: usize = 4096;
/// Size of the backing: images may claim to be larger than they are.
const BACKING_BYTES: u64 = 1 << 40;
/// Bytes of a change: what, where (4), new contents (8), and how much of it.
const CHANGE_BYTES: usize = 14;
/// Most changes in one input.
const CHANGES_MAX: usize = 16;
/// Bytes read from the beginning of the drive.
const READ_BYTES_MAX: u64 = 20 << 20;
/// Memory that opening, reading and checking may take, whatever the image claims: the defaults for a drive,
/// and what 2^21 claimed segments take.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Compressed images.
const IMAGES: [&[u8]; 13] = [
    include_bytes!("../drives/empty.img.zst"),
    include_bytes!("../drives/codecs.img.zst"),
    include_bytes!("../drives/dictionaries.img.zst"),
    include_bytes!("../drives/not-closed.img.zst"),
    include_bytes!("../drives/divided.img.zst"),
    include_bytes!("../drives/map.img.zst"),
    include_bytes!("../drives/overlays.img.zst"),
    include_bytes!("../drives/checkpoint-cut.img.zst"),
    include_bytes!("../drives/grown-cut.img.zst"),
    include_bytes!("../drives/wiped.img.zst"),
    include_bytes!("../drives/left-out.img.zst"),
    include_bytes!("../drives/damaged.img.zst"),
    include_bytes!("../drives/far-copies.img.zst"),
];

/// Number of images: the first byte of an input chooses one.
pub(crate) const IMAGES_COUNT: u8 = IMAGES.len() as u8;

/// A drive before the damage, and where its structures are.
struct Base {
    image: Arc<Vec<u8>>,
    superblock: Superblock,
    /// Pages that are not blank.
    pages: Vec<u64>,
    /// Copies of checkpoints: offset and length.
    checkpoints: Vec<(u64, usize)>,
    /// Packs: offset and length.
    packs: Vec<(u64, usize)>,
    /// Entries in nodes and overlays of the map.
    entries: Vec<EntryPlace>,
}

/// Place of a map entry in a pack.
#[derive(Clone, Copy)]
struct EntryPlace {
    pack: (u64, usize),
    /// Bytes from the beginning of the pack.
    at: usize,
    /// Bytes from this entry to the next one. In runs of 12 bytes the two bytes before an entry count its
    /// blocks.
    stride: usize,
}

/// Returns the entries in the nodes and overlays of a pack.
fn entries_of(pack: (u64, usize), bytes: &[u8]) -> Vec<EntryPlace> {
    let mut entries = Vec::new();
    let Ok(header) = PackHeader::decode(bytes) else { return entries };
    let _ = layout::pack::walk_records(&bytes[..header.used as usize], header.records, |at, raw| {
        let record = RecordHeader::decode(raw)?;
        // Bytes of an item, and of what comes before the entry in it.
        let (stride, before) = match (record.kind, record.codec) {
            (RecordKind::Node, 0) => (8, 0),
            (RecordKind::Node, 1) | (RecordKind::Overlay, 0) => (10, 2),
            (RecordKind::Node | RecordKind::Overlay, 2) => (12, 4),
            _ => return Ok(()),
        };
        let first = at as usize + layout::record::RECORD_HEADER_BYTES;
        let items = usize::from(record.payload_len) / stride;
        let places = (0..items).map(|item| first + item * stride + before);
        entries.extend(places.map(|at| EntryPlace { pack, at, stride }));
        Ok(())
    });
    entries
}

thread_local! {
    static BASES: Vec<Base> = IMAGES.iter().map(|compressed| Base::of(compressed)).collect();
}

impl Base {
    fn of(compressed: &[u8]) -> Base {
        let len = zstd_safe::get_frame_content_size(compressed).ok().flatten().expect("a size");
        let mut image = vec![0; len as usize];
        zstd_safe::decompress(&mut image[..], compressed).expect("a stored drive");
        let superblock = Superblock::decode(&image).expect("a superblock");
        let is_blank = |page: &[u8]| page.iter().all(|byte| *byte == 0);
        let pages =
            (0..).zip(image.chunks(PAGE)).filter(|(_, page)| !is_blank(page)).map(|(n, _)| n).collect();
        let geometry = superblock.geometry;
        let places = [0, 1].into_iter().flat_map(|slot| geometry.checkpoint_places(slot));
        let checkpoints = places.into_iter().filter_map(|at| {
            let found = Checkpoint::decode_summary(&image[at as usize..]).ok()?;
            Some((at, Checkpoint::encoded_len(found.segments as usize)))
        });
        let checkpoints = checkpoints.collect();
        let packs = (geometry.segments_offset() as usize..image.len()).step_by(PAGE).filter_map(|at| {
            let header = PackHeader::decode(&image[at..]).ok()?;
            Some((at as u64, header.len as usize))
        });
        let packs: Vec<(u64, usize)> = packs.collect();
        let entries = packs.iter().flat_map(|pack| entries_of(*pack, &image[pack.0 as usize..][..pack.1]));
        Base { pages, checkpoints, entries: entries.collect(), packs, superblock, image: Arc::new(image) }
    }
}

/// Reads `len` bytes at `offset`, which is that of a page.
fn read(media: &Sparse, offset: u64, len: usize) -> Vec<u8> {
    let pages = offset / PAGE as u64..(offset + len as u64).div_ceil(PAGE as u64);
    let mut bytes: Vec<u8> = pages.flat_map(|page| media.page(page)).collect();
    bytes.truncate(len);
    bytes
}

fn write(media: &Sparse, offset: u64, bytes: &[u8]) {
    for (number, bytes) in (offset / PAGE as u64..).zip(bytes.chunks(PAGE)) {
        let mut page = media.page(number);
        page[..bytes.len()].copy_from_slice(bytes);
        media.set_page(number, page);
    }
}

/// A place of `list`, chosen by a number.
fn chosen<T: Copy>(list: &[T], number: u32) -> Option<T> {
    list.get(number as usize % list.len().max(1)).copied()
}

/// Makes one change: to any page as it is, to a structure whose checksums are made right again, or to an
/// entry of the map, which becomes that of another block, a longer run or slightly another.
fn change(media: &Sparse, base: &Base, bytes: &[u8; CHANGE_BYTES]) {
    let what = bytes[0];
    let place = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    let (value, len) = (&bytes[5..13], 1 << (bytes[13] & 3));
    // Headers are where the fields are.
    let at = |within: usize| {
        let most = if bytes[13] & 4 == 0 { within.min(160) } else { within };
        (place as usize >> 8) % most.max(1) / len * len
    };
    let put = |bytes: &mut [u8], at: usize| {
        let end = bytes.len().min(at + len);
        bytes[at..end].copy_from_slice(&value[..end - at]);
    };
    match what % 8 {
        0..3 => {
            let Some(page) = chosen(&base.pages, place) else { return };
            let mut bytes = media.page(page);
            let at = at(PAGE);
            match what % 8 {
                0 => bytes[at] ^= 1 << (value[0] % 8),
                1 => put(&mut bytes, at),
                // An insertion.
                _ => {
                    bytes.copy_within(at..PAGE - len, at + len);
                    put(&mut bytes, at);
                }
            }
            media.set_page(page, bytes);
        }
        3 => {
            let (Some(from), Some(to)) = (chosen(&base.pages, place), chosen(&base.pages, place >> 16))
            else {
                return;
            };
            media.set_page(to, if value[0] == 0 { [0; PAGE] } else { media.page(from) });
        }
        4 => {
            let mut page = read(media, 0, PAGE);
            put(&mut page, at(PAGE));
            seal::superblock(&mut page);
            for (copy, at) in base.superblock.geometry.superblock_places().into_iter().enumerate() {
                if value[7] & 1 << copy == 0 || copy == 0 {
                    write(media, at, &page);
                }
            }
        }
        5 => {
            let Some((offset, len)) = chosen(&base.checkpoints, place) else { return };
            let mut bytes = read(media, offset, len);
            put(&mut bytes, at(len));
            seal::checkpoint(&mut bytes);
            write(media, offset, &bytes);
        }
        6 => {
            let (Some(from), Some(to)) = (chosen(&base.entries, place), chosen(&base.entries, place >> 16))
            else {
                return;
            };
            let source = read(media, from.pack.0, from.pack.1);
            let mut bytes = read(media, to.pack.0, to.pack.1);
            let neighbour = (to.at + to.stride).min(bytes.len() - 8);
            match value[0] % 4 {
                0 => bytes[to.at..to.at + 8].copy_from_slice(&source[from.at..from.at + 8]),
                1 => bytes.copy_within(neighbour..neighbour + 8, to.at),
                2 if to.stride == 12 => bytes[to.at - 2..to.at].copy_from_slice(&value[1..3]),
                _ => bytes[to.at + usize::from(value[1] % 8)] ^= 1 << (value[2] % 8),
            }
            seal::pack(&mut bytes);
            write(media, to.pack.0, &bytes);
        }
        _ => {
            let Some((offset, len)) = chosen(&base.packs, place) else { return };
            let mut bytes = read(media, offset, len);
            put(&mut bytes, at(len));
            seal::pack(&mut bytes);
            write(media, offset, &bytes);
        }
    }
}

/// Bit 7 of the first byte accepts damage. With bit 6 the drive is then opened for writing, too.
pub(crate) fn target(data: &[u8]) {
    let Some((first, changes)) = data.split_first() else { return };
    BASES.with(|bases| {
        let base = &bases[usize::from(first & 0x3f) % bases.len()];
        let media = Arc::new(Sparse::new(BACKING_BYTES, base.image.clone()));
        for bytes in changes.as_chunks::<CHANGE_BYTES>().0.iter().take(CHANGES_MAX) {
            change(&media, base, bytes);
        }
        let watch = super::memory::watch();
        use_it(&media, first & 0x80 != 0);
        if let Some(grown) = watch.as_ref().map(Watch::grown_bytes) {
            assert!(grown <= MEMORY_BYTES_MAX, "{grown} bytes of memory");
        }
        if first & 0x40 != 0 {
            let _ = change_it(&media);
        }
        assert!(base.superblock.geometry.segments() > 0 && media.size_bytes() == BACKING_BYTES);
    });
}

/// Opens, reads and checks. Any error is acceptable.
fn use_it(media: &Arc<Sparse>, accept_damage: bool) {
    let (superblocks, _) = run(drive::find_copies(&**media));
    assert!((2..=3).contains(&superblocks.len()));
    let options = OpenOptions { read_only: true, accept_damage, ..OpenOptions::new(7, spawner()) };
    let written_bytes = media.written_bytes();
    let Ok(drive) = run(Drive::open(erased(media.clone()), options)) else { return };
    let status = drive.status();
    let capacity = status.logical_capacity_bytes;
    let mut offsets: BTreeSet<u64> = (0..capacity.min(READ_BYTES_MAX)).step_by(256 << 10).collect();
    offsets.insert(capacity - PAGE as u64);
    for offset in offsets {
        let mut bytes = vec![0; (capacity - offset).min(256 << 10) as usize];
        let _ = run(drive.read(offset, &mut bytes));
    }
    // As far as an NBD request asks. Time is not bounded by what the image holds.
    let _ = run(drive.extents(0, capacity.min(4 << 30), 1000));
    let options = CheckOptions { deep: true, memory_bytes: 1 << 20 };
    if let Ok(report) = run(drive.examine(options, |_| {})) {
        assert!(report.faults.len() as u64 <= report.faults_count);
    }
    let _ = run(drive.survey(20));
    let mut block = Some(0);
    for _ in 0..100 {
        block = block.and_then(|block| run(drive.scrub_step(block)).ok()?.next_block);
    }
    let _ = run(drive.close());
    assert_eq!(media.written_bytes(), written_bytes, "opened read-only");
}

/// Opens for writing, and changes what there is. Any error is acceptable.
fn change_it(media: &Arc<Sparse>) -> Result<(), Error> {
    for entropy in 1..3 {
        let drive = run(Drive::open(erased(media.clone()), OpenOptions::new(entropy, spawner())))?;
        let capacity = drive.status().logical_capacity_bytes;
        let data: Vec<u8> = (0..64 << 10).map(|n: u32| ((n / 300) ^ (n / 7)) as u8).collect();
        for offset in [0, 5 * 4096, 1 << 20, 2 << 20] {
            if offset + data.len() as u64 <= capacity {
                run(drive.write(offset, &data, false))?;
                run(drive.read(offset, &mut vec![0; data.len()]))?;
                run(drive.trim(offset + 4096, 3 * 4096, false))?;
            }
        }
        run(drive.flush())?;
        run(drive.write_zeroes(0, capacity.min(1 << 20), Zeroes::default()))?;
        for _ in 0..8 {
            if !run(drive.clean())? {
                break;
            }
        }
        run(drive.trim(0, capacity.min(64 << 20), true))?;
        run(drive.checkpoint())?;
        for _ in 0..8 {
            drive.tick();
            run(drive.maintain())?;
        }
        run(drive.close())?;
    }
    Ok(())
}
