//! Devices whose requests the server takes from the kernel. Where the kernel has no FUSE, or no io_uring, the
//! tests print one line and pass.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use device::DeviceError;
use fuse::{Attributes, Mount, Share};
use nbd::client::{Agreed, Brought, Wishes, negotiate_attachment, take_left};
use nbd::front_end::GOODBYE;
use nbd::testing::MemoryDevice;
use nbd::ublk_queue::{OPEN, PREPARED, QueueNumber};
use nbd::{Listener, Server, ServerConfig};
use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;

use crate::client::{CAPACITY_BYTES, device, shared_of};

/// Longer than a server takes.
const LIMIT: Duration = Duration::from_secs(60);

struct Served {
    server: Option<Server>,
    folder: TempDir,
}

impl Served {
    fn start(device: &Arc<MemoryDevice>) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = Listener::unix(&folder.path().join("s")).expect("listens");
        let exports = shared_of(device, ServerConfig::default());
        let server = Server::start(&exports, vec![listener], 2).expect("starts");
        Served { server: Some(server), folder }
    }

    /// Connects as a keeper does.
    fn bring(&self, share: &Share) -> io::Result<UnixStream> {
        let mut stream = self.connect()?;
        let wishes = Wishes {
            brings: Some(Brought::Fuse(share)),
            opening: "",
            returns: true,
            for_kernel: false,
            uncached: false,
        };
        assert_eq!(negotiate_attachment(&mut stream, "", wishes)?, Agreed { attaches: true });
        Ok(stream)
    }

    fn bring_all(&self, shares: &[Share]) -> Vec<UnixStream> {
        shares.iter().map(|share| self.bring(share).expect("taken")).collect()
    }

    /// Connects as a keeper that has no device yet.
    fn connect_new(&self) -> io::Result<UnixStream> {
        let mut stream = self.connect()?;
        let wishes = Wishes { brings: None, opening: "", returns: false, for_kernel: false, uncached: false };
        negotiate_attachment(&mut stream, "", wishes).map(|_| stream)
    }

    /// What a keeper that was killed has left.
    fn left(&self) -> Vec<Share> {
        take_left(&mut self.connect().expect("connected"), "", "").expect("an answer")
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.folder.path().join("s"))?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    }

    fn stop(mut self) {
        self.server.take().into_iter().for_each(Server::shutdown);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.take().into_iter().for_each(Server::shutdown);
    }
}

/// Ends a connection as a keeper does that leaves.
fn leave(mut stream: UnixStream) {
    stream.write_all(&[GOODBYE]).expect("sent");
}

/// A FUSE file in a folder of its own; `None` where there is no FUSE.
fn mounted() -> Option<(TempDir, Mount)> {
    let folder = tempfile::tempdir().expect("a folder");
    let attributes = Attributes { size_bytes: CAPACITY_BYTES, mode: 0o600, block_bytes: 4096 };
    match Mount::new(&folder.path().join("file"), attributes) {
        Ok(mount) => Some((folder, mount)),
        Err(error) => {
            eprintln!("skipped: no FUSE here: {error}");
            None
        }
    }
}

fn open(mount: &Mount) -> File {
    File::options().read(true).write(true).open(mount.path()).expect("the FUSE file")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Writes a block, which may take a while.
fn write(file: &File, at: u64, byte: u8) -> JoinHandle<io::Result<()>> {
    let file = file.try_clone().expect("cloned");
    thread::spawn(move || file.write_all_at(&[byte; 4096], at))
}

fn byte_at(file: &File, at: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    byte[0]
}

#[test]
fn the_file_is_the_device() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let device = Arc::new(device());
    let served = Served::start(&device);
    let shares = mount.hand_over(2).expect("shares");
    let _streams = served.bring_all(&shares);
    let file = open(&mount);
    let data: Vec<u8> = (0..3 << 20).map(|at| (at / 777) as u8).collect();
    file.write_all_at(&data, 512).expect("written");
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 512).expect("read");
    assert!(read == data);
    let flushes = device.flushes();
    file.sync_all().expect("synced");
    assert!(device.flushes() > flushes);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).expect("trimmed");
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 65536, 4096).expect("zeroed");
    for (at, is_zero) in [(4096, true), (12287, true), (12288, false), (65536, true), (70000, false)] {
        assert_eq!(byte_at(&file, at) == 0, is_zero, "at {at}");
    }
    let errno = |result: io::Result<()>| result.expect_err("refused").raw_os_error();
    assert_eq!(errno(file.write_all_at(&[1; 512], CAPACITY_BYTES)), Some(28), "behind the end");
    assert_eq!(file.read_at(&mut [0; 512], CAPACITY_BYTES).expect("nothing"), 0);
    device.fail_with(Some(DeviceError::NoSpace));
    assert_eq!(errno(file.write_all_at(&[1; 512], 0)), Some(28));
    device.fail_with(Some(DeviceError::Io("broken".to_owned())));
    assert_eq!(errno(file.read_exact_at(&mut [0; 512], 0)), Some(5));
    device.fail_with(None);
    let size = || fs::metadata(mount.path()).expect("answered").size();
    for capacity_bytes in [CAPACITY_BYTES / 2, CAPACITY_BYTES] {
        device.set_capacity(capacity_bytes);
        mount.forget_size().expect("forgotten");
        assert_eq!(size(), capacity_bytes);
    }
}

