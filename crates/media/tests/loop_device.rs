//! A block device as a backing: loop devices, if the test is allowed to create them.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{exercise, now};
use media::{Allocation, Direct, FileMedia, Media, MediaError};

const SIZE: u64 = 8 << 20;

/// A loop device that is detached at the end of the test.
struct LoopDevice(PathBuf);

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

impl LoopDevice {
    fn attach(file: &Path, options: &[&str]) -> Result<LoopDevice, String> {
        let device = run("losetup", &[options, &["--find", "--show", text(file)]].concat())?;
        Ok(LoopDevice(device.into()))
    }

    /// Adds a partition. `start` and `len` are in bytes.
    fn partition(&self, number: u64, start: u64, len: u64) -> Result<PathBuf, String> {
        let [number, start, len] = [number, start / 512, len / 512].map(|number| number.to_string());
        run("addpart", &[text(&self.0), &number, &start, &len])?;
        Ok(format!("{}p{number}", text(&self.0)).into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        for number in ["1", "2"] {
            drop(run("delpart", &[text(&self.0), number]));
        }
        drop(run("losetup", &["--detach", text(&self.0)]));
    }
}

/// A temporary directory, and a lock that makes this the only running test. A process forked by another test
/// holds every device that is open here until it executes its program, so a device that was just closed would
/// still be in use.
struct Alone {
    dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Creates a file of [`SIZE`] in a new directory.
fn disk_file() -> (Alone, PathBuf) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("disk");
    File::create(&file).and_then(|file| file.set_len(SIZE)).expect("disk file");
    (Alone { dir, _turn: turn }, file)
}

/// Skips the test on a machine without loop devices.
macro_rules! or_skip {
    ($attempt:expr) => {
        match $attempt {
            Ok(made) => made,
            Err(reason) => return eprintln!("skipped: no loop device here: {reason}"),
        }
    };
}

fn open(path: &Path, read_only: bool) -> Result<FileMedia, MediaError> {
    FileMedia::open(path, read_only, Direct::Auto)
}

fn write(path: &Path) -> Result<FileMedia, MediaError> {
    open(path, false)
}

fn read(path: &Path) -> Result<FileMedia, MediaError> {
    open(path, true)
}

/// Checks that a writer of one excludes everybody from the other, in both directions, and that readers
/// exclude writers.
fn exclude_each_other(one: &Path, other: &Path) {
    for (first, second) in [(one, other), (other, one)] {
        for (first_reads, second_reads) in [(false, false), (false, true), (true, false)] {
            let case = format!("{first:?} (reads: {first_reads}), then {second:?} (reads: {second_reads})");
            let held = open(first, first_reads).unwrap_or_else(|error| panic!("{case}: {error}"));
            let error = open(second, second_reads).expect_err(&case);
            assert!(error.is_in_use(), "{case}: {error}");
            let said = error.to_string();
            assert!(said.starts_with(text(second)) && !said.contains('\n'), "{case}: {said}");
            assert_eq!(held.warning(), None, "{case}");
            drop(held);
            open(second, second_reads).unwrap_or_else(|error| panic!("{case}: not free again: {error}"));
        }
        let readers = (read(first).expect("a reader"), read(second).expect("another reader"));
        drop(readers);
    }
}

#[test]
fn a_block_device_is_a_backing() {
    let (_alone, file) = disk_file();
    std::fs::write(&file, vec![7; SIZE as usize]).expect("disk file");
    let device = or_skip!(LoopDevice::attach(&file, &[]));
    let media = FileMedia::open(&device.0, false, Direct::Auto).expect("open");
    assert!(media.block_device());
    assert_eq!(media.size_bytes(), SIZE);
    let second = FileMedia::open(&device.0, false, Direct::Auto).expect_err("claimed");
    assert!(matches!(second, MediaError::InUse { .. }), "{second}");
    now(exercise(&media));
    match now(media.discard(0, 4 << 20)) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {}
        result => result.expect("discard"),
    }
    drop(media);
    FileMedia::open(&device.0, true, Direct::Off).expect("free again");
}

#[test]
fn a_loop_device_and_its_file_are_one_backing() {
    let (_alone, file) = disk_file();
    let device = or_skip!(LoopDevice::attach(&file, &[]));
    exclude_each_other(&file, &device.0);
    let _held = write(&file).expect("the file");
    let error = write(&device.0).expect_err("in use").to_string();
    assert!(error.contains(text(&file)), "{error}");
}

#[test]
fn two_loop_devices_on_a_file_are_one_backing() {
    let (_alone, file) = disk_file();
    let one = or_skip!(LoopDevice::attach(&file, &[]));
    let other = or_skip!(LoopDevice::attach(&file, &[]));
    exclude_each_other(&one.0, &other.0);
}

