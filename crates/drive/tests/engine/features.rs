//! Drives that use features of later releases.

use crate::common;
use crate::image;

use std::sync::Arc;

use common::{erased, new_drive, run, spawner};
use drive::{Drive, Error, OpenOptions, WipeOptions};
use image::Image;
use layout::{Features, Geometry, Superblock};
use media::MemoryMedia;

const SIZE: u64 = 32 << 20;

/// Creates a closed drive with a block of ones and a superblock that lists these features.
fn drive_with(features: Features) -> Arc<MemoryMedia> {
    drive_that_says(|superblock| superblock.features = features)
}

fn drive_that_says(change: impl Fn(&mut Superblock)) -> Arc<MemoryMedia> {
    let (media, drive) = new_drive(SIZE, SIZE);
    run(drive.write(0, &[1; 4096], false)).expect("write");
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    let mut superblock = image.superblock.clone();
    change(&mut superblock);
    let page = superblock.encode();
    (0..2).for_each(|copy| image.write(Geometry::superblock_offset(copy), &page));
    media
}

fn assert_refused<T>(result: Result<T, Error>, why: &str) {
    match result {
        Err(error) => assert!(error.to_string().contains(why), "{error}"),
        Ok(_) => panic!("a drive with unknown features was changed or opened"),
    }
}

#[test]
fn what_may_only_be_read_is_read_and_not_written_nor_wiped() {
    let media = drive_with(Features { read_only_compatible: 1 << 40, ..Features::default() });
    let before = Image::of(&media).read(0, SIZE as usize);
    assert_refused(run(Drive::open(erased(media.clone()), OpenOptions::new(2, spawner()))), "can only read");
    assert_refused(run(Drive::wipe(&*media, WipeOptions::any())), "can only read");
    let options = OpenOptions { read_only: true, ..OpenOptions::new(3, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open read-only");
    let mut back = vec![0; 4096];
    run(drive.read(0, &mut back)).expect("read");
    assert!(back == [1; 4096]);
    drop(drive);
    assert!(Image::of(&media).read(0, SIZE as usize) == before, "something was written");
}

#[test]
fn what_may_not_be_read_is_neither_opened_nor_wiped() {
    let media = drive_with(Features { incompatible: 1 << 40, ..Features::default() });
    let options = OpenOptions { read_only: true, ..OpenOptions::new(2, spawner()) };
    assert_refused(run(Drive::open(erased(media.clone()), options)), "feature");
    assert_refused(run(Drive::wipe(&*media, WipeOptions::any())), "feature");
}

#[test]
fn what_may_be_ignored_is_kept() {
    let bit = 1 << 40;
    let media = drive_with(Features { compatible: bit, ..Features::default() });
    let drive = run(Drive::open(erased(media.clone()), OpenOptions::new(2, spawner()))).expect("open");
    run(drive.set_codec(codec::Policy::None)).expect("set codec");
    run(drive.close()).expect("close");
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    assert_eq!(Image::of(&media).superblock.features.compatible, bit);
}

#[test]
fn a_codec_of_a_later_release_is_not_wiped_into_a_drive_that_nobody_opens() {
    let media = drive_that_says(|superblock| superblock.codec_policy = 9);
    let before = Image::of(&media).read(0, SIZE as usize);
    assert_refused(
        run(Drive::open(erased(media.clone()), OpenOptions::new(2, spawner()))),
        "unknown codec policy 9",
    );
    assert_refused(run(Drive::wipe(&*media, WipeOptions::any())), "unknown codec policy 9");
    assert!(Image::of(&media).read(0, SIZE as usize) == before, "nothing was changed");
}
