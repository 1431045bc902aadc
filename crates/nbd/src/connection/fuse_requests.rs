//! Requests of a FUSE file: read from the device into the [area](fuse::Area), executed as those of NBD
//! clients are, answered through the device.
//!
//! What has no answer when the connection ends stays in the area. The next server, or the next connection of
//! this one, takes it up.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use device::{Device, DeviceError};
use fuse::wire::{self, Reply};
use fuse::{Area, Attributes, Left, Question, Received, Share, Taken};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use slots::Slots;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::connection::buffers::{Buffer, Memory};
use crate::connection::execute::{Finished, Request, errno};
use crate::connection::planted::Planted;
use crate::error::ConnectionError;
use crate::limits::budget::{Budget, Lease};
use crate::limits::config::ServerConfig;
use crate::limits::helpers::{Assignment, HELPED_BYTES_MIN, Helpers};
use crate::wire::operation::Operation;

/// Most requests read before the first of them is started.
const AHEAD_MAX: usize = 16;
/// Access to the file, which root alone reaches.
const WRITABLE: u16 = 0o600;
/// Access to the file of a read-only drive.
const READABLE: u16 = 0o400;
const BLOCK_BYTES: u32 = 4096;

/// Why no more requests are read.
#[derive(Debug)]
pub(super) enum End {
    /// The keeper has left, another connection waits for the area, or the server stops.
    Left,
    /// The file is not mounted any more.
    Unmounted,
    /// The drive is being closed.
    Closed,
    /// Requests were in flight for too long after that.
    Expired,
    Failed(ConnectionError),
}

/// Returns whether the file system of a FUSE device is mounted.
pub(super) fn is_mounted(device: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut device = [PollFd::new(device, PollFlags::empty())];
    !poll(&mut device, Some(&now)).is_ok_and(|_| !device[0].revents().is_empty())
}

#[allow(deprecated, reason = "of descriptors that others may close; nobody else has this one")]
fn watched(device: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(device, Interest::READABLE)
}

/// A FUSE file that is being served.
pub(super) struct FuseRequests<'a, D, E, F> {
    drive: &'a D,
    pub(super) device: AsyncFd<OwnedFd>,
    area: Area,
    execute: E,
    helpers: Option<&'a Arc<Helpers>>,
    slots: Slots<F>,
    /// Of the requests in flight, by their numbers.
    entries: HashMap<u64, (fuse::Entry, fuse::Operation)>,
    /// Read, and not started.
    waiting: VecDeque<Taken>,
    pub(super) memory: Memory<'a>,
    /// Why no more requests are read, the first reason. Those in flight are completed, or stay in the area.
    pub(super) end: Option<End>,
    /// Requests wait for memory or a place.
    pub(super) is_at_limit: bool,
    /// Requests read and answered.
    pub(super) moved: u64,
    planted: Planted,
}

