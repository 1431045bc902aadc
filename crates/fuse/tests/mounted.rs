//! The mounted file under a real kernel. Without FUSE the tests print one line and pass.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use common::{SIZE_BYTES, Server, mounted};
use fuse::Share;
use rustix::fs::{FallocateFlags, fallocate};

/// Time after which something is taken as lost.
const LIMIT: Duration = Duration::from_secs(60);

fn disk() -> File {
    let disk = tempfile::tempfile().expect("a disk");
    disk.set_len(SIZE_BYTES).expect("room");
    disk
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("the FUSE file")
}

/// Returns whether a file system is mounted there, and how.
fn mount_line(folder: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
    mounts.lines().find(|line| line.contains(&*folder.to_string_lossy())).map(str::to_owned)
}

#[test]
fn questions_are_answered_without_a_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join("file");
    let Some(mut mount) = mounted(&folder) else { return };
    let line = mount_line(&folder).expect("mounted");
    assert!(line.starts_with("pumice ") && line.contains(" fuse.pumice "), "{line}");
    let metadata = fs::metadata(mount.path()).expect("a file");
    assert_eq!((metadata.size(), metadata.mode()), (SIZE_BYTES, 0o100_600));
    let names = fs::read_dir(&folder).expect("a directory").map(|entry| entry.expect("one").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["drive"]);
    assert!(fs::metadata(folder.join("another")).is_err());
    let stat = rustix::fs::statvfs(&folder).expect("a file system");
    assert_eq!((stat.f_blocks, stat.f_bfree, stat.f_bsize), (SIZE_BYTES / 4096, 0, 4096));
    let file = open(&mount.path());
    assert_eq!(file.set_len(1).expect_err("not from here").raw_os_error(), Some(1));
    drop(file);
    mount.unmount(LIMIT).expect("unmounted");
    assert!(mount_line(&folder).is_none() && !folder.exists());
}

#[test]
fn requests_are_served_after_the_hand_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(mut mount) = mounted(&dir.path().join("file")) else { return };
    let disk = disk();
    let shares = mount.hand_over(3).expect("shares");
    assert!(mount.hand_over(1).is_err(), "only once");
    let servers: Vec<_> = shares
        .into_iter()
        .map(|share| {
            let disk = disk.try_clone().expect("a descriptor");
            thread::spawn(move || Server::new(share, disk, |_| {})?.run())
        })
        .collect();
    let file = open(&mount.path());
    let data: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 512) as u8).collect();
    file.write_all_at(&data, 512).expect("written");
    file.sync_all().expect("synchronized");
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, 512).expect("read");
    assert!(found == data);
    let flags = FallocateFlags::KEEP_SIZE;
    fallocate(&file, flags | FallocateFlags::PUNCH_HOLE, 0, 4096).expect("a hole");
    fallocate(&file, flags | FallocateFlags::ZERO_RANGE, 4096, 4096).expect("zeros");
    let refused = fallocate(&file, FallocateFlags::empty(), 0, 4096);
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    file.read_exact_at(&mut found[..8192], 0).expect("read");
    assert!(found[..8192].iter().all(|byte| *byte == 0));
    let end = file.write_all_at(&[1; 1024], SIZE_BYTES - 512).expect_err("behind the end");
    assert_eq!(end.raw_os_error(), Some(28));
    assert_eq!(file.read_at(&mut found[..1024], SIZE_BYTES - 512).expect("what there is"), 512);
    let mut direct = vec![0; data.len()];
    disk.read_exact_at(&mut direct[8192..], 512 + 8192).expect("read");
    assert!(direct[8192..] == data[8192..], "all is in the disk");
    drop(file);
    mount.unmount(LIMIT).expect("unmounted");
    for server in servers {
        server.join().expect("no panic").expect("it ends");
    }
}

#[test]
fn a_file_that_is_in_use_is_unmounted_all_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join("file");
    let Some(mount) = mounted(&folder) else { return };
    let file = open(&mount.path());
    drop(mount);
    assert!(mount_line(&folder).is_none() && !folder.exists());
    let error = file.read_at(&mut [0; 512], 0).expect_err("it has ended");
    assert!([Some(103), Some(107)].contains(&error.raw_os_error()), "{error}");
}

/// Serves a share until a client is done, as one server after the other does.
fn serve_until_done(share: &Share, disk: &File, client: thread::JoinHandle<()>) {
    let copy = Share {
        device: share.device.try_clone().expect("cloned"),
        area: share.area.try_clone().expect("cloned"),
    };
    let mut server = Server::new(copy, disk.try_clone().expect("cloned"), |_| {}).expect("a server");
    while !client.is_finished() {
        assert!(server.receive().expect("served"));
        thread::sleep(Duration::from_millis(1));
    }
    client.join().expect("no panic");
}

#[test]
fn questions_are_answered_again_while_there_is_no_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join("file");
    let Some(mut mount) = mounted(&folder) else { return };
    let disk = disk();
    let shares = mount.hand_over(1).expect("a share");
    let file = open_while(&mount.path(), &shares[0], &disk);
    let write = |byte: u8| {
        let file = file.try_clone().expect("cloned");
        thread::spawn(move || file.write_all_at(&[byte; 4096], 0).expect("written"))
    };
    serve_until_done(&shares[0], &disk, write(1));
    for _ in 0..2 {
        mount.answer(SIZE_BYTES).expect("answered again");
        mount.forget_size().expect("forgotten");
        assert_eq!(fs::metadata(mount.path()).expect("answered").size(), SIZE_BYTES);
        assert!(rustix::fs::statvfs(&folder).is_ok());
        mount.stop().expect("stopped");
    }
    mount.answer(SIZE_BYTES).expect("answered again");
    let writing = write(2);
    thread::sleep(Duration::from_millis(50));
    assert!(!writing.is_finished(), "it waits for a server");
    mount.stop().expect("stopped");
    serve_until_done(&shares[0], &disk, writing);
    let mut found = [0; 4096];
    disk.read_exact_at(&mut found, 0).expect("read");
    assert_eq!(found, [2; 4096]);
}

/// Opens the file, which its server has to answer.
fn open_while(path: &Path, share: &Share, disk: &File) -> File {
    let (path, (sender, opened)) = (path.to_path_buf(), std::sync::mpsc::channel());
    serve_until_done(share, disk, thread::spawn(move || sender.send(open(&path)).expect("received")));
    opened.recv().expect("opened")
}
