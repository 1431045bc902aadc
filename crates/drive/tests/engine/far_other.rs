//! Far copies of a drive that lost its start, beside signs that another drive was made here since, that it
//! was wiped, or that neither can be known.

use crate::common;
use crate::far;
use crate::faulty;
use crate::image;

use std::sync::Arc;

use common::{open, run, spawner};
use drive::{CreateOptions, Drive, Error, OpenOptions, WipeOptions};
use far::{BLOCK, FAR, MIB, SIZE, assert_holds, created, get, look, lose, put, refused, try_open, write};
use faulty::{Faulty, Tasks};
use image::Image;
use layout::{Geometry, Superblock};
use media::MemoryMedia;

/// A drive on the first 30 MiB, in front of what is left of one on all of it. Both lost their start.
fn two_drives() -> Arc<MemoryMedia> {
    let (media, drive) = created(SIZE, SIZE);
    run(drive.close()).expect("close");
    let options = CreateOptions { uuid: [9; 16], ..far::options(30 * MIB) };
    run(Drive::create(&*media, &options)).expect("create");
    lose(&media, MIB);
    media
}

/// Whichever of the two it is.
#[test]
fn of_two_drives_none_is_taken_if_one_is_of_a_later_release() {
    for far in [16 * MIB, FAR] {
        let media = two_drives();
        let at = Geometry::far_superblock_offset(far);
        let mut later = Superblock::decode(&get(&media, at, BLOCK)).expect("a superblock");
        later.features.incompatible = 1 << 9;
        put(&media, at, &later.encode());
        assert!(refused(&media).contains("feature"));
    }
}

#[test]
fn of_two_drives_none_is_written_to_if_one_cannot_be_read() {
    let tasks = Tasks::default();
    for (far, uuid) in [(16 * MIB, [7; 16]), (FAR, [9; 16])] {
        let media = Faulty::holding(get(&two_drives(), 0, SIZE));
        let at = Geometry::far_superblock_offset(far);
        media.lost.lock().push(at..at + BLOCK);
        let media = Arc::new(media);
        let try_open = |read_only| {
            let options = OpenOptions { read_only, ..OpenOptions::new(5, spawner()) };
            tasks.run(Drive::open(common::erased(media.clone()), options))
        };
        let Err(Error::Io(why)) = try_open(false) else { panic!("it was opened") };
        assert!(why.contains(&format!("{at:#x}")) && why.contains("newer drive"), "{why}");
        assert_eq!(media.attempts.lock().len(), 0);
        let wiped = tasks.run(Drive::wipe(&*media, WipeOptions::any()));
        assert!(matches!(wiped, Err(Error::Io(_))), "{wiped:?}");
        let drive = try_open(true).expect("it is only looked at");
        assert_eq!(drive.status().uuid, uuid);
        let notes = drive.status().notes;
        assert!(
            notes.iter().any(|note| note.contains("newer drive") && note.contains("injected")),
            "{notes:?}"
        );
    }
}

/// By a release that leaves far copies behind, and that nothing was written to.
#[test]
fn a_checkpoint_of_another_drive_shows_that_it_was_made_since() {
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let far = get(&media, FAR, MIB);
    let options = CreateOptions { uuid: [9; 16], far_copies: Some(false), ..far::options(SIZE) };
    run(Drive::create(&*media, &options)).expect("create");
    put(&media, FAR, &far);
    lose(&media, 128 << 10);
    assert!(refused(&media).contains("another drive was made here since"));
    let wiped = run(Drive::wipe(&*media, WipeOptions::any())).map_err(|error| error.to_string());
    assert!(wiped.as_ref().is_err_and(|why| why.contains("create a new one")), "{wiped:?}");
    // What earlier wipes of the drive itself left is of no other.
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let old = Image::of(&media)
        .geometry()
        .checkpoint_offset((Image::of(&media).newest_checkpoint() % 2) as usize, 0);
    let page = get(&media, old, BLOCK);
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    put(&media, old, &page);
    lose(&media, 128 << 10);
    assert_eq!(try_open(&media).expect("open").status().incarnation, 1);
}

