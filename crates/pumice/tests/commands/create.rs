//! `pumice create`

use std::fs::File;

use crate::common::server::text;
use crate::common::{Drive, Outcome, in_time, needs, pumice, succeed};

/// Runs `create` on a file in a new directory. Returns exit code and output.
fn create(
    arguments: &[&str],
    prepare: impl FnOnce(&std::path::Path) -> std::io::Result<()>,
) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("drive");
    prepare(&path).expect("prepared");
    let run = pumice(&[&["create", &text(&path)], arguments].concat());
    (run.code, run.stdout + &run.stderr)
}

#[test]
fn makes_a_file_for_its_owner_only() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let drive = Drive::create(&["--size", "64M"]);
    let metadata = std::fs::metadata(drive.path())?;
    assert_eq!(metadata.len(), 64 << 20);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let status = drive.status();
    assert_eq!(status["physical_size_bytes"], 64 << 20);
    assert_eq!(status["sector_bytes"], 512);
    assert_eq!(status["codec"], "auto");
    Ok(())
}

#[test]
fn a_capacity_that_not_all_data_fits_into_is_warned_of() {
    let (code, text) = create(&["--size", "64M", "--capacity", "256M"], |_| Ok(()));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("warning: ") && text.contains("need a ratio of ") && text.contains("pumice plan"),
        "{text}"
    );
    let (code, text) = create(&["--size", "64M"], |_| Ok(()));
    assert!(code == Some(0) && !text.contains("warning"), "{text}");
}

/// A drive that is created without a capacity holds as much data as it says, also if it does not compress.
#[test]
fn the_default_capacity_can_be_held() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    for size in [40_u64, 64, 300] {
        let drive = Drive::create_as_given(&["--size", &format!("{size}M")]);
        let capacity = drive.status()["logical_capacity_bytes"].as_u64().ok_or("a capacity")?;
        assert!(capacity < size << 20 && capacity > (size << 20) * 6 / 10, "{capacity}");
        let server = drive.serve(&[]);
        for seed in 0..2 {
            let data = drive.file("data");
            std::fs::write(&data, codec::testdata::random(seed, usize::try_from(capacity)?))?;
            succeed("nbdcopy", &["--flush", &data, server.uri()]);
        }
        let status = drive.status();
        assert_eq!(status["out_of_space"], false, "{status:#}");
        assert!(status["physical_used_ratio"].as_f64().is_some_and(|ratio| ratio <= 1.0), "{status:#}");
        let run = drive.pumice(&["doctor", &text(&drive.path())]);
        assert!(run.stdout.contains("any data fits") || run.stdout.contains("its data shows"), "{run:?}");
    }
    Ok(())
}

#[test]
fn takes_capacity_sector_and_codec() {
    let drive =
        Drive::create(&["--size", "64M", "--capacity", "1GB", "--sector", "4096", "--codec", "zstd:3"]);
    let status = drive.status();
    assert_eq!(status["logical_capacity_bytes"], 1_000_000_000 / 4096 * 4096);
    assert_eq!(status["sector_bytes"], 4096);
    assert_eq!(status["codec"], "zstd:3");
}

#[test]
fn endurance_is_kept() {
    let drive = Drive::create(&["--size", "64M", "--endurance", "600TB"]);
    assert_eq!(drive.status()["wear"]["endurance_bytes"], 600_000_000_000_000_u64);
    let drive = Drive::create(&["--size", "64M"]);
    assert!(drive.status()["wear"]["endurance_bytes"].is_null(), "not given, not invented");
}

#[test]
fn preallocates_and_keeps_the_space() -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let taken = |drive: &Drive| -> Outcome<u64> { Ok(std::fs::metadata(drive.path())?.blocks() * 512) };
    let drive = Drive::create(&["--size", "64M", "--preallocate"]);
    assert!(taken(&drive)? >= 64 << 20);
    assert_eq!(drive.status()["keep_allocated"], true);
    // A wipe discards everything, except on a preallocated drive.
    let run = drive.pumice(&["wipe", "--yes", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("keeps its space"), "{run:?}");
    assert!(taken(&drive)? >= 64 << 20);
    assert_eq!(drive.status()["keep_allocated"], true, "a wipe changes nothing about it");
    assert_eq!(Drive::create(&["--size", "64M"]).status()["keep_allocated"], false);
    Ok(())
}

