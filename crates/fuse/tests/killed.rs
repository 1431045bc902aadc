//! A server under a mounted file that is killed while clients rewrite what they own and read it back at once.
//! Without FUSE the test prints one line and passes.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

mod common;

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{SIZE_BYTES, Server, mounted};
use fuse::Share;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Set in a server: its directory.
const SERVES: &str = "PUMICE_TEST_FUSE_SERVER";
const DISK: &str = "disk";
/// What servers have found, a line each.
const FOUND: &str = "found";

const KILLS: usize = 200;
const SHARES: usize = 2;
const CLIENTS: usize = 8;
const CLIENT_BYTES: u64 = SIZE_BYTES / CLIENTS as u64;
/// More than one request.
const WRITE_BYTES_MAX: u64 = 300 << 10;
/// Requests that a server answers before it is killed, at most.
const PROGRESS_MAX: u64 = 12;
/// Time after which something is taken as lost.
const LIMIT: Duration = Duration::from_secs(60);

/// Nothing, unless the other test has started this process as a server.
#[test]
fn the_server_of_the_other_test() {
    let Some(folder) = std::env::var_os(SERVES) else { return };
    let folder = Path::new(&folder);
    let disk = File::options().read(true).write(true).open(folder.join(DISK)).expect("a disk");
    let servers: Vec<_> = received(io::stdin().as_fd())
        .expect("shares")
        .into_iter()
        .map(|share| {
            let disk = disk.try_clone().expect("a descriptor");
            let mut log = File::options().append(true).open(folder.join(FOUND)).expect("a log");
            thread::spawn(move || {
                let count = |found: common::Found| {
                    let line = format!("{} {} {}\n", found.requests, found.answers, found.questions);
                    log.write_all(line.as_bytes()).expect("written");
                };
                Server::new(share, disk, count)?.run()
            })
        })
        .collect();
    for server in servers {
        server.join().expect("no panic").expect("it serves");
    }
}

/// Receives the descriptors of all shares.
fn received(socket: BorrowedFd<'_>) -> io::Result<Vec<Share>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * SHARES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = message {
            descriptors.extend(found);
        }
    }
    let mut shares = Vec::new();
    let mut descriptors = descriptors.into_iter();
    while let (Some(device), Some(area)) = (descriptors.next(), descriptors.next()) {
        shares.push(Share { device, area });
    }
    Ok(shares)
}

fn send(socket: &UnixStream, shares: &[Share]) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> =
        shares.iter().flat_map(|share| [share.device.as_fd(), share.area.as_fd()]).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * SHARES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

fn start(folder: &Path, shares: &[Share]) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "--nocapture", "the_server_of_the_other_test"])
        .env(SERVES, folder)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    send(&ours, shares)?;
    Ok(child)
}

/// What clients and the test share.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    requests: AtomicU64,
}

/// A client that owns a range. Returns what is in it at the end.
fn client(file: &File, number: u64, progress: &Progress) -> io::Result<Vec<u8>> {
    let mut random = StdRng::seed_from_u64(number);
    let start = number * CLIENT_BYTES;
    let mut content = vec![0; CLIENT_BYTES as usize];
    while !progress.is_over.load(Ordering::Relaxed) {
        let length = match random.random_range(0..4) {
            0 => random.random_range(1..=WRITE_BYTES_MAX / 512) * 512,
            _ => random.random_range(1..=40) * 512,
        };
        // Near each other, so that they overlap often.
        let at = random.random_range(0..128) * 512;
        let part = &mut content[at as usize..(at + length) as usize];
        match random.random_range(0..12) {
            0 => {
                part.fill(0);
                let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
                fallocate(file, flags, start + at, length)?;
            }
            1 => {
                file.sync_data()?;
                continue;
            }
            _ => {
                random.fill(part);
                file.write_all_at(part, start + at)?;
            }
        }
        let mut found = vec![0; length as usize];
        file.read_exact_at(&mut found, start + at)?;
        assert!(found == part, "client {number} lost a change of {length} bytes at {at}");
        progress.requests.fetch_add(1, Ordering::Relaxed);
    }
    Ok(content)
}

#[test]
fn nothing_fails_and_nothing_is_lost() {
    if std::env::var_os(SERVES).is_some() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let Some(mut mount) = mounted(&dir.path().join("file")) else { return };
    let disk = File::create_new(dir.path().join(DISK)).expect("a disk");
    disk.set_len(SIZE_BYTES).expect("room");
    File::create_new(dir.path().join(FOUND)).expect("a log");
    let file = File::options().read(true).write(true).open(mount.path()).expect("the FUSE file");
    let (file, progress) = (Arc::new(file), Arc::new(Progress::default()));
    let clients: Vec<_> = (0..CLIENTS as u64)
        .map(|number| {
            let (file, progress) = (file.clone(), progress.clone());
            thread::spawn(move || client(&file, number, &progress))
        })
        .collect();
    let shares = mount.hand_over(SHARES).expect("shares");
    let mut random = StdRng::seed_from_u64(4711);
    for kill in 0..KILLS {
        let mut server = start(dir.path(), &shares).expect("a server");
        let goal = progress.requests.load(Ordering::Relaxed) + random.random_range(1..=PROGRESS_MAX);
        let since = Instant::now();
        while progress.requests.load(Ordering::Relaxed) < goal {
            assert!(since.elapsed() < LIMIT, "server {kill} makes no progress");
            assert!(!clients.iter().any(|client| client.is_finished()), "a client failed");
            thread::sleep(Duration::from_micros(50));
        }
        server.kill().expect("killed");
        let status = server.wait().expect("its end");
        assert_eq!(status.code(), None, "it was killed, and did not fail before");
    }
    progress.is_over.store(true, Ordering::Relaxed);
    let mut last = start(dir.path(), &shares).expect("a server");
    let contents: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("nothing lost").expect("no I/O error"))
        .collect();
    let mut found = vec![0; SIZE_BYTES as usize];
    file.read_exact_at(&mut found, 0).expect("read");
    assert!(found == contents.concat(), "the file has what the clients wrote");
    drop(file);
    mount.unmount(LIMIT).expect("unmounted");
    assert!(last.wait().expect("its end").success());
    let found = fs::read_to_string(dir.path().join(FOUND)).expect("a log");
    let sum = |at: usize| -> u64 {
        let numbers = found.lines().filter_map(|line| line.split(' ').nth(at)?.parse::<u64>().ok());
        numbers.sum()
    };
    let requests = progress.requests.load(Ordering::Relaxed);
    println!("{KILLS} kills, {requests} changes; left: {} to execute, {} to answer", sum(0), sum(1));
}
