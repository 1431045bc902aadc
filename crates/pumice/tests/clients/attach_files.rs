//! `pumice check --files`: the files that damage of an attached drive is in.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use codec::testdata::random;
use serde_json::{Value, json};

use crate::attach::{Attached, usable};
use crate::attach_partitions::partition;
use crate::common::mounts::unmount;
use crate::common::server::{text, wait_until};
use crate::common::{Outcome, fails_with, needs, succeed};

const BLOCK: u64 = 4096;

/// Random blocks, which are on the backing as they are.
fn blocks(seed: u64, count: u64) -> Vec<u8> {
    random(seed, (count * BLOCK) as usize)
}

/// Writes a file at an offset, to the drive.
fn write(path: &Path, offset: u64, data: &[u8]) -> Outcome {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(data, offset)?;
    Ok(file.sync_all()?)
}

/// Damages the record with these bytes.
fn damage(it: &Attached, block: &[u8]) -> Outcome {
    let backing = fs::read(it.drive.path())?;
    let pattern = &block[..64];
    let at = backing.windows(pattern.len()).position(|window| window == pattern).ok_or("not there")?;
    let file = File::options().write(true).open(it.drive.path())?;
    file.write_all_at(b"rotten", at as u64)?;
    Ok(file.sync_all()?)
}

fn block(data: &[u8], at: u64) -> &[u8] {
    &data[(at * BLOCK) as usize..][..BLOCK as usize]
}

/// Damages files on a mounted file system that begins at a byte of the drive.
fn names_them(it: &Attached, point: &Path, start: u64) -> Outcome {
    let path = it.path();
    let check = |more: &[&str]| it.drive.pumice(&[&["check", &path], more].concat());
    fails_with(3, &check(&["--files"]), &["not scrubbed since it was opened", "--deep"]);
    fails_with(3, &check(&["--files=/proc"]), &["/proc: proc is not on a block device"]);
    fails_with(3, &check(&[&format!("--files={}", text(it.drive.folder()))]), &["not a mount point"]);
    let sound = check(&["--deep", "--files", "--rate", "1G"]);
    assert_eq!(sound.code, Some(0), "{sound:?}");

    fs::create_dir_all(point.join("a/deep"))?;
    let (one, sparse, gone) = (blocks(1, 40), blocks(2, 20), blocks(3, 30));
    let names = ["a/deep/one", "sparse", "gone", "a/whole"].map(|name| point.join(name));
    // The last block has five bytes of the file.
    write(&names[0], 0, &one[..(39 * BLOCK + 5) as usize])?;
    write(&names[1], 1 << 20, &sparse)?;
    write(&names[2], 0, &gone)?;
    write(&names[3], 0, &blocks(4, 40))?;
    fs::remove_file(&names[2])?;
    rustix::fs::syncfs(File::open(point)?)?;
    for (data, at) in [(&one, 5), (&one, 6), (&one, 11), (&sparse, 7), (&gone, 3)] {
        damage(it, block(data, at))?;
    }

    let run = check(&["--deep", "--files", "--rate", "1G"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let said = |word: &str| run.stdout.lines().filter(|line| line.starts_with(word)).collect::<Vec<_>>();
    let mut files: Vec<&str> = said("file: ").iter().filter_map(|line| line.split(", at ").next()).collect();
    files.sort_unstable();
    let part = |name: &Path, first: u64, count: u64| {
        format!("file: {}, bytes {} to {}", text(name), first, first + count * BLOCK - 1)
    };
    let expected = [
        part(&names[0], 5 * BLOCK, 2),
        part(&names[0], 11 * BLOCK, 1),
        part(&names[1], (1 << 20) + 7 * BLOCK, 1),
    ];
    assert_eq!(files, expected, "{run:?}");
    let free = said("not in a file: metadata or free space, at logical bytes ");
    assert_eq!((free.len(), said("directory: ").len(), said("not examined: ").len()), (1, 0, 0), "{run:?}");

    // Of the same scrub, by the mount point.
    let run = check(&[&format!("--files={}", text(point)), "--json"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let answer: Value = serde_json::from_str(&run.stdout)?;
    let found = &answer["files"];
    assert_eq!(found["file_systems"][0]["logical_offset_bytes"], start, "{found}");
    assert_eq!((&found["found_count"], &found["unexamined_count"]), (&3.into(), &0.into()), "{found}");
    assert_eq!((&found["outside"], &answer["scrub"]["lost_bytes"]), (&json!([]), &(5 * BLOCK).into()));
    // Where a file is said to be, the drive has its bytes.
    let whole = found["found"].as_array().ok_or("no list")?.iter().find(|it| it["len_bytes"] == 2 * BLOCK);
    let at = whole.ok_or("not found")?["logical_offset_bytes"].as_u64().ok_or("a number")?;
    let lost = answer["scrub"]["lost_ranges"].as_array().ok_or("no list")?;
    assert!(lost.contains(&json!({"logical_offset_bytes": at, "logical_len_bytes": 2 * BLOCK})), "{answer}");

    // Restored files can be read, and no others are named.
    fs::remove_file(&names[1])?;
    let run = check(&["--files"]);
    assert!(!run.stdout.contains(&text(&names[1])) && run.stdout.contains(&text(&names[0])), "{run:?}");
    Ok(())
}

#[test]
fn files_of_ext4_on_a_partition() -> Outcome {
    if !usable() || !needs(&["blockdev", "addpart"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "256M", "--codec", "none", "--parity", "none"]);
    let node = it.attach(&[]);
    partition(&node)?;
    let first = format!("{node}p1");
    wait_until("the partition", || Path::new(&first).exists());
    // Small file systems have smaller blocks than the drive otherwise.
    succeed("mkfs.ext4", &["-q", "-b", "4096", &first]);
    let point = it.mount(&first);
    names_them(&it, &point, 1 << 20)?;
    unmount(&point);
    it.detach(&node);
    Ok(())
}

#[test]
fn files_of_xfs() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "512M", "--codec", "none", "--parity", "none"]);
    let node = it.attach(&[]);
    succeed("mkfs.xfs", &["-q", &node]);
    let point = it.mount(&node);
    names_them(&it, &point, 0)?;
    unmount(&point);
    it.detach(&node);
    Ok(())
}
