//! ext4 on a drive with a larger logical capacity than physical space. The file system is filled until writes
//! fail, emptied, trimmed and filled again, with the server killed at each stage. Synced files must be
//! intact, and fsck must have nothing left to repair.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use crate::common::{Drive, Outcome, Server, in_time, needs, succeed};
use crate::disk::Disk;

const FILE_BYTES: usize = 1 << 20;
/// More files than fit on the drive.
const FILES_MAX: u64 = 400;

/// Stage at which the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Never,
    Full,
    Deleting,
    Trimming,
    Refilling,
}

/// A drive, its server, and ext4 on it.
struct Host {
    drive: Drive,
    server: Option<Server>,
    disk: Option<Disk>,
    point: PathBuf,
    /// Numbers of the files that were synced and not deleted since.
    synced: Vec<u64>,
}

/// Returns the contents of a file, which are incompressible.
fn contents(number: u64) -> Vec<u8> {
    codec::testdata::random(number, FILE_BYTES)
}

fn write_synced(path: &Path, number: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&contents(number))?;
    file.sync_all()
}

/// Kills a server after a delay, in a separate thread.
fn kill_after(server: Server, time: Duration) -> JoinHandle<()> {
    spawn(move || {
        sleep(time);
        server.kill();
    })
}

impl Host {
    fn new() -> Outcome<Host> {
        let drive = Drive::create(&["--size", "256M", "--capacity", "1G"]);
        let point = drive.folder().join("mount");
        let mut host = Host { drive, server: None, disk: None, point, synced: Vec::new() };
        host.attach()?;
        succeed("mkfs.ext4", &["-q", "-e", "continue", host.device()]);
        host.mount()?;
        Ok(host)
    }

    fn attach(&mut self) -> Outcome {
        let server = self.drive.serve(&[]);
        self.disk = Some(Disk::attach(self.drive.folder(), &server.socket())?);
        self.server = Some(server);
        Ok(())
    }

    fn disk(&mut self) -> &mut Disk {
        self.disk.as_mut().expect("attached")
    }

    fn device(&self) -> &str {
        self.disk.as_ref().expect("attached").device()
    }

    fn mount(&mut self) -> Outcome {
        let point = self.point.clone();
        Ok(self.disk().mount(&point)?)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.point.join(format!("file-{number}"))
    }

    /// Writes files from `first` on until one does not fit, or the drive is gone. Returns the number of
    /// synced files.
    fn fill(&mut self, first: u64) -> usize {
        let before = self.synced.len();
        for number in first..first + FILES_MAX {
            if write_synced(&self.path(number), number).is_err() {
                break;
            }
            self.synced.push(number);
        }
        self.synced.len() - before
    }

    /// Remounts, as after any I/O error: the journal is replayed, and fsck makes its repairs.
    fn recover(&mut self) -> Outcome {
        self.disk().unmount()?;
        self.fsck()?;
        self.mount()?;
        self.verify()
    }

    fn fsck(&mut self) -> Outcome {
        let run = in_time("e2fsck", &["-f", "-y", self.device()]);
        assert!(run.code.is_some_and(|code| code & !3 == 0), "fsck cannot repair it: {run:?}");
        // A second fsck has nothing to repair.
        succeed("e2fsck", &["-f", "-n", self.device()]);
        Ok(())
    }

    /// Starts the server again after a kill.
    fn restart(&mut self) -> Outcome {
        self.disk = None;
        if let Some(server) = self.server.take() {
            server.kill();
        }
        self.attach()?;
        self.fsck()?;
        self.mount()?;
        self.verify()
    }

    fn verify(&self) -> Outcome {
        for &number in &self.synced {
            let found = fs::read(self.path(number))?;
            assert!(found == contents(number), "file {number} is not what was synced");
        }
        Ok(())
    }

    /// Deletes every second file.
    fn delete(&mut self) {
        let (mut kept, mut at) = (Vec::new(), 0);
        for number in std::mem::take(&mut self.synced) {
            at += 1;
            if at % 2 == 0 {
                kept.push(number);
            } else {
                // Fails once the drive is gone.
                let _ = fs::remove_file(self.path(number));
            }
        }
        self.synced = kept;
    }

    fn used(&self) -> u64 {
        self.drive.status()["physical_used_bytes"].as_u64().expect("a number")
    }
}

fn fills_and_recovers(killed: Killed) -> Outcome {
    if let Some(why) = Disk::missing() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    if !needs(&["mkfs.ext4", "e2fsck", "fstrim"]) {
        return Ok(());
    }
    let mut host = Host::new()?;

    let files = host.fill(0);
    assert!((150..256).contains(&files), "{files} files of 1 MiB on 256 MiB");
    let refused = &host.drive.status()["server"]["requests"]["no_space_count"];
    assert!(refused.as_u64().is_some_and(|count| count > 0), "the drive refused nothing: {refused}");
    if killed == Killed::Full {
        host.restart()?;
    } else {
        host.recover()?;
    }

    let killer = (killed == Killed::Deleting)
        .then(|| kill_after(host.server.take().expect("serving"), Duration::from_millis(3)));
    host.delete();
    if let Some(killer) = killer {
        killer.join().map_err(|_| "the killer panicked")?;
        host.restart()?;
        // Deletes the files that reappeared.
        for number in 0..files as u64 {
            if !host.synced.contains(&number) {
                let _ = fs::remove_file(host.path(number));
            }
        }
    }
    rustix::fs::syncfs(File::open(&host.point)?)?;

    let before = host.used();
    if killed == Killed::Trimming {
        let killer = kill_after(host.server.take().expect("serving"), Duration::from_millis(20));
        in_time("fstrim", &[&host.point]);
        killer.join().map_err(|_| "the killer panicked")?;
        host.restart()?;
    }
    succeed("fstrim", &[&host.point]);
    assert!(host.used() + (60 << 20) < before, "{} used before the trim, {} after", before, host.used());
    host.verify()?;

    let killer = (killed == Killed::Refilling)
        .then(|| kill_after(host.server.take().expect("serving"), Duration::from_millis(700)));
    let more = host.fill(1000);
    match killer {
        None => assert!(more > 60, "only {more} files fit into the space that came back"),
        Some(killer) => {
            killer.join().map_err(|_| "the killer panicked")?;
            host.restart()?;
            host.fill(2000);
        }
    }
    host.recover()?;

    host.disk().unmount()?;
    host.fsck()?;
    host.disk = None;
    assert!(host.server.take().expect("serving").stop().success());
    let run = host.drive.pumice(&["check", "--deep", &host.drive.file("drive")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

#[test]
fn ext4_on_a_drive_too_small_for_its_promise() -> Outcome {
    fills_and_recovers(Killed::Never)
}

#[test]
fn ext4_on_a_full_drive_survives_a_kill() -> Outcome {
    fills_and_recovers(Killed::Full)
}

#[test]
fn ext4_survives_a_kill_while_files_are_deleted() -> Outcome {
    fills_and_recovers(Killed::Deleting)
}

#[test]
fn ext4_survives_a_kill_during_fstrim() -> Outcome {
    fills_and_recovers(Killed::Trimming)
}

#[test]
fn ext4_survives_a_kill_while_a_drive_is_filled_again() -> Outcome {
    fills_and_recovers(Killed::Refilling)
}
