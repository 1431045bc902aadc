//! Files and directories of all kinds: sparse, linked, special, removed, changing. Nothing is written to
//! them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use codec::testdata;
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};
use scan::report::Mode as ScanMode;
use scan::{Options, Population, Report, WalkOptions};

const MIB: u64 = 1 << 20;

fn listed(path: &Path, options: WalkOptions) -> Population {
    let mut all = Population::new();
    all.add_path(path, options, &|_| ()).expect("listed");
    all
}

fn quick() -> Options {
    Options { compare: Vec::new(), unit_precision: None, threads: 2, ..Options::default() }
}

fn scanned(path: &Path) -> Report {
    scan::scan(&listed(path, WalkOptions::default()), &quick(), &|_| ()).expect("scanned")
}

#[test]
fn holes_are_counted_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sparse");
    let file = File::create(&path).expect("a file");
    file.write_all_at(&testdata::text_like(1, 1 << 20), 64 * MIB).expect("written");
    file.write_all_at(&testdata::text_like(2, 100), 3 * MIB + 5).expect("written");
    file.set_len(1 << 40).expect("grown");
    let report = scanned(&path);
    if file.metadata().expect("metadata").blocks() * 512 >= 1 << 40 {
        eprintln!("skipped: this file system has no sparse files");
        return;
    }
    assert_eq!(report.data.apparent_bytes, 1 << 40);
    assert_eq!(report.data.data_bytes, MIB + 4096);
    assert_eq!(report.data.hole_bytes, (1 << 40) - MIB - 4096);
    assert_eq!(report.blocks.zero.estimate, 0.0);
}

#[test]
fn links_special_files_and_loops() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    fs::create_dir_all(root.join("a/b")).expect("directories");
    fs::write(root.join("a/file"), testdata::text_like(1, 10_000)).expect("written");
    fs::write(root.join("empty"), "").expect("written");
    symlink(root, root.join("a/b/loop")).expect("a link");
    symlink("nowhere", root.join("dangling")).expect("a link");
    fs::hard_link(root.join("a/file"), root.join("a/b/same")).expect("a link");
    mknodat(rustix::fs::CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
    let report = scanned(root);
    assert_eq!(report.data.files_count, 1);
    assert_eq!(report.data.directories_count, 3);
    assert_eq!(report.data.data_bytes, 3 * 4096);
    let skipped = report.skipped;
    assert_eq!(skipped.symlinks_count, 2);
    assert_eq!(skipped.special_files_count, 2);
    assert_eq!(skipped.hard_links_count, 1);
    assert_eq!(skipped.empty_files_count, 1);
    assert_eq!(report.unreadable_count, 0);
    // A symbolic link named by the user is followed.
    symlink(root.join("a/file"), root.join("named")).expect("a link");
    assert_eq!(scanned(&root.join("named")).data.data_bytes, 3 * 4096);
}

#[test]
fn other_filesystems_are_left_out_unless_wanted() {
    if fs::metadata("/proc").map(|m| m.dev()).ok() == fs::metadata("/").map(|m| m.dev()).ok() {
        eprintln!("skipped: /proc is not mounted");
        return;
    }
    // Only listed: the files in /proc/sys have length 0, so nothing is read.
    let all = listed(Path::new("/proc/sys/fs"), WalkOptions { cross_filesystems: true, depth: 1 });
    assert_eq!(all.blocks(), 0);
    let report = scan::scan(&all, &quick(), &|_| ()).expect("scanned");
    assert_eq!(report.predicted_drive, None);
}