/// The power failed between the second and the far copy of the superblock.
#[test]
fn a_wipe_that_was_cut_short_is_not_undone_by_a_lost_start() {
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let geometry = Image::of(&media).geometry();
    let before = get(&media, FAR, MIB);
    let newest = Image::of(&media).newest_checkpoint();
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    let superblock = Geometry::far_superblock_offset(FAR);
    let old = geometry.checkpoint_offset((newest % 2) as usize, 2);
    let put_back = |at: u64, len: u64| put(&media, at, &before[(at - FAR) as usize..][..len as usize]);
    put_back(superblock, BLOCK);
    // As the wipe left the checkpoint before it, or before it was blanked.
    for is_blanked in [true, false] {
        if !is_blanked {
            put_back(old, geometry.checkpoint_area_bytes());
        }
        lose(&media, MIB);
        let why = refused(&media);
        assert!(why.contains("wipe it again"), "{why}");
        let accepting =
            OpenOptions { read_only: true, accept_damage: true, ..OpenOptions::new(9, spawner()) };
        let looked = run(Drive::open(common::erased(media.clone()), accepting));
        assert_eq!(looked.is_ok(), !is_blanked, "{:?}", looked.err());
    }
    // Which can be done.
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    assert_eq!(far::whole_copies(&media).0, 3);
    let drive = try_open(&media).expect("open");
    assert_eq!((drive.status().incarnation, drive.status().logical_used_bytes), (2, 0));
    write(&drive, 2);
    run(drive.close()).expect("close");
    lose(&media, MIB);
    assert_holds(&try_open(&media).expect("open"), 2, "after the wipe");
}

#[test]
fn a_flipped_bit_in_a_first_pack_is_no_other_drive() {
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    run(open(&media, 2).close()).expect("close");
    let image = Image::of(&media);
    let geometry = image.geometry();
    let (segment, _) =
        geometry.locate(image.newest(layout::RecordKind::Data, 3).position).expect("a segment");
    let start = geometry.segment_offset(segment);
    lose(&media, MIB);
    let page = get(&media, start, BLOCK);
    for bit in 0..layout::pack::PACK_HEADER_BYTES * 8 {
        let mut bytes = page.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        put(&media, start, &bytes);
        look(&media).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
    }
    // Nor is any other damage, as long as most segments begin as they should.
    let damaged = [0xa5; BLOCK as usize];
    put(&media, start, &damaged);
    look(&media).expect("one damaged page");
    let starts = (0..geometry.segments()).map(|segment| geometry.segment_offset(segment));
    let in_use: Vec<u64> = starts.filter(|at| get(&media, *at, BLOCK).starts_with(b"PACK")).collect();
    in_use.iter().for_each(|at| put(&media, *at, &damaged));
    assert!(refused(&media).contains("something else was written to segment"));
}

/// Neither what may be left of another drive there, nor its own.
#[test]
fn places_that_cannot_be_written_keep_no_drive_from_being_made() {
    let tasks = Tasks::default();
    let geometry = Geometry::new(256 * MIB, None).expect("sizes");
    let own = geometry.far.expect("they take little");
    let places = [
        Geometry::far_superblock_offset(16 * MIB),
        Geometry::far_superblock_offset(own),
        geometry.checkpoint_offset(0, 2),
        geometry.checkpoint_offset(1, 2),
    ];
    for at in places {
        for is_readable in [true, false] {
            let media = Arc::new(Faulty::new(256 * MIB));
            media.unwritable.lock().push(at..at + BLOCK);
            if !is_readable {
                media.lost.lock().push(at..at + BLOCK);
            }
            let options = CreateOptions { far_copies: None, ..common::create_options(256 * MIB, SIZE) };
            tasks.run(Drive::create(&*media, &options)).unwrap_or_else(|error| panic!("{at:#x}: {error}"));
            let has_far = Image::of_any(&media).geometry().far.is_some();
            assert_eq!(has_far, at == places[0], "{at:#x}");
            let drive = tasks.open(&media, |_| {});
            tasks.run(drive.write(0, &[7; BLOCK as usize], true)).expect("write");
            tasks.run(drive.close()).expect("close");
        }
    }
    // Unless the backing is just full.
    let media = Arc::new(Faulty::new(256 * MIB));
    media.full.store(true, std::sync::atomic::Ordering::SeqCst);
    let options = CreateOptions { far_copies: None, ..common::create_options(256 * MIB, SIZE) };
    assert_eq!(tasks.run(Drive::create(&*media, &options)), Err(Error::BackingFull));
}