impl<'a, D, E, F> FuseRequests<'a, D, E, F>
where
    D: Device,
    E: Fn(Option<Assignment>, Request, Buffer) -> F,
    F: Future<Output = Finished>,
{
    /// Takes up an area, and what was left there. Returns how much that was.
    pub(super) fn open(
        share: &Share,
        drive: &'a D,
        execute: E,
        config: &'a ServerConfig,
        budget: &'a Budget,
    ) -> io::Result<(Self, usize)> {
        let mut serving = FuseRequests {
            drive,
            device: watched(share.device.try_clone()?)?,
            area: Area::open(share.area.try_clone()?)?,
            execute,
            helpers: config.helpers.as_ref(),
            slots: Slots::new(config.requests_per_connection_max),
            entries: HashMap::new(),
            waiting: VecDeque::new(),
            memory: Memory::new(Lease::new(budget, config.connection_buffer_bytes_max)),
            end: None,
            is_at_limit: false,
            moved: 0,
            planted: Planted::of_environment(),
        };
        let count = serving.take_up()?;
        Ok((serving, count))
    }

    /// Takes up what an earlier server has left.
    fn take_up(&mut self) -> io::Result<usize> {
        let left = self.area.left()?;
        let count = left.len();
        for left in left {
            match left {
                Left::Request(taken) => self.waiting.push_back(taken),
                Left::Answer { entry, unique, operation, result } => {
                    self.answer_and_free(entry, &Reply::new(unique, operation, result), &[]);
                }
                Left::Question { unique, question } => self.answer_question(unique, &question),
            }
        }
        Ok(count)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.waiting.is_empty()
    }

    /// Frees memory kept for speed.
    pub(super) fn release_memory(&mut self) {
        self.memory.clear();
        self.area.trim();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.end.is_some()
    }

    /// From now on no requests are read.
    pub(super) fn close(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    fn fail(&mut self, error: impl Into<ConnectionError>) {
        self.close(End::Failed(error.into()));
    }

    /// Does all work that can be done now. Ready when no more requests are read, and none is in flight.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.slots.register(cx.waker());
        loop {
            let mut progress = self.poll_finished();
            if !self.is_closing() {
                progress |= self.poll_receive(cx);
                progress |= self.start_waiting(cx);
            }
            if self.slots.is_empty()
                && let Some(end) = self.end.take()
            {
                return Poll::Ready(end);
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    fn poll_finished(&mut self) -> bool {
        let mut all_finished = Vec::new();
        self.slots.poll_woken(|finished| all_finished.push(finished));
        let progress = !all_finished.is_empty();
        all_finished.into_iter().for_each(|finished| self.finish(finished));
        progress
    }

    /// Reads requests. Returns whether there may be more to do.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.waiting.len() < AHEAD_MAX && self.area.has_room() {
            let mut ready = match self.device.poll_read_ready(cx) {
                Poll::Pending => return progress,
                Poll::Ready(Ok(ready)) => ready,
                Poll::Ready(Err(error)) => {
                    self.fail(error);
                    return true;
                }
            };
            let area = &mut self.area;
            let received =
                ready.try_io(|device| area.receive(|bytes| Ok(rustix::io::read(device.get_ref(), bytes)?)));
            match received {
                // Nothing is there.
                Err(_would_block) => {}
                Ok(Ok(Received::Request(taken))) => self.waiting.push_back(taken),
                Ok(Ok(Received::Question { unique, question })) => self.answer_question(unique, &question),
                Ok(Ok(Received::Nothing)) => {}
                Ok(Err(error)) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    // A request ended before it was read.
                    Some(Errno::INTR | Errno::NOENT) => {}
                    // It is not mounted any more.
                    Some(Errno::NODEV | Errno::CONNABORTED) => self.close(End::Unmounted),
                    _ => self.fail(error),
                },
            }
            if self.is_closing() {
                return true;
            }
            self.moved += 1;
            progress = true;
        }
        progress
    }

    /// Starts requests that were read, as far as there is memory for them. Returns whether there was one.
    fn start_waiting(&mut self, cx: &mut Context<'_>) -> bool {
        let size_bytes = self.drive.geometry().capacity_bytes;
        let mut progress = false;
        self.is_at_limit = false;
        while let Some(taken) = self.waiting.front() {
            let operation = taken.operation.within(size_bytes);
            let buffer = match (self.slots.is_full(), operation) {
                (true, _) => None,
                (false, Ok(fuse::Operation::Read { length, .. })) => {
                    match self.memory.poll_buffer(cx, length as usize) {
                        Poll::Ready(buffer) => Some(buffer),
                        Poll::Pending => None,
                    }
                }
                (false, _) => Some(Buffer::default()),
            };
            let Some((buffer, taken)) = buffer.and_then(|buffer| Some((buffer, self.waiting.pop_front()?)))
            else {
                self.is_at_limit = true;
                return progress;
            };
            progress = true;
            let Taken { unique, operation: whole, entry, payload } = taken;
            let operation = match operation {
                Ok(operation) => operation,
                Err(code) => {
                    self.answer_and_free(entry, &Reply::new(unique, whole, Err(code)), &[]);
                    continue;
                }
            };
            let buffer = payload.map_or(buffer, Buffer::of_payload);
            self.planted.before_execution(&mut self.area, &entry);
            self.entries.insert(unique, (entry, operation));
            let is_helped = buffer.as_slice().len() >= HELPED_BYTES_MIN
                && (!self.slots.is_empty() || !self.waiting.is_empty());
            let assignment = self.helpers.filter(|_| is_helped).and_then(|helpers| helpers.assign());
            let request = Request { cookie: unique, offset: 0, operation: request_of(operation) };
            if let Poll::Ready(finished) = self.slots.start((self.execute)(assignment, request, buffer)) {
                self.finish(finished);
            }
        }
        progress
    }

    /// Answers a request that the drive has completed.
    fn finish(&mut self, Finished { request: Request { cookie, .. }, buffer, result }: Finished) {
        let Some((entry, operation)) = self.entries.remove(&cookie) else { return };
        self.moved += 1;
        if result == Err(DeviceError::Shutdown) {
            // It has changed nothing, and stays in the area for the next server.
            self.close(End::Closed);
            return self.memory.give(buffer);
        }
        let result = result.map(drop).map_err(|error| errno(&error).code() as i32);
        if operation.is_change() {
            // Before the answer: once that is given, nobody may execute the request again.
            self.planted.done(&mut self.area, &entry, result);
        }
        match (result, operation) {
            (Ok(()), fuse::Operation::Read { length, .. }) => {
                self.answer_and_free(entry, &wire::data_header(cookie, length), buffer.as_slice());
            }
            _ => self.answer_and_free(entry, &Reply::new(cookie, operation, result), &[]),
        }
        self.memory.give(buffer);
    }

    fn answer_question(&mut self, unique: u64, question: &Question) {
        let geometry = self.drive.geometry();
        let mode = if geometry.read_only { READABLE } else { WRITABLE };
        let attributes = Attributes { size_bytes: geometry.capacity_bytes, mode, block_bytes: BLOCK_BYTES };
        let mut answer = Vec::new();
        wire::answer(unique, question, &attributes, &mut answer);
        self.answer(&answer, &[]);
    }

    /// Answers a request. One whose answer the kernel does not take stays in the area.
    fn answer_and_free(&mut self, entry: fuse::Entry, header: &[u8], data: &[u8]) {
        if self.answer(header, data) {
            self.planted.free(&mut self.area, entry);
        }
    }

    /// Writes an answer, which never blocks and is never written in part. Returns whether nobody waits for it
    /// any more.
    fn answer(&mut self, header: &[u8], data: &[u8]) -> bool {
        match rustix::io::writev(self.device.get_ref(), &[IoSlice::new(header), IoSlice::new(data)]) {
            // The second: answered by an earlier server, or given up by the kernel.
            Ok(_) | Err(Errno::NOENT) => return true,
            // It is not mounted any more.
            Err(Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => self.close(End::Unmounted),
            Err(error) => self.fail(io::Error::from(error)),
        }
        false
    }
}

/// The same request of the NBD protocol.
fn request_of(operation: fuse::Operation) -> Operation {
    match operation {
        fuse::Operation::Read { offset, length } => Operation::Read { offset, length },
        fuse::Operation::Write { offset, length } => Operation::Write { offset, length, fua: false },
        fuse::Operation::Flush => Operation::Flush,
        // The kernel expects zeros where it punches a hole for a request to write zeroes.
        fuse::Operation::Trim { offset, length } => Operation::Trim { offset, length, fua: false },
        fuse::Operation::Zeroes { offset, length } => {
            Operation::WriteZeroes { offset, length, no_hole: true, fua: false }
        }
    }
}