#[test]
fn files_that_go_and_files_that_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for (i, name) in ["stays", "goes", "shrinks", "grows", "rewritten"].into_iter().enumerate() {
        fs::write(at(name), testdata::text_like(i as u64, 5 << 20)).expect("written");
    }
    for full in [true, false] {
        let all = listed(folder.path(), WalkOptions::default());
        assert_eq!(all.items().len(), 5);
        fs::rename(at("goes"), folder.path().with_extension("away")).expect("renamed");
        File::options().write(true).open(at("shrinks")).expect("opened").set_len(MIB).expect("cut");
        File::options().append(true).open(at("grows")).expect("opened").set_len(6 * MIB).expect("grown");
        fs::write(at("rewritten"), testdata::random(9, 5 << 20)).expect("written");
        let options = Options { full, precision: 0.05, ..quick() };
        let report = scan::scan(&all, &options, &|_| ()).expect("scanned");
        assert_eq!(report.mode, if full { ScanMode::Full } else { ScanMode::Sample });
        assert_eq!(report.unreadable_count, 1, "{:?}", report.unreadable);
        assert!(report.unreadable[0].name.ends_with("goes"), "{:?}", report.unreadable);
        assert_eq!(report.changed_count, 3, "{:?}", report.changed);
        assert!(report.read.blocks_count > 0);
        if full {
            // The remaining data of the listed files.
            assert_eq!(report.data.data_bytes, 16 * MIB);
        } else {
            assert!(report.codecs[0].stored.half_width() <= 0.0501);
        }
        fs::rename(folder.path().with_extension("away"), at("goes")).expect("renamed");
        fs::write(at("shrinks"), testdata::text_like(2, 5 << 20)).expect("written");
        fs::write(at("grows"), testdata::text_like(3, 5 << 20)).expect("written");
    }
}

#[test]
fn nothing_to_read_is_an_error_and_no_loop() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gone");
    fs::write(&path, testdata::random(1, 30 << 20)).expect("written");
    let all = listed(folder.path(), WalkOptions::default());
    fs::remove_file(&path).expect("removed");
    for full in [true, false] {
        let options = Options { full, precision: 0.05, ..quick() };
        let error = scan::scan(&all, &options, &|_| ()).expect_err("nothing").to_string();
        assert!(error.contains("gone") && error.contains("none of the data"), "{error}");
    }
    let mut none = Population::new();
    assert!(none.add_path(&path, WalkOptions::default(), &|_| ()).is_err());
    assert!(none.add_path(Path::new("/dev/null"), WalkOptions::default(), &|_| ()).is_err());
}

#[test]
fn access_times_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("old");
    fs::write(&path, testdata::text_like(1, 1 << 20)).expect("written");
    // Older than the modification, so that reading would update it even on a relatime mount.
    let long_ago = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let now = Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: long_ago, last_modification: now };
    utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty()).expect("set");
    scanned(folder.path());
    let after = fs::metadata(&path).expect("metadata");
    assert_eq!(after.atime(), long_ago.tv_sec);
    assert_eq!(after.mtime(), now.tv_sec);
}

#[test]
fn the_same_seed_draws_the_same_samples() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    let mut bytes = testdata::text_like(1, 20 << 20);
    bytes.extend(testdata::random(2, 20 << 20));
    fs::write(&path, bytes).expect("written");
    let estimate = |seed, threads| {
        let options = Options { precision: 0.05, seed, threads, ..quick() };
        let report = scan::scan(&listed(&path, WalkOptions::default()), &options, &|_| ()).expect("scanned");
        report.codecs[0].stored.estimate
    };
    assert_eq!(estimate(1, 1), estimate(1, 4));
    assert_ne!(estimate(1, 2), estimate(2, 2));
}

#[test]
fn a_stream_is_what_a_file_is() {
    let mut bytes = testdata::text_like(1, 12 << 20);
    bytes.extend(vec![0; 12 << 20]);
    bytes.extend(testdata::random(2, (12 << 20) + 100));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    fs::write(&path, &bytes).expect("written");
    let file =
        scan::scan(&listed(&path, WalkOptions::default()), &Options { full: true, ..quick() }, &|_| ())
            .expect("scanned");
    let stream =
        |options: &Options| scan::scan_stream("-", &mut bytes.as_slice(), options, &|_| ()).expect("scanned");
    let all = stream(&Options { full: true, ..quick() });
    assert_eq!(all.mode, ScanMode::Full);
    assert_eq!(all.codecs[0].stored, file.codecs[0].stored);
    assert_eq!(all.predicted_drive, file.predicted_drive);
    // A short stream is read completely.
    assert_eq!(stream(&quick()).codecs[0].stored, file.codecs[0].stored);
    // Samples are drawn while reading.
    for seed in 0..10 {
        let options = Options { precision: 0.05, unit_precision: Some(0.2), seed, ..quick() };
        let drawn = stream(&options);
        assert_eq!(drawn.mode, ScanMode::Sample);
        assert_eq!(drawn.data.apparent_bytes, bytes.len() as u64);
        let (told, truth) = (drawn.codecs[0].stored, file.codecs[0].stored.estimate);
        assert!(told.half_width() <= 0.0501 && (told.low..=told.high).contains(&truth), "{told:?} {truth}");
        // Zeros are counted over all blocks.
        assert_eq!(drawn.blocks.zero, file.blocks.zero);
    }
    let empty = scan::scan_stream("-", &mut std::io::empty(), &quick(), &|_| ()).expect("scanned");
    assert_eq!(empty.data.data_bytes, 0);
}

