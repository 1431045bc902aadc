//! A queue of a ublk device: requests come as completions of commands in an io_uring, and are answered by new
//! commands. All commands of a queue come from one thread.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::sleep;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use super::{AGAIN, passes};

/// `UBLK_U_IO_FETCH_REQ`, `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: `_IOWR('u', NUMBER, struct ublksrv_io_cmd)`.
const FETCH: u32 = 3 << 30 | (COMMAND_BYTES as u32) << 16 | (b'u' as u32) << 8 | 0x20;
const COMMIT_AND_FETCH: u32 = FETCH + 1;
/// Bytes of `struct ublksrv_io_cmd`.
const COMMAND_BYTES: usize = 16;
/// Bytes of `struct ublksrv_io_desc`.
const REQUEST_BYTES: usize = 24;
/// Bytes of an event's count.
const COUNT_BYTES: usize = 8;
/// `UBLK_MAX_QUEUE_DEPTH`: gives the places of the queues' requests in the device.
const DEPTH_MAX: usize = 4096;
/// Marks the completion of reading the event.
const EVENT: u64 = u64::MAX;

/// A request: `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UblkRequest {
    /// `UBLK_IO_OP_*`.
    pub(crate) operation: u8,
    /// `UBLK_IO_F_*`, shifted by 8.
    pub(crate) flags: u32,
    /// In units of 512 bytes.
    pub(crate) sectors: u32,
    pub(crate) start_sector: u64,
}

/// An event of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UblkEvent {
    /// A request arrived.
    Request(u16, UblkRequest),
    /// No more requests come with this tag: the device is being stopped.
    Ended(u16),
    /// Another thread has written to the event.
    Woken,
}

/// Resources of a queue that need no device.
pub(crate) struct UblkRing {
    event: OwnedFd,
    depth: u16,
    ring: IoUring,
}

/// See the [module](self).
pub(crate) struct UblkQueue {
    device: Arc<File>,
    event: OwnedFd,
    number: u16,
    depth: u16,
    requests: NonNull<c_void>,
    /// Buffer for the count of the event. Never freed: the kernel may write to it until it has torn down the
    /// ring.
    count: NonNull<u8>,
    ring: IoUring,
}

impl UblkRing {
    /// `event` is an eventfd.
    pub(crate) fn new(event: OwnedFd, depth: u16) -> std::io::Result<UblkRing> {
        let ring = IoUring::builder().build(u32::from(depth).next_power_of_two() * 2)?;
        Ok(UblkRing { event, depth, ring })
    }

    /// Sends commands to fetch requests of queue `number` of a device, and maps its requests. None comes
    /// before the device is started.
    pub(crate) fn open(mut self, device: Arc<File>, number: u16) -> std::io::Result<UblkQueue> {
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
            return Err(std::io::Error::from_raw_os_error(refused.result().abs()));
        }
        let UblkRing { event, depth, ring } = self;
        // Last: the driver lets one process map it, until it is made to forget that one by a takeover, for
        // which it wants all queues to have a thread.
        let requests = map(&device, number, depth)?;
        let count = NonNull::from(Box::leak(Box::new([0; COUNT_BYTES]))).cast();
        let mut queue = UblkQueue { device, event, number, depth, requests, count, ring };
        queue.read_event();
        Ok(queue)
    }
}

/// Maps the requests of a queue.
fn map(device: &File, number: u16, depth: u16) -> std::io::Result<NonNull<c_void>> {
    let offset = usize::from(number) * (DEPTH_MAX * REQUEST_BYTES).next_multiple_of(page_size());
    let (size, flags) = (mapped_bytes(depth), MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let requests =
        unsafe { mmap(std::ptr::null_mut(), size, ProtFlags::READ, flags, device.as_fd(), offset as u64)? };
    Ok(NonNull::new(requests).ok_or(std::io::ErrorKind::InvalidData)?)
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
    // SAFETY: only the read of the event has a pointer, to memory that is never freed; data is copied by
    // reads and writes of the device.
    let pushed = unsafe { ring.submission().push(entry) };
    assert!(pushed.is_ok(), "the ring has room for a command of each tag, and for the event");
}

impl UblkQueue {
    /// Waits for the next write to the event. Reading it, rather than waiting until it is readable, takes no
    /// other system call.
    fn read_event(&mut self) {
        let event = types::Fd(self.event.as_raw_fd());
        let read = opcode::Read::new(event, self.count.as_ptr(), COUNT_BYTES as u32).build().user_data(EVENT);
        push(&mut self.ring, &read);
    }

    /// Answers a request, and fetches the next one with its tag.
    pub(crate) fn answer(&mut self, tag: u16, result: i32) {
        let entry = command(&self.device, self.number, COMMIT_AND_FETCH, tag, result);
        push(&mut self.ring, &entry);
    }

    /// Sends all commands, and waits until something happens. Adds what it is to `events`.
    pub(crate) fn wait(&mut self, events: &mut Vec<UblkEvent>) -> std::io::Result<()> {
        let submitted = self.ring.submit_and_wait(1);
        let done: Vec<_> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        match submitted {
            Ok(_) => {}
            // Entries that were not submitted stay in the ring.
            Err(error) if passes(&error) => {
                if done.is_empty() {
                    sleep(AGAIN);
                }
            }
            Err(error) => return Err(error),
        }
        for (data, result) in done {
            if data == EVENT {
                if result < 0 {
                    let error = std::io::Error::from_raw_os_error(-result);
                    if !passes(&error) {
                        return Err(error);
                    }
                }
                self.read_event();
                events.push(UblkEvent::Woken);
            } else if result == 0 {
                let tag = data as u16;
                events.push(UblkEvent::Request(tag, self.request(tag)));
            } else if result == -Errno::NODEV.raw_os_error() {
                events.push(UblkEvent::Ended(data as u16));
            } else {
                // Its request would never be answered.
                tracing::error!(tag = data, result, "ublk refuses a command");
                return Err(std::io::Error::from_raw_os_error(result.abs()));
            }
        }
        Ok(())
    }

    fn request(&self, tag: u16) -> UblkRequest {
        assert!(tag < self.depth, "the kernel returns tags that it was given");
        // SAFETY: the mapping has `depth` requests. The kernel changes this one only after it was answered.
        let bytes =
            unsafe { self.requests.cast::<[u8; REQUEST_BYTES]>().add(tag.into()).as_ptr().read_volatile() };
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_ne_bytes(words[at]);
        let (pairs, _) = bytes.as_chunks::<8>();
        UblkRequest {
            operation: word(0) as u8,
            flags: word(0) >> 8,
            sectors: word(1),
            start_sector: u64::from_ne_bytes(pairs[1]),
        }
    }
}

impl Drop for UblkQueue {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.requests.as_ptr(), mapped_bytes(self.depth)) };
        debug_assert!(unmapped.is_ok());
    }
}

fn mapped_bytes(depth: u16) -> usize {
    (usize::from(depth) * REQUEST_BYTES).next_multiple_of(page_size())
}
