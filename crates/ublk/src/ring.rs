//! The commands of a queue: requests come as completions of commands in an io_uring, and are answered by new
//! commands.
#![allow(unsafe_code, reason = "io_uring, a mapping, a watched descriptor")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::request::{REQUEST_BYTES, Request};

/// `UBLK_U_IO_FETCH_REQ`, `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: `_IOWR('u', NUMBER, struct ublksrv_io_cmd)`.
const FETCH: u32 = 3 << 30 | (COMMAND_BYTES as u32) << 16 | (b'u' as u32) << 8 | 0x20;
const COMMIT_AND_FETCH: u32 = FETCH + 1;
/// Bytes of `struct ublksrv_io_cmd`.
const COMMAND_BYTES: usize = 16;
/// `UBLK_MAX_QUEUE_DEPTH`: gives the places of the queues' requests in the device.
const DEPTH_MAX: usize = 4096;

/// Interval between attempts of a submission that the kernel refused temporarily.
pub const AGAIN: Duration = Duration::from_millis(1);

/// Returns whether to retry a failed submission to io_uring: a signal came, memory is short, or completions
/// have to be reaped first.
pub fn passes(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    [Errno::INTR, Errno::AGAIN, Errno::BUSY].iter().any(|passing| error == Some(*passing))
}

/// An event of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived, with its tag.
    Request(u16, Request),
    /// No more requests come with this tag: the device is being stopped, or passes to another server.
    Ended(u16),
}

/// A ring that has no queue yet. Little can fail once it exists: a takeover is not left half done.
pub struct Ring {
    ring: IoUring,
    depth: u16,
}

/// A queue of a device. It stays on its thread, which sends all its commands. When it is dropped, the driver
/// takes back all requests that were not answered.
pub struct Queue {
    ring: IoUring,
    requests: NonNull<c_void>,
    device: Arc<File>,
    number: u16,
    depth: u16,
}

impl Ring {
    /// See [`IdleQueue::hold`](crate::IdleQueue::hold).
    pub(crate) fn hold(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring is open for as long as it is borrowed.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        ring.try_clone_to_owned()
    }

    /// Creates a ring for `depth` requests in flight. Their arrival is counted in `signals`, an eventfd.
    ///
    /// # Errors
    /// Of io_uring.
    pub fn new(signals: BorrowedFd<'_>, depth: u16) -> io::Result<Ring> {
        let ring = IoUring::builder().build(u32::from(depth).next_power_of_two())?;
        ring.submitter().register_eventfd(signals.as_raw_fd())?;
        Ok(Ring { ring, depth })
    }

    /// Sends commands to fetch requests of queue `number` of a device, and maps its requests. None comes
    /// before the device is started. `device` is the driver's own, `/dev/ublkcN`.
    ///
    /// # Errors
    /// Of the driver: it has all commands then, or none is left once the ring is dropped.
    pub fn open(mut self, device: Arc<File>, number: u16) -> io::Result<Queue> {
        for tag in 0..self.depth {
            push(&mut self.ring, &command(&device, number, FETCH, tag, 0));
        }
        // All of them: the queue has a thread, for the driver, once it has the last one. Commonly that is one
        // system call.
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Err(error) if passes(&error) => sleep(AGAIN),
                submitted => drop(submitted?),
            }
        }
        // Commands that the kernel accepts end later.
        if let Some(refused) = self.ring.completion().next() {
            return Err(io::Error::from_raw_os_error(refused.result().abs()));
        }
        let Ring { ring, depth } = self;
        // Last: the driver lets one process map it, until it is made to forget that one by a takeover, for
        // which it wants all queues to have a thread.
        let requests = map(&device, number, depth)?;
        Ok(Queue { ring, requests, device, number, depth })
    }
}

