//! The predicted drive matches a real drive with the same data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use codec::{Policy, testdata};
use drive::{CreateOptions, Drive, Settle, Status};
use media::MemoryMedia;
use scan::{Options, Population, PredictedDrive, Report, WalkOptions};

use crate::common::{Erased, create_options, open, run};

const MIB: u64 = 1 << 20;

/// A disk image with many kinds of data, as (offset, bytes) pieces with holes between them.
fn pieces() -> Vec<(u64, Vec<u8>)> {
    let mut words = vec![0; 3 << 20];
    codec::fill(&mut words, 0xdead_beef);
    vec![
        (0, testdata::text_like(1, 9 << 20)),
        (10 * MIB, testdata::random(2, 5 << 20)),
        // Written zeros that begin and end within a leaf.
        (17 * MIB - 4096, vec![0; (6 << 20) + 8192]),
        (24 * MIB, testdata::fio_like(3, 12 << 20, 60)),
        (37 * MIB, words),
        // A single distant block.
        (45 * MIB + 40960, testdata::text_like(4, 4096)),
        // Alternating data and zeros.
        (
            48 * MIB,
            (0..1024)
                .flat_map(|i| if i % 3 == 0 { vec![0; 4096] } else { testdata::text_like(i, 4096) })
                .collect(),
        ),
    ]
}

fn image(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("image");
    let file = File::create(&path).expect("a file");
    for (offset, bytes) in pieces() {
        file.write_all_at(&bytes, offset).expect("written");
    }
    file.set_len(64 * MIB).expect("grown");
    path
}

/// Writes pieces to a new drive, `step` bytes per write.
fn written(codec: Policy, pieces: &[(u64, Vec<u8>)], step: usize) -> Drive<Erased> {
    let media = Arc::new(MemoryMedia::new(128 * MIB));
    let options = CreateOptions { codec, ..create_options(128 * MIB, 256 * MIB) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    for (offset, bytes) in pieces {
        for (i, piece) in bytes.chunks(step).enumerate() {
            run(drive.write(offset + (i * step) as u64, piece, false)).expect("write");
        }
    }
    drive
}

/// Writes pieces to a new drive, closes it and returns its status.
fn real(codec: Policy, pieces: &[(u64, Vec<u8>)]) -> Status {
    let drive = written(codec, pieces, 256 << 10);
    run(drive.close()).expect("close");
    drive.status()
}

fn scanned(path: &Path, options: &Options) -> Report {
    let mut all = Population::new();
    all.add_path(path, WalkOptions::default(), &|_| ()).expect("listed");
    scan::scan(&all, options, &|_| ()).expect("scanned")
}

fn quick() -> Options {
    Options { compare: Vec::new(), unit_precision: None, threads: 2, ..Options::default() }
}

fn predicted(report: &Report) -> &PredictedDrive {
    report.predicted_drive.as_ref().expect("there is data")
}

#[test]
fn all_of_an_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path());
    for codec in [Policy::Auto, Policy::Lz4, Policy::None] {
        let report = scanned(&path, &Options { codec, full: true, ..quick() });
        let (told, status) = (predicted(&report), real(codec, &pieces()));
        assert_eq!(told.logical_used_bytes, status.logical_used_bytes);
        assert_eq!(told.logical_fill_bytes.estimate as u64, status.logical_fill_bytes);
        let used = told.physical_used_bytes.estimate;
        let off = used / status.physical_used_bytes as f64 - 1.0;
        eprintln!(
            "{codec}: predicted {used}, is {}, off by {:.4} %",
            status.physical_used_bytes,
            off * 100.0
        );
        assert!(off.abs() < 0.001, "predicted {used}, is {}", status.physical_used_bytes);
        assert!((told.ratio.estimate / status.compression_ratio - 1.0).abs() < 0.001);
    }
}