#[test]
fn many_writers_read_what_they_wrote() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let device = Arc::new(device());
    device.yield_once(true);
    let served = Served::start(&device);
    let shares = mount.hand_over(2).expect("shares");
    let mut streams = served.bring_all(&shares);
    let file = open(&mount);
    let clients: Vec<_> = (0..8_u64)
        .map(|number| {
            let file = file.try_clone().expect("cloned");
            thread::spawn(move || {
                for round in 0..200_u64 {
                    // Small ones, and those that other threads help with.
                    let length = if round % 5 == 0 { 160 << 10 } else { 4096 };
                    let (at, byte) = (number << 20, (number * 31 + round) as u8);
                    file.write_all_at(&vec![byte; length], at).expect("written");
                    let mut read = vec![0; length];
                    file.read_exact_at(&mut read, at).expect("read");
                    assert!(read.iter().all(|found| *found == byte), "client {number}, round {round}");
                }
            })
        })
        .collect();
    // Meanwhile the keeper comes again, with and without a pause.
    for round in 0..20 {
        match round % 3 {
            0 => streams.clear(),
            _ => streams.drain(..).for_each(leave),
        }
        thread::sleep(Duration::from_millis(round % 4));
        streams = served.bring_all(&shares);
    }
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
}

#[test]
fn what_has_no_answer_is_for_the_next_connection() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let device = Arc::new(device());
    let served = Served::start(&device);
    let shares = mount.hand_over(1).expect("a share");
    let stream = served.bring(&shares[0]).expect("taken");
    let file = open(&mount);
    file.write_all_at(&[1; 8192], 0).expect("written");
    // As on a full drive.
    device.wait(true);
    let writing = write(&file, 0, 2);
    wait_until("it waits", || device.delayed() >= 1);
    assert_eq!(byte_at(&file, 0), 1, "reads pass it");
    leave(stream);
    let reading = thread::spawn({
        let file = file.try_clone().expect("cloned");
        move || byte_at(&file, 5000)
    });
    let stream = served.bring(&shares[0]).expect("taken again");
    assert_eq!(reading.join().expect("no panic"), 1, "it waited for a server");
    wait_until("it waits again", || device.delayed() >= 2);
    assert!(!writing.is_finished());
    // The server ends, and another one has the device.
    served.stop();
    drop(stream);
    device.wait(false);
    let next = Served::start(&device);
    let _stream = next.bring(&shares[0]).expect("taken");
    writing.join().expect("no panic").expect("written");
    assert_eq!((byte_at(&file, 0), byte_at(&file, 5000)), (2, 1));
}

#[test]
fn the_end_of_a_keeper_that_was_killed_ends_nothing() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let device = Arc::new(device());
    let served = Served::start(&device);
    let shares = mount.hand_over(2).expect("shares");
    let streams = served.bring_all(&shares);
    let file = open(&mount);
    file.write_all_at(&[1; 8192], 0).expect("written");
    // A write that waits goes on waiting.
    device.wait(true);
    let writing = write(&file, 0, 2);
    wait_until("it waits", || device.delayed() >= 1);
    drop((streams, shares));
    wait_until("both are left", || served.left().len() == 2);
    assert_eq!(byte_at(&file, 5000), 1, "reads are answered");
    assert!(!writing.is_finished());
    device.wait(false);
    let refused = served.connect_new().expect_err("the device is there still").to_string();
    assert!(refused.contains("its bridge was killed"), "{refused}");
    // The next keeper is killed before it has brought all, and the one after that is not.
    let some = served.left();
    drop(served.bring(&some[0]).expect("taken"));
    drop(some);
    wait_until("both are left again", || served.left().len() == 2);
    for at in 1..16 {
        file.write_all_at(&[3; 4096], at << 16).expect("written");
    }
    let shares = served.left();
    let streams = served.bring_all(&shares);
    // It was left to the connections that came.
    writing.join().expect("no panic").expect("written");
    assert_eq!([0, 5000, 15 << 16].map(|at| byte_at(&file, at)), [2, 1, 3]);
    // One that leaves, and takes the file with it.
    streams.into_iter().for_each(leave);
    wait_until("nobody serves it", || served.connect_new().is_ok());
    let reading = thread::spawn(move || byte_at(&file, 0));
    thread::sleep(Duration::from_millis(100));
    assert!(!reading.is_finished(), "the next server answers that");
    let _streams = served.bring_all(&shares);
    assert_eq!(reading.join().expect("no panic"), 2);
}

