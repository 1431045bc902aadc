//! Drives written by earlier releases: every release opens, reads, checks and changes them.

use crate::common;
use crate::stored;

use std::collections::BTreeSet;
use std::fs;

use codec::testdata::random;
use common::{Erased, erased, run, spawner};
use drive::{Drive, Error, OpenOptions, WipeOptions, Zeroes};
use stored::{
    Stored, contents, directory, faults, image_of, manifest, media_of, open, open_read_only, sha256,
};

type Memory = Drive<Erased>;

const BLOCK: u64 = 4096;

fn each(check: impl Fn(&Stored, &[u8])) {
    let drives = manifest().drive;
    assert!(drives.len() >= 16, "{} stored drives", drives.len());
    for stored in drives {
        check(&stored, &stored.image());
    }
}

/// Checks the contents against the manifest. Returns them.
fn assert_as_stored(stored: &Stored, drive: &Memory, when: &str) -> Vec<u8> {
    let (bytes, unreadable) = contents(drive);
    assert_eq!(bytes.len() as u64, stored.logical_bytes, "{} {when}", stored.name);
    assert_eq!(unreadable, stored.unreadable_blocks, "{} {when}", stored.name);
    assert_eq!(sha256(&bytes), stored.contents_sha256, "{} {when}", stored.name);
    assert_eq!(faults(drive, &unreadable), stored.faults, "{} {when}", stored.name);
    bytes
}

fn assert_holds(stored: &Stored, drive: &Memory, expected: &[u8], when: &str) {
    let (bytes, unreadable) = contents(drive);
    assert_eq!(unreadable, stored.unreadable_blocks, "{} {when}", stored.name);
    let differs = (0..).zip(bytes.chunks(4096).zip(expected.chunks(4096))).find(|(_, (a, b))| a != b);
    assert!(differs.is_none(), "{} {when}: block {}", stored.name, differs.map_or(0u64, |(block, _)| block));
    assert_eq!(faults(drive, &unreadable), stored.faults, "{} {when}", stored.name);
}