#[test]
fn rivals_agree_between_samples_and_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bytes = testdata::text_like(1, 30 << 20);
    bytes.extend(testdata::fio_like(3, 30 << 20, 70));
    bytes.extend(testdata::random(2, 30 << 20));
    fs::write(folder.path().join("data"), bytes).expect("written");
    let all = listed(folder.path(), WalkOptions::default());
    let of = |full, seed| {
        let options = Options { full, seed, precision: 0.08, unit_precision: Some(0.15), ..quick() };
        scan::scan(&all, &options, &|_| ()).expect("scanned")
    };
    let truth = of(true, 0);
    for seed in 1..6 {
        let drawn = of(false, seed);
        assert_eq!(drawn.mode, ScanMode::Sample);
        for (row, known) in drawn.layouts.iter().zip(&truth.layouts) {
            let (told, known) = (row.stored, known.stored.estimate);
            assert!((told.low..=told.high).contains(&known), "{row:?} {known}");
        }
    }
    // Packing to 16 bytes takes less space than small units rounded up to sectors, and less than bins.
    let of_pumice = truth.codecs[0].ratio.estimate;
    let of_rival = |layout: &str, unit| {
        let rows = truth.layouts.iter().filter(|row| row.layout == layout && row.unit_bytes == unit);
        rows.map(|row| row.ratio.estimate).fold(0.0, f64::max)
    };
    assert!(of_pumice > of_rival("sectors", 16 << 10));
    assert!(of_pumice > of_rival("vdo", 4096));
    assert!(of_rival("sectors", 128 << 10) > of_rival("sectors", 16 << 10));
}

#[test]
fn directories_and_types_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, bytes).expect("written");
    };
    write("text/deep/er/a.txt", testdata::text_like(1, 4 << 20));
    write("text/b.txt", testdata::text_like(2, 1 << 20));
    write("noise/c.bin", testdata::random(3, 2 << 20));
    // Named as text, but a gzip file by content.
    write("noise/d.txt", [vec![0x1f, 0x8b, 8], testdata::random(4, 1 << 20)].concat());
    let report = scanned(folder.path());
    let part = |parts: &[scan::report::Part], end: &str| {
        parts.iter().find(|part| part.name.ends_with(end)).cloned().expect(end)
    };
    assert_eq!(part(&report.by_directory, "/text").data_bytes, 5 * MIB);
    assert_eq!(part(&report.by_directory, "/noise").data_bytes, 3 * MIB + 4096);
    assert!(part(&report.by_directory, "/text").ratio.estimate > 1.8);
    assert_eq!(part(&report.by_type, "txt").data_bytes, 5 * MIB);
    assert_eq!(part(&report.by_type, "gz").data_bytes, MIB + 4096);
    assert!(part(&report.by_type, "gz").ratio.estimate < 1.01);
    assert_eq!(part(&report.largest_files, "a.txt").data_bytes, 4 * MIB);
    let deep = listed(folder.path(), WalkOptions { depth: 2, ..WalkOptions::default() });
    let deep = scan::scan(&deep, &quick(), &|_| ()).expect("scanned");
    assert_eq!(part(&deep.by_directory, "text/deep").data_bytes, 4 * MIB);
}

#[test]
fn a_rate_is_not_exceeded() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("data"), testdata::text_like(1, 1 << 20)).expect("written");
    let all = listed(folder.path(), WalkOptions::default());
    let of = |max_rate| scan::scan(&all, &Options { max_rate, ..quick() }, &|_| ()).expect("scanned");
    let slow = of(Some(4 << 20));
    assert!(slow.read.seconds >= 0.25, "{:?}", slow.read);
    assert_eq!(slow.codecs[0].stored, of(None).codecs[0].stored);
}