#[test]
fn nobody_is_told_that_nothing_is_left_while_something_is_served() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let served = Served::start(&Arc::new(device()));
    assert!(served.left().is_empty(), "nothing is served");
    let shares = mount.hand_over(2).expect("shares");
    let mut streams = served.bring_all(&shares);
    thread::scope(|scope| {
        let asking = scope.spawn(|| served.left().len());
        // One that asks later finds the same.
        thread::sleep(Duration::from_millis(200));
        streams.truncate(1);
        thread::sleep(Duration::from_millis(200));
        streams.clear();
        assert_eq!(asking.join().expect("no panic"), 2);
    });
}

#[test]
fn nothing_is_kept_of_a_file_that_is_not_mounted_any_more() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let device = Arc::new(device());
    let served = Served::start(&device);
    let shares = mount.hand_over(2).expect("shares");
    drop(served.bring_all(&shares));
    drop(shares);
    wait_until("both are left", || served.left().len() == 2);
    mount.unmount(LIMIT).expect("unmounted");
    wait_until("nothing is left", || served.left().is_empty());
    served.connect_new().expect("the drive can be attached");
}

#[test]
fn a_server_that_stops_gives_up_what_a_keeper_has_left() {
    let Some((_folder, mut mount)) = mounted() else { return };
    let served = Served::start(&Arc::new(device()));
    let shares = mount.hand_over(1).expect("a share");
    let streams = served.bring_all(&shares);
    let file = open(&mount);
    drop((streams, shares));
    wait_until("it is left", || served.left().len() == 1);
    served.stop();
    // This process has a descriptor of the first share, for its questions. Whoever reads would wait for a
    // server.
    let reading = thread::spawn(move || file.read_at(&mut [0], 0));
    mount.unmount(Duration::ZERO).expect("unmounted");
    assert!(reading.join().expect("no panic").is_err());
}

/// What the server says next; `None`: the connection has ended.
fn said(mut stream: &UnixStream) -> Option<u8> {
    let mut word = [0];
    match stream.read(&mut word).expect("in time") {
        0 => None,
        _ => Some(word[0]),
    }
}

#[test]
fn a_queue_ends_with_its_connection_and_the_other_way_round() {
    let device = Arc::new(device());
    let served = Served::start(&device);
    let queue = QueueNumber { number: 1, depth: 8 };
    let bring = |character: &File| {
        let mut stream = UnixStream::connect(served.folder.path().join("s"))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let brings = Some(Brought::Queue(queue, character));
        let wishes = Wishes { brings, opening: "", returns: true, for_kernel: false, uncached: false };
        negotiate_attachment(&mut stream, "", wishes).map(|_| stream)
    };
    let file = tempfile::tempfile().expect("a file");
    assert_eq!(bring(&file).expect_err("no device").kind(), io::ErrorKind::InvalidData);
    let null = File::open("/dev/null").expect("a device");
    let first = bring(&null).expect("taken");
    if said(&first) != Some(PREPARED) {
        eprintln!("skipped: no io_uring here");
        return;
    }
    // The keeper leaves before the device has the queue. The next connection waits for the end of this one.
    drop(first);
    let mut second = bring(&null).expect("taken");
    assert_eq!(said(&second), Some(PREPARED));
    second.write_all(&[OPEN]).expect("sent");
    assert_eq!(said(&second), None, "its commands are for another driver");
    let third = bring(&null).expect("taken");
    assert_eq!(said(&third), Some(PREPARED));
    served.stop();
    assert_eq!(said(&third), None, "the server ends");
}