/// Changes blocks 1 to 7 in several ways, and the last MiB if there is space.
fn change(stored: &Stored, drive: &Memory, round: u64, expected: &mut [u8]) {
    let mut set = |block: u64, bytes: &[u8]| {
        expected[(block * BLOCK) as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    let name = &stored.name;
    let data = random(round, BLOCK as usize);
    match run(drive.write(BLOCK, &data, true)) {
        Ok(()) => set(1, &data),
        // This release reserves more space for the map than some earlier ones. Drives that those filled may
        // be over the limit, and a block that shares a frame with blocks that stay adds to it.
        Err(Error::NoSpace) => assert!(stored.full && round > 1, "{name} is not full"),
        Err(error) => panic!("{name}: {error}"),
    }
    run(drive.trim(3 * BLOCK, BLOCK, false)).expect("trim");
    set(3, &[0; 4096]);
    match run(drive.write_zeroes(4 * BLOCK, 2 * BLOCK, Zeroes::default())) {
        Ok(()) => set(4, &[0; 8192]),
        // Over a hole, zeroes add to the map.
        Err(Error::NoSpace) => assert!(stored.full, "{name} is not full"),
        Err(error) => panic!("{name}: {error}"),
    }
    let ones = [1; 8192];
    run(drive.write(6 * BLOCK, &ones, false)).expect("a fill");
    set(6, &ones);
    let large = random(100 + round, 1 << 20);
    let at = stored.logical_bytes - large.len() as u64;
    match run(drive.write(at, &large, false)) {
        Ok(()) => {
            assert!(!stored.full, "{name} is full");
            set(at / BLOCK, &large);
        }
        Err(Error::NoSpace) => assert!(stored.full, "{name} is not full"),
        Err(error) => panic!("{name}: {error}"),
    }
    run(drive.flush()).expect("flush");
}

#[test]
fn the_manifest_lists_every_file_and_no_file_has_changed() {
    let mut listed = BTreeSet::from(["manifest.toml".to_string()]);
    each(|stored, image| assert_eq!(sha256(image), stored.image_sha256, "{}", stored.name));
    for stored in manifest().drive {
        let file = stored.path().file_name().expect("a name").to_string_lossy().into_owned();
        assert!(listed.insert(file), "{} is listed twice", stored.name);
    }
    let found = fs::read_dir(directory()).expect("a directory");
    let found = found.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    assert_eq!(found.collect::<BTreeSet<_>>(), listed);
}

#[test]
fn read_only_they_hold_what_was_written_and_stay_as_they_are() {
    each(|stored, image| {
        let media = media_of(image);
        let drive = open_read_only(&media);
        assert_as_stored(stored, &drive, "read-only");
        let refused = run(drive.write(BLOCK, &[7; 4096], false));
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{}: {refused:?}", stored.name);
        run(drive.close()).expect("close");
        drop(drive);
        assert!(image_of(&*media) == image, "{} was changed", stored.name);
    });
}

#[test]
fn they_take_writes_and_keep_them_over_a_crash_and_a_close() {
    each(|stored, image| {
        let media = media_of(image);
        let drive = open(&media, 1);
        let mut expected = assert_as_stored(stored, &drive, "opened");
        change(stored, &drive, 1, &mut expected);
        assert_holds(stored, &drive, &expected, "changed");
        drop(drive);
        let drive = open(&media, 2);
        assert_holds(stored, &drive, &expected, "after a crash");
        change(stored, &drive, 2, &mut expected);
        while run(drive.clean()).expect("clean") {}
        assert_holds(stored, &drive, &expected, "cleaned");
        run(drive.close()).expect("close");
        drop(drive);
        assert_holds(stored, &open_read_only(&media), &expected, "closed");
        assert_holds(stored, &open(&media, 3), &expected, "opened again");
    });
}

#[test]
fn they_can_be_wiped() {
    each(|stored, image| {
        let media = media_of(image);
        run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
        let drive = open(&media, 1);
        let (bytes, unreadable) = contents(&drive);
        assert!(unreadable.is_empty() && bytes.iter().all(|byte| *byte == 0), "{}", stored.name);
        assert_eq!(faults(&drive, &[]), 0, "{}", stored.name);
    });
}

#[test]
fn the_one_with_far_copies_opens_without_its_start() {
    let stored =
        manifest().drive.into_iter().find(|stored| stored.name == "far-copies").expect("it is stored");
    let mut image = stored.image();
    image[..1 << 20].fill(0);
    let media = media_of(&image);
    let (bytes, unreadable) = contents(&open_read_only(&media));
    assert_eq!((sha256(&bytes), unreadable), (stored.contents_sha256.clone(), Vec::new()));
    let drive = open(&media, 1);
    let mut expected = assert_as_stored(&stored, &drive, "opened");
    change(&stored, &drive, 1, &mut expected);
    assert_holds(&stored, &drive, &expected, "changed");
}

/// Version 2 was never released. The build that wrote the drive must be used to copy the data out.
#[test]
fn version_2_is_refused_by_name_also_where_one_copy_of_the_superblock_is_of_version_3() {
    let stored = manifest().drive.into_iter().next().expect("a stored drive");
    for copies in [&[0, 65536][..], &[0], &[65536]] {
        let mut image = stored.image();
        for copy in copies {
            let page = &mut image[*copy..][..4096];
            page[8] = 2;
            page[12..16].fill(0);
            let crc = crc32c::crc32c(page);
            page[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        let media = media_of(&image);
        for read_only in [false, true] {
            let options = OpenOptions { read_only, ..OpenOptions::new(1, spawner()) };
            let refused = run(Drive::open(erased(media.clone()), options)).err();
            let Some(Error::Corrupt(why)) = refused else { panic!("{copies:?}: {refused:?}") };
            for part in ["format version 2", "expected 3", "copy the data out", "create the drive anew"] {
                assert!(why.contains(part), "{why}");
            }
        }
        assert!(image_of(&*media) == image, "a drive that was refused was changed");
    }
}