#[test]
fn a_chain_of_loop_devices_is_one_backing() {
    let (_alone, file) = disk_file();
    let lower = or_skip!(LoopDevice::attach(&file, &[]));
    let upper = or_skip!(LoopDevice::attach(&lower.0, &[]));
    exclude_each_other(&file, &upper.0);
    exclude_each_other(&lower.0, &upper.0);
}

#[test]
fn parts_of_a_file_are_backings_of_their_own() {
    let (_alone, file) = disk_file();
    let half = (SIZE / 2).to_string();
    let first = or_skip!(LoopDevice::attach(&file, &["--sizelimit", &half]));
    let second = or_skip!(LoopDevice::attach(&file, &["--offset", &half]));
    let over_both = or_skip!(LoopDevice::attach(&file, &["--offset", "4096", "--sizelimit", &half]));
    for whole in [&file, &over_both.0] {
        exclude_each_other(whole, &first.0);
        exclude_each_other(whole, &second.0);
    }
    let (one, other) = (write(&first.0).expect("first half"), write(&second.0).expect("second half"));
    drop(one);
    assert!(write(&file).expect_err("still half in use").is_in_use());
    drop(other);
    write(&file).expect("free again");
}

#[test]
fn partitions_of_a_loop_device_are_backings_of_their_own() {
    let (_alone, file) = disk_file();
    let device = or_skip!(LoopDevice::attach(&file, &[]));
    let first = or_skip!(device.partition(1, 1 << 20, 2 << 20));
    let second = or_skip!(device.partition(2, 4 << 20, 2 << 20));
    exclude_each_other(&file, &first);
    exclude_each_other(&file, &second);
    exclude_each_other(&device.0, &second);
    let _both = (write(&first).expect("first partition"), write(&second).expect("second partition"));
    // The bytes of the second partition.
    let again = ["--offset", "5242880", "--sizelimit", "4096"];
    let over_second = or_skip!(LoopDevice::attach(&file, &again));
    assert!(write(&over_second.0).expect_err("in use").is_in_use());
}

#[test]
fn a_backing_file_that_was_renamed_is_found() {
    let (alone, file) = disk_file();
    let device = or_skip!(LoopDevice::attach(&file, &[]));
    for name in ["other", "with a\nbreak and  spaces", "not (deleted)"] {
        let renamed = alone.dir.path().join(name);
        std::fs::rename(text(&file), &renamed).expect("renamed");
        exclude_each_other_quietly(&renamed, &device.0);
        std::fs::rename(&renamed, &file).expect("renamed back");
    }
}

/// As [`exclude_each_other`], for names with line breaks, which a message contains unchanged.
fn exclude_each_other_quietly(one: &Path, other: &Path) {
    for (first, second) in [(one, other), (other, one)] {
        let held = write(first).expect("free");
        assert_eq!(held.warning(), None, "{first:?}");
        assert!(write(second).expect_err("in use").is_in_use(), "{first:?} {second:?}");
    }
}

#[test]
fn a_backing_file_that_is_deleted_is_warned_of() {
    let (_alone, file) = disk_file();
    let device = or_skip!(LoopDevice::attach(&file, &[]));
    std::fs::remove_file(&file).expect("deleted");
    // The device has nothing to do with a new file of the same name.
    let _other = FileMedia::create(&file, SIZE, media::Allocation::Sparse, Direct::Auto).expect("another");
    let media = write(&device.0).expect("nobody else opens it by name");
    let warning = media.warning().expect("a warning");
    assert!(warning.contains("deleted") && warning.contains(text(&device.0)), "{warning}");
    now(exercise(&media));
}

/// ext4 keeps what it has allocated until it runs out of space.
#[test]
fn a_preallocation_that_fails_takes_no_space() {
    let folder = tempfile::tempdir().expect("a directory");
    let (image, point) = (folder.path().join("image"), folder.path().join("mounted"));
    File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("an image");
    std::fs::create_dir(&point).expect("a directory");
    or_skip!(run("mkfs.ext4", &["-q", "-F", text(&image)]));
    or_skip!(run("mount", &["-o", "loop", text(&image), text(&point)]));
    let checked = std::panic::catch_unwind(|| {
        let file = point.join("drive");
        let media = FileMedia::create(&file, 8 << 20, Allocation::Preallocated, Direct::Off).expect("made");
        let free = || rustix::fs::statvfs(&point).expect("mounted").f_bfree;
        media.grow(56 << 20, Allocation::Sparse).expect("a hole");
        let before = free();
        for size in [57 << 20, 128 << 20] {
            let error = media.grow(size, Allocation::Preallocated).expect_err("too large");
            assert!(matches!(error, MediaError::NoSpace { .. }), "{error}");
            // A tree of extents may have grown.
            assert!(free() + 4 >= before, "{size}: {before}, then {}", free());
            assert_eq!(file.metadata().expect("a file").len(), 56 << 20);
        }
        media.grow(56 << 20 | 4096, Allocation::Sparse).expect("a hole");
    });
    run("umount", &[text(&point)]).expect("unmounted");
    checked.expect("all of it holds");
}
