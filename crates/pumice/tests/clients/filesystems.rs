//! File systems on a block device backed by the drive.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::server::wait_until;
use crate::common::{Drive, Outcome, needs, sample, succeed};
use crate::disk::Disk;

/// Commands to create and check a file system.
struct Filesystem {
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const EXT4: Filesystem = Filesystem { make: &["mkfs.ext4", "-q"], check: &["e2fsck", "-f", "-n"] };
const XFS: Filesystem = Filesystem { make: &["mkfs.xfs", "-q"], check: &["xfs_repair", "-n"] };

impl Filesystem {
    fn usable(&self) -> bool {
        if let Some(why) = Disk::missing() {
            eprintln!("skipped: {why}");
            return false;
        }
        needs(&[self.make[0], self.check[0], "fstrim"])
    }

    fn run(&self, command: &[&str], disk: &Disk) {
        succeed(command[0], &[&command[1..], &[disk.device()]].concat());
    }
}

/// Copies directories of this machine. Returns the files with their contents.
fn copy_tree(to: &Path) -> Outcome<Vec<(PathBuf, Vec<u8>)>> {
    const BYTES_MAX: usize = 24 << 20;
    let mut copied = Vec::new();
    let mut bytes = 0;
    let mut dirs =
        vec![PathBuf::from("/usr/include"), PathBuf::from("/usr/share/doc"), PathBuf::from("/etc")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)?.flatten() {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() && bytes < BYTES_MAX {
                let Ok(data) = fs::read(&path) else { continue };
                let target = to.join(path.strip_prefix("/")?);
                fs::create_dir_all(target.parent().ok_or("a file has a directory")?)?;
                fs::write(&target, &data)?;
                bytes += data.len();
                copied.push((target, data));
            }
        }
    }
    Ok(copied)
}

fn verify(files: &[(PathBuf, Vec<u8>)]) -> Outcome {
    for (path, data) in files {
        assert!(&fs::read(path)? == data, "{} is not what was written", path.display());
    }
    Ok(())
}

/// Copies files, remounts, compares, deletes and trims.
fn copies_and_trims(filesystem: &Filesystem) -> Outcome {
    if !filesystem.usable() {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "256M", "--capacity", "512M"]);
    let server = drive.serve(&[]);
    let point = drive.folder().join("mount");
    let mut disk = Disk::attach(drive.folder(), &server.socket())?;
    filesystem.run(filesystem.make, &disk);
    disk.mount(&point)?;
    let files = copy_tree(&point.join("tree"))?;
    disk.unmount()?;
    filesystem.run(filesystem.check, &disk);
    let full = drive.status()["logical_used_bytes"].as_u64().ok_or("a number")?;
    disk.mount(&point)?;
    verify(&files)?;
    fs::remove_dir_all(point.join("tree"))?;
    // XFS frees the space of deleted files in the background, so a single trim could be too early.
    wait_until("trimmed space to come back", || {
        rustix::fs::syncfs(File::open(&point).expect("mounted")).expect("synced");
        succeed("fstrim", &[&point]);
        drive.status()["logical_used_bytes"].as_u64().expect("a number") + (16 << 20) < full
    });
    disk.unmount()?;
    filesystem.run(filesystem.check, &disk);
    drop(disk);
    assert!(server.stop().success());
    let run = drive.pumice(&["check", "--deep", &drive.file("drive")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

/// Synced files survive a kill of the server during writes.
fn survives_a_kill(filesystem: &Filesystem) -> Outcome {
    const ROUNDS: u64 = 2;
    if !filesystem.usable() {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "256M", "--capacity", "512M"]);
    let point = drive.folder().join("mount");
    let mut synced = Vec::new();
    for round in 0..ROUNDS {
        let server = drive.serve(&[]);
        let mut disk = Disk::attach(drive.folder(), &server.socket())?;
        if round == 0 {
            filesystem.run(filesystem.make, &disk);
        }
        disk.mount(&point)?;
        verify(&synced)?;
        for index in 0..20 {
            let path = point.join(format!("synced-{round}-{index}"));
            let data = sample(round * 100 + index, 10_000 + (index as usize) * 7919);
            let mut file = File::create(&path)?;
            file.write_all(&data)?;
            file.sync_all()?;
            synced.push((path, data));
        }
        // File names are durable only once their directory is synced.
        File::open(&point)?.sync_all()?;
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (stop, point) = (stop.clone(), point.clone());
            std::thread::spawn(move || {
                for index in 0..10_000 {
                    let path = point.join(format!("more-{round}-{index}"));
                    // Fails once the drive is gone.
                    let written = File::create(&path).and_then(|mut file| {
                        file.write_all(&sample(index, 200_000))?;
                        if index % 8 == 0 { file.sync_data() } else { Ok(()) }
                    });
                    if written.is_err() || stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        };
        std::thread::sleep(std::time::Duration::from_millis(700));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")?;
        drop(disk);
    }
    let server = drive.serve(&[]);
    let mut disk = Disk::attach(drive.folder(), &server.socket())?;
    disk.mount(&point)?;
    verify(&synced)?;
    disk.unmount()?;
    filesystem.run(filesystem.check, &disk);
    Ok(())
}

#[test]
fn ext4_copies_and_trims() -> Outcome {
    copies_and_trims(&EXT4)
}

#[test]
fn xfs_copies_and_trims() -> Outcome {
    copies_and_trims(&XFS)
}

#[test]
fn ext4_survives_a_kill() -> Outcome {
    survives_a_kill(&EXT4)
}

#[test]
fn xfs_survives_a_kill() -> Outcome {
    survives_a_kill(&XFS)
}