#[test]
fn takes_an_existing_empty_file() {
    let (code, said) = create(&["--size", "64M"], |path| File::create(path).map(drop));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = create(&[], |path| File::create(path)?.set_len(64 << 20));
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn refuses_what_holds_data() {
    use std::os::unix::fs::FileExt;
    let put = |offset: u64, bytes: &'static [u8]| {
        move |path: &std::path::Path| {
            let file = File::create(path)?;
            file.set_len(64 << 20)?;
            file.write_all_at(bytes, offset)
        }
    };
    for (offset, bytes, what) in [
        (0x438, &b"\x53\xef"[..], "ext4"),
        (0, b"XFSB", "XFS"),
        (510, b"\x55\xaa", "partition table"),
        (700_000, b"\x01", "data"),
        ((64 << 20) - 512, b"EFI PART", "GPT partition table (at byte 67108352)"),
    ] {
        let (code, said) = create(&[], put(offset, bytes));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(what) && said.contains("--force"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let (code, said) = create(&["--force"], put(offset, bytes));
        assert_eq!(code, Some(0), "{said}");
    }
}

/// The size of a backing that ends within a page, and in the middle of everything that formats align
/// themselves to.
const ODD_SIZE: u64 = (64 << 20) + (127 << 10) + 512;

/// Writes traces of previous contents: places and bytes, after which `wipefs` finds them.
fn traces(kind: &str) -> Vec<(u64, Vec<u8>)> {
    let one = |offset: u64, bytes: &[u8]| vec![(offset, bytes.to_vec())];
    match kind {
        "btrfs" => {
            let mut superblock = vec![0; 4096];
            superblock[0x40..0x48].copy_from_slice(b"_BHRfS_M");
            one(0x1_0000, &superblock)
        }
        // Version 1, and the last page.
        "swap" => vec![(1024, vec![1, 0, 0, 0, 255, 3, 0, 0]), (4086, b"SWAPSPACE2".to_vec())],
        "md 0.90" => {
            let mut superblock = vec![0; 4096];
            for (at, value) in [(0, 0xa92b_4efc_u32), (4, 0), (8, 90), (20, 77)] {
                superblock[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            one((ODD_SIZE & !0xffff) - 0x1_0000, &superblock)
        }
        "md 1.0" => {
            let sector = (ODD_SIZE / 512 - 16) & !7;
            let mut superblock = vec![0; 256];
            superblock[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
            superblock[16..40].copy_from_slice(b"0123456789abcdefhost:old");
            superblock[144..152].copy_from_slice(&sector.to_le_bytes());
            let words =
                superblock.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("4"))));
            let sum: u64 = words.sum();
            superblock[216..220].copy_from_slice(&((sum as u32) + (sum >> 32) as u32).to_le_bytes());
            one(sector * 512, &superblock)
        }
        "zfs" => {
            let end = ODD_SIZE & !0x3ffff;
            let labels = [0, 0x4_0000, end - 0x8_0000, end - 0x4_0000];
            let blocks =
                labels.iter().flat_map(|label| (0..8).map(move |block| label + 0x2_0000 + block * 8192));
            let uberblock = [0x00ba_b10c_u64.to_le_bytes(), 5000_u64.to_le_bytes()].concat();
            blocks.map(|place| (place, uberblock.clone())).collect()
        }
        "in the middle" => one(1 << 20, &[0x0d, 0xd0, 0x01, 0xc0]),
        other => unreachable!("{other}"),
    }
}

/// Returns the signatures that libblkid knows in a file: type and offset, one a line.
fn signatures_of(path: &std::path::Path) -> String {
    in_time("wipefs", &["-n", "-i", "-O", "TYPE,OFFSET", &text(path)]).stdout
}

#[test]
fn names_and_clears_what_other_programs_recognize() -> Outcome {
    use std::os::unix::fs::FileExt;
    if !needs(&["wipefs"]) {
        return Ok(());
    }
    for (kind, named) in [
        ("btrfs", "a btrfs file system (at byte 65600)"),
        ("swap", "swap space (at byte 4086)"),
        ("md 0.90", "a RAID member (at byte 67108864)"),
        ("md 1.0", "a RAID member (at byte 67227648)"),
        ("zfs", "a ZFS pool member (at bytes "),
        ("in the middle", "a signature of VMFS_volume_member (at byte 1048576)"),
    ] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        let file = File::options().create_new(true).read(true).write(true).open(&path)?;
        file.set_len(ODD_SIZE)?;
        for (place, bytes) in traces(kind) {
            file.write_all_at(&bytes, place)?;
        }
        assert_ne!(signatures_of(&path), "", "{kind} is a trace that libblkid knows");
        let before = std::fs::read(&path)?;
        let run = pumice(&["create", &text(&path)]);
        assert_eq!(run.code, Some(1), "{kind}: {run:?}");
        assert!(run.stderr.contains(&format!("holds {named}")), "{kind}: {run:?}");
        // Refused for another reason.
        let run = pumice(&["create", &text(&path), "--force", "--capacity", "257T"]);
        assert_eq!(run.code, Some(1), "{kind}: {run:?}");
        assert!(std::fs::read(&path)? == before, "{kind}: a refused command wrote something");
        let run = pumice(&["create", &text(&path), "--force", "--size", "40M"]);
        assert_eq!(run.code, Some(0), "{kind}: {run:?}");
        assert_eq!(signatures_of(&path), "", "{kind}");
        assert_eq!(std::fs::metadata(&path)?.len(), ODD_SIZE);
        let end = std::fs::read(&path)?.split_off((ODD_SIZE - (1 << 20)) as usize);
        assert!(
            end.iter().all(|byte| *byte == 0),
            "{kind}: the end is clear also for programs unknown to libblkid"
        );
        assert_eq!(pumice(&["check", &text(&path)]).code, Some(0));
    }
    Ok(())
}