#[test]
fn random_writes_and_cold_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path());
    let full = scanned(&path, &Options { full: true, unit_precision: Some(0.05), ..quick() });
    let drive = written(Policy::Auto, &pieces(), 4096);
    run(drive.close()).expect("close");
    let random = drive.status().compression_ratio;
    let told = predicted(&full).ratio_of_random_writes.expect("always told").estimate;
    assert!((told / random - 1.0).abs() < 0.001, "predicted {told}, is {random}");
    let drive = written(Policy::Auto, &pieces(), 256 << 10);
    let mut next = Some(0);
    while let Some(block) = next {
        next = run(drive.settle_step(block, Settle::All)).expect("settled").next_block;
    }
    run(drive.close()).expect("close");
    let settled = drive.status().compression_ratio;
    let told = predicted(&full).ratio_settled.expect("units were read").estimate;
    eprintln!("random {random}, settled {settled}, predicted {told}");
    assert!((told / settled - 1.0).abs() < 0.005, "predicted {told}, is {settled}");
    assert!(random < predicted(&full).ratio.estimate && predicted(&full).ratio.estimate < told);
    let sampled = scanned(&path, &Options { precision: 0.04, unit_precision: Some(0.2), ..quick() });
    assert_eq!(sampled.mode, scan::report::Mode::Sample);
    let told = predicted(&sampled);
    for (interval, is) in [(told.ratio_of_random_writes, random), (told.ratio_settled, settled)] {
        let interval = interval.expect("told");
        assert!((interval.low..=interval.high).contains(&is), "{interval:?}, is {is}");
    }
}

#[test]
fn samples_of_an_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path());
    let status = real(Policy::Auto, &pieces());
    let mut sum = 0.0;
    for seed in 0..20 {
        let report = scanned(&path, &Options { precision: 0.04, seed, ..quick() });
        assert_eq!(report.mode, scan::report::Mode::Sample);
        let told = predicted(&report);
        let used = told.physical_used_bytes;
        sum += used.estimate;
        assert!(
            (used.low..=used.high).contains(&(status.physical_used_bytes as f64)),
            "{used:?}, is {}",
            status.physical_used_bytes
        );
        let ratio = told.ratio;
        assert!((ratio.low..=ratio.high).contains(&status.compression_ratio), "{ratio:?}");
        let fills = told.logical_fill_bytes;
        assert!((fills.low..=fills.high).contains(&(status.logical_fill_bytes as f64)), "{fills:?}");
    }
    let off = sum / 20.0 / status.physical_used_bytes as f64 - 1.0;
    eprintln!("the estimates of 20 scans are off by {:.2} % on average", off * 100.0);
    assert!(off.abs() < 0.02, "estimates are {off} off on average");
}

#[test]
fn a_directory_of_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut disk = Vec::new();
    for i in 0..300_u64 {
        let len = 1 + (i * 7919) as usize % 60_000;
        let bytes = if i % 5 == 0 { testdata::random(i, len) } else { testdata::text_like(i, len) };
        std::fs::write(folder.path().join(format!("f{i}")), &bytes).expect("written");
        // A file system stores whole blocks and pads the last one with zeros.
        disk.extend(&bytes);
        disk.resize(disk.len().next_multiple_of(4096), 0);
    }
    let report = scanned(folder.path(), &Options { full: true, ..quick() });
    let status = real(Policy::Auto, &[(0, disk)]);
    let told = predicted(&report);
    assert_eq!(told.logical_used_bytes, status.logical_used_bytes);
    let off = told.physical_used_bytes.estimate / status.physical_used_bytes as f64 - 1.0;
    assert!(off.abs() < 0.01, "off by {off}");
}

#[test]
fn the_smallest_drive_takes_the_data_and_a_smaller_one_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = testdata::random(5, 40 << 20);
    let path = folder.path().join("random");
    std::fs::write(&path, &bytes).expect("written");
    let report = scanned(&path, &quick());
    let told = predicted(&report).clone();
    let fits = |physical: u64| {
        let media = Arc::new(MemoryMedia::new(physical));
        let parity = Options::default().parity;
        let options = CreateOptions { parity, ..create_options(physical, 64 * MIB) };
        run(Drive::create(&*media, &options)).expect("create");
        let drive = open(&media, 1);
        let done = bytes.chunks(256 << 10).enumerate().try_for_each(|(i, piece)| {
            run(drive.write((i << 18) as u64, piece, false))?;
            while run(drive.maintain())? {}
            Ok::<(), drive::Error>(())
        });
        // The possible growth of the map is known once the map is written.
        run(drive.checkpoint()).expect("checkpoint");
        let status = drive.status();
        (done.is_ok(), status)
    };
    let (fitted, status) = fits(told.physical_size_bytes.estimate as u64);
    assert!(fitted, "{told:?}");
    assert_eq!(status.physical_reserve_bytes, told.physical_reserve_bytes);
    assert_eq!(status.physical_fixed_bytes, told.physical_fixed_bytes);
    let (fitted, _) = fits(told.physical_size_bytes.estimate as u64 - 2 * MIB);
    assert!(!fitted);
}
