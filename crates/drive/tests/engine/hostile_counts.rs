//! Counts near the end of their range, in a superblock or checkpoint with valid checksums: they are refused,
//! or saturate, but never cause a panic. Overflow is checked here as in every test build.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::{random, text_like};
use common::{erased, new_drive, open, run, spawner};
use drive::{Drive, Error, OpenOptions, WipeOptions, Zeroes};
use image::Image;
use layout::{Checkpoint, Counters, Superblock};
use media::MemoryMedia;

/// Creates a closed drive with data of most kinds.
fn written() -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    run(drive.write(0, &text_like(1, 1 << 20), false)).expect("write");
    for block in 300..700 {
        run(drive.write(block * 4096, &random(block, 4096), false)).expect("write");
    }
    run(drive.write_zeroes(8 << 20, 4 << 20, Zeroes::default())).expect("zeroes");
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    (media, image)
}

/// Uses all functions that count, unless the drive is refused.
fn use_all(media: &Arc<MemoryMedia>) -> Result<(), Error> {
    for entropy in 5..7 {
        let drive = run(Drive::open(erased(media.clone()), OpenOptions::new(entropy, spawner())))?;
        drive.status();
        run(drive.write(0, &text_like(2, 2 << 20), true))?;
        run(drive.write(400 * 4096, &random(9, 64 << 10), false))?;
        run(drive.write_zeroes(20 << 20, 8 << 20, Zeroes::default()))?;
        run(drive.trim(500 * 4096, 100 * 4096, false))?;
        run(drive.read(0, &mut vec![0; 4 << 20]))?;
        drive.count_powered(10);
        while run(drive.clean())? {}
        run(drive.checkpoint())?;
        for _ in 0..60 {
            drive.tick();
        }
        while run(drive.maintain())? {}
        run(drive.check(true))?;
        drive.status();
        run(drive.set_logical_capacity((128 << 20) + entropy * 4096))?;
        run(drive.close())?;
    }
    // Also opened read-only.
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    run(Drive::open(erased(media.clone()), options))?.status();
    run(Drive::wipe(&**media, WipeOptions::any()))?;
    open(media, 8).status();
    Ok(())
}

/// Checks the acceptable outcomes: it works, or it is refused as corrupt or invalid.
fn assert_no_panic(what: &str, used: Result<(), Error>) {
    assert!(
        matches!(used, Ok(()) | Err(Error::Corrupt(_) | Error::Damaged(_) | Error::Invalid(_))),
        "{what}: {used:?}"
    );
}

fn with_checkpoint(what: &str, change: impl Fn(&mut Checkpoint)) {
    let (media, image) = written();
    image.change_checkpoints(change);
    assert_no_panic(what, use_all(&media));
}

fn with_superblock(what: &str, change: impl Fn(&mut Superblock)) {
    let (media, mut image) = written();
    change(&mut image.superblock);
    let page = image.superblock.encode();
    for copy in 0..2 {
        image.write(layout::Geometry::superblock_offset(copy), &page);
    }
    assert_no_panic(what, use_all(&media));
}

/// Values near the end of the range: the last one, and some before it.
const ENDS: [u64; 3] = [u64::MAX, u64::MAX - 1, u64::MAX - 5000];