/// Maps the requests of a queue.
fn map(device: &File, number: u16, depth: u16) -> io::Result<NonNull<c_void>> {
    let offset = usize::from(number) * (DEPTH_MAX * REQUEST_BYTES).next_multiple_of(page_size());
    let (size, flags) = (mapped_bytes(depth), MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let requests =
        unsafe { mmap(std::ptr::null_mut(), size, ProtFlags::READ, flags, device.as_fd(), offset as u64)? };
    Ok(NonNull::new(requests).ok_or(io::ErrorKind::InvalidData)?)
}

/// A command of a queue.
fn command(device: &File, number: u16, command: u32, tag: u16, result: i32) -> squeue::Entry {
    let mut bytes = [0; COMMAND_BYTES];
    bytes[0..2].copy_from_slice(&number.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    let entry = opcode::UringCmd16::new(types::Fd(device.as_raw_fd()), command).cmd(bytes).build();
    entry.user_data(tag.into())
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: a command has no pointer: data is copied by reads and writes of the device. The device is open
    // as long as the ring exists.
    let pushed = unsafe { ring.submission().push(entry) };
    assert!(pushed.is_ok(), "the ring has room for a command of each tag");
}

impl Queue {
    /// Number of the queue.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Requests in flight, at most.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The driver's own device.
    pub fn device(&self) -> &Arc<File> {
        &self.device
    }

    /// Answers a request, and fetches the next one with its tag: bytes that are done, or a negative error
    /// number. Sent by [`Queue::submit`].
    pub fn answer(&mut self, tag: u16, result: i32) {
        let entry = command(&self.device, self.number, COMMIT_AND_FETCH, tag, result);
        push(&mut self.ring, &entry);
    }

    /// Sends all commands. Returns false if the kernel could not take all of them now: to be called again,
    /// after [`AGAIN`].
    ///
    /// # Errors
    /// If the kernel takes no more.
    pub fn submit(&mut self) -> io::Result<bool> {
        if self.ring.submission().is_empty() {
            return Ok(true);
        }
        match self.ring.submit() {
            Ok(_) => Ok(self.ring.submission().is_empty()),
            // Entries that were not submitted stay in the ring.
            Err(error) if passes(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds what has happened to `events`.
    ///
    /// # Errors
    /// If the driver refuses a command: its request would never be answered.
    pub fn take(&mut self, events: &mut impl Extend<Event>) -> io::Result<()> {
        let Queue { ring, requests, depth, .. } = self;
        for entry in ring.completion() {
            let (tag, result) = (entry.user_data() as u16, entry.result());
            let event = if result == 0 {
                Event::Request(tag, request(*requests, *depth, tag))
            } else if result == -Errno::NODEV.raw_os_error() {
                Event::Ended(tag)
            } else {
                tracing::error!(tag, result, "ublk refuses a command");
                return Err(io::Error::from_raw_os_error(result.abs()));
            };
            events.extend([event]);
        }
        Ok(())
    }
}

/// Reads a request that arrived, from the mapping of a queue.
fn request(requests: NonNull<c_void>, depth: u16, tag: u16) -> Request {
    assert!(tag < depth, "the kernel returns tags that it was given");
    // SAFETY: the mapping has `depth` requests. The kernel changes this one only after it was answered.
    let bytes = unsafe { requests.cast::<[u8; REQUEST_BYTES]>().add(tag.into()).as_ptr().read_volatile() };
    Request::decode(&bytes)
}

/// Watches an eventfd in the runtime of this thread.
pub(crate) fn watch(signals: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open, and the same descriptor, for as long as it lives, and the AsyncFd owns it.
    Ok(unsafe { AsyncFd::register_with_interest(signals, Interest::READABLE) }?)
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.requests.as_ptr(), mapped_bytes(self.depth)) };
        debug_assert!(unmapped.is_ok());
    }
}

fn mapped_bytes(depth: u16) -> usize {
    (usize::from(depth) * REQUEST_BYTES).next_multiple_of(page_size())
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn only_what_passes_is_tried_again() {
        for (error, expected) in
            [(Errno::INTR, true), (Errno::AGAIN, true), (Errno::BUSY, true), (Errno::BADF, false)]
        {
            assert_eq!(passes(&error.into()), expected, "{error}");
        }
        assert!(!passes(&io::ErrorKind::InvalidData.into()));
    }

    #[test]
    fn what_is_no_device_of_the_driver_is_refused() -> io::Result<()> {
        let signals = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ring = match Ring::new(signals.as_fd(), 4) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("skipped: io_uring: {error}");
                return Ok(());
            }
        };
        let file = Arc::new(tempfile::tempfile()?);
        let refused = ring.open(file.clone(), 0).err().expect("a file has no commands");
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::OPNOTSUPP));
        assert_eq!(Arc::strong_count(&file), 1, "it is not kept open");
        let mut count = [0; 8];
        rustix::io::read(&signals, &mut count)?;
        assert!(u64::from_ne_bytes(count) > 0, "ends of commands are signalled");
        Ok(())
    }
}
