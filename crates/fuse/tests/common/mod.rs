//! A server over a file, for the tests under a real kernel.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fuse::wire::{Reply, answer, data_header};
use fuse::{Area, Attributes, Entry, Left, Mount, Operation, Received, Share, Taken};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub(crate) const SIZE_BYTES: u64 = 8 << 20;
pub(crate) const ATTRIBUTES: Attributes =
    Attributes { size_bytes: SIZE_BYTES, mode: 0o600, block_bytes: 4096 };
/// Requests that are received before any is executed, the last first.
const BATCH_MAX: usize = 8;

/// Mounts the file system. `None`: it is not possible here, and one line says so.
pub(crate) fn mounted(folder: &Path) -> Option<Mount> {
    match Mount::new(folder, ATTRIBUTES) {
        Ok(mount) => Some(mount),
        Err(error) => {
            println!("skipped: a FUSE file, which needs /dev/fuse and the permission to mount: {error}");
            None
        }
    }
}

/// What a server has found at its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    pub(crate) questions: u64,
}

/// A server of one connection.
pub(crate) struct Server {
    device: OwnedFd,
    area: Area,
    disk: File,
    out: Vec<u8>,
}

impl Server {
    /// Also does what the last server left. `found` is called before.
    pub(crate) fn new(share: Share, disk: File, found: impl FnOnce(Found)) -> io::Result<Server> {
        let area = Area::open(share.area)?;
        let mut server = Server { device: share.device, area, disk, out: Vec::new() };
        let left = server.area.left()?;
        let mut count = Found::default();
        for left in &left {
            match left {
                Left::Request(_) => count.requests += 1,
                Left::Answer { .. } => count.answers += 1,
                Left::Question { .. } => count.questions += 1,
            }
        }
        found(count);
        for left in left {
            match left {
                Left::Request(taken) => server.execute(taken)?,
                Left::Answer { entry, unique, operation, result } => {
                    server.finish(entry, &Reply::new(unique, operation, result))?;
                }
                Left::Question { unique, question } => {
                    answer(unique, &question, &ATTRIBUTES, &mut server.out);
                    server.send_out()?;
                }
            }
        }
        Ok(server)
    }

    /// Serves until the file system is unmounted.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while self.receive()? {
            match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives what is there, and executes it. Returns false if it is not mounted any more.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_MAX && self.area.has_room() {
            let device = &self.device;
            match self.area.receive(|bytes| Ok(rustix::io::read(device, bytes)?)) {
                Ok(Received::Request(taken)) => batch.push(taken),
                Ok(Received::Question { unique, question }) => {
                    answer(unique, &question, &ATTRIBUTES, &mut self.out);
                    self.send_out()?;
                }
                Ok(Received::Nothing) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => break,
                    Some(Errno::INTR | Errno::NOENT) => {}
                    Some(Errno::NODEV) => return Ok(false),
                    _ => return Err(error),
                },
            }
        }
        while let Some(taken) = batch.pop() {
            self.execute(taken)?;
        }
        Ok(true)
    }

    fn execute(&mut self, taken: Taken) -> io::Result<()> {
        let Taken { unique, operation, entry, payload } = taken;
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(5);
        let result = operation.within(SIZE_BYTES).and_then(|operation| match operation {
            Operation::Read { offset, length } => {
                self.out.clear();
                self.out.extend(data_header(unique, length));
                self.out.resize(16 + length as usize, 0);
                self.disk.read_exact_at(&mut self.out[16..], offset).map_err(errno)
            }
            Operation::Write { offset, .. } => {
                let data = payload.as_ref().map_or(&[][..], |payload| payload.as_slice());
                self.disk.write_all_at(data, offset).map_err(errno)
            }
            Operation::Flush => Ok(()),
            Operation::Trim { offset, length } | Operation::Zeroes { offset, length } => {
                self.disk.write_all_at(&vec![0; length as usize], offset).map_err(errno)
            }
        });
        if let (Operation::Read { .. }, Ok(())) = (operation, result) {
            self.send_out()?;
            self.area.free(entry);
            return Ok(());
        }
        self.area.done(&entry, result);
        self.finish(entry, &Reply::new(unique, operation, result))
    }

    fn finish(&mut self, entry: Entry, reply: &[u8]) -> io::Result<()> {
        send(&self.device, reply)?;
        self.area.free(entry);
        Ok(())
    }

    fn send_out(&self) -> io::Result<()> {
        send(&self.device, &self.out)
    }
}

fn send(device: &OwnedFd, answer: &[u8]) -> io::Result<()> {
    match rustix::io::write(device, answer) {
        // It was answered by the last server, or nobody waits any more.
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