type Counter = (&'static str, fn(&mut Counters) -> &mut u64);

const COUNTERS: [Counter; 18] = [
    ("host_written_bytes", |c| &mut c.host_written_bytes),
    ("host_read_bytes", |c| &mut c.host_read_bytes),
    ("physical_written_bytes", |c| &mut c.physical_written_bytes),
    ("physical_read_bytes", |c| &mut c.physical_read_bytes),
    ("cleaning_written_bytes", |c| &mut c.cleaning_written_bytes),
    ("map_written_bytes", |c| &mut c.map_written_bytes),
    ("discarded_bytes", |c| &mut c.discarded_bytes),
    ("flushes_count", |c| &mut c.flushes_count),
    ("segments_cleaned_count", |c| &mut c.segments_cleaned_count),
    ("checkpoints_count", |c| &mut c.checkpoints_count),
    ("read_errors_count", |c| &mut c.read_errors_count),
    ("write_errors_count", |c| &mut c.write_errors_count),
    ("corrupt_records_count", |c| &mut c.corrupt_records_count),
    ("unclean_opens_count", |c| &mut c.unclean_opens_count),
    ("host_trimmed_bytes", |c| &mut c.host_trimmed_bytes),
    ("corrected_reads_count", |c| &mut c.corrected_reads_count),
    ("opens_count", |c| &mut c.opens_count),
    ("powered_seconds", |c| &mut c.powered_seconds),
];

#[test]
fn lifetime_counters() {
    for end in ENDS {
        for (name, counter) in COUNTERS {
            with_checkpoint(&format!("{name} {end}"), |c| *counter(&mut c.counters) = end);
            // Not closed, and one copy each of checkpoint and superblock is lost.
            let (media, image) = written();
            image.change_checkpoints(|c| {
                *counter(&mut c.counters) = end;
                c.clean = false;
            });
            image.zero(image.copies_of(image.newest_checkpoint())[0], 4096);
            image.zero(0, 4096);
            assert_no_panic(&format!("{name} {end}, not closed"), use_all(&media));
        }
    }
}

/// Lifetime counters may reach the end of their range. The drive continues.
#[test]
fn counters_at_their_end_stop_no_drive() {
    for end in [layout::checkpoint::COUNT_MAX, layout::checkpoint::COUNT_MAX + 1, u64::MAX] {
        let (media, mut image) = written();
        image
            .change_checkpoints(|c| COUNTERS.iter().for_each(|(_, counter)| *counter(&mut c.counters) = end));
        image.superblock.worn_bytes = end;
        let page = image.superblock.encode();
        (0..2).for_each(|copy| image.write(layout::Geometry::superblock_offset(copy), &page));
        use_all(&media).unwrap_or_else(|error| panic!("{end}: {error}"));
    }
}

#[test]
fn counts_of_live_data() {
    for end in ENDS {
        for class in 0..9 {
            with_checkpoint(&format!("blocks of class {class}: {end}"), |c| c.mix.blocks[class] = end);
            with_checkpoint(&format!("units of class {class}: {end}"), |c| c.mix.units[class] = end);
        }
        with_checkpoint(&format!("all classes: {end}"), |c| {
            c.mix.blocks = [end; 9];
            c.mix.units = [end; 9];
        });
        with_checkpoint(&format!("live blocks: {end}"), |c| c.live_blocks = end);
        with_checkpoint(&format!("fills: {end}"), |c| c.fill_blocks = end);
        with_checkpoint(&format!("overlays: {end}"), |c| c.overlay_records = end);
    }
    // The largest accepted values.
    let most = 2 * (128 << 20) / 4096;
    with_checkpoint("live blocks, the most", |c| (c.live_blocks, c.fill_blocks) = (most, most));
    with_checkpoint("no live blocks", |c| (c.live_blocks, c.fill_blocks) = (0, 0));
}

#[test]
fn numbers_that_are_counted_on() {
    const LIMIT: u64 = 1 << 62;
    for end in ENDS.into_iter().chain([LIMIT - 1, LIMIT - 2, LIMIT, LIMIT + 1]) {
        with_checkpoint(&format!("sequence {end}"), |c| c.sequence = end);
        with_checkpoint(&format!("durable {end}"), |c| c.durable = end);
        with_checkpoint(&format!("both {end}"), |c| (c.sequence, c.durable) = (end, end));
        with_checkpoint(&format!("generations {end}"), |c| (c.generations, c.entropy) = (end, end));
        // A larger one cannot be encoded.
        with_checkpoint(&format!("last pack {end}"), |c| c.rows[0].last_sequence = end.min(LIMIT - 1));
        with_checkpoint(&format!("number {end}"), |c| c.number = end & !1 | c.number & 1);
    }
}

#[test]
fn numbers_of_the_superblock() {
    for end in ENDS {
        with_superblock(&format!("update {end}"), |s| s.update = end);
        with_superblock(&format!("worn {end}"), |s| s.worn_bytes = end);
        with_superblock(&format!("endurance {end}"), |s| s.endurance_bytes = end);
        with_superblock(&format!("created {end}"), |s| s.created_unix_seconds = end);
        with_superblock(&format!("worn and endurance {end}"), |s| {
            (s.worn_bytes, s.endurance_bytes) = (end, end);
        });
        // No packs and checkpoints of this incarnation exist, so the drive has to be wiped.
        with_superblock(&format!("incarnation {end}"), |s| s.incarnation = end);
        let (media, mut image) = written();
        image.superblock.incarnation = end;
        let page = image.superblock.encode();
        (0..2).for_each(|copy| image.write(layout::Geometry::superblock_offset(copy), &page));
        assert_no_panic("wiped", run(Drive::wipe(&*media, WipeOptions::any())).map(drop));
    }
}