#[test]
fn refuses_an_existing_drive() {
    let drive = Drive::create(&["--size", "64M"]);
    let before = drive.status()["uuid"].clone();
    let run = drive.pumice(&["create", &text(&drive.path())]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("a Pumice drive"), "{run:?}");
    assert_eq!(drive.status()["uuid"], before);
    let run = drive.pumice(&["create", &text(&drive.path()), "--force"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_ne!(drive.status()["uuid"], before);
}

#[test]
fn refuses_bad_usage_with_2_and_bad_sizes_with_1() {
    for (arguments, code) in [
        (&["--size", "many"][..], 2),
        (&["--size", "-1"], 2),
        (&["--size", "64M", "--sector", "1024"], 2),
        (&["--size", "64M", "--codec", "gzip"], 2),
        (&["--size", "64M", "--frobnicate"], 2),
        (&[], 1),
        (&["--size", "4096"], 1),
        (&["--size", "0"], 1),
        (&["--size", "64M", "--capacity", "0"], 1),
        (&["--size", "64M", "--segment", "1000"], 1),
    ] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = text(&folder.path().join("drive"));
        let run = pumice(&[&["create", &path], arguments].concat());
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.starts_with("pumice: "), "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(!folder.path().join("drive").exists(), "{arguments:?} left a file");
    }
}

#[test]
fn the_smallest_size_is_named_and_works() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = text(&folder.path().join("drive"));
    let run = pumice(&["create", &path, "--size", "24M"]);
    assert!(run.stderr.contains("at least 25 MiB"), "{run:?}");
    assert_eq!(pumice(&["create", &path, "--size", "25M"]).code, Some(0));
    // An error other than the size is reported as such.
    let run = pumice(&["create", &path, "--size", "1M", "--segment", "3M", "--force"]);
    assert!(run.stderr.contains("power of two"), "{run:?}");
}

#[test]
fn refuses_a_drive_that_is_served() {
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let run = drive.pumice(&["create", &text(&drive.path()), "--force"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("in use"), "{run:?}");
}
