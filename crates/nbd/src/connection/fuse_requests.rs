//! Requests of a FUSE file: read from the device into the [area](fuse::Area), executed as those of NBD
//! clients are, answered through the device.
//!
//! What has no answer when the connection ends stays in the area. The next server, or the next connection of
//! this one, takes it up.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use device::{Device, DeviceError, Stay};
use fuse::wire::{self, Reply};
use fuse::{Area, Attributes, Left, Question, Received, Taken};
use rustix::io::Errno;
use slots::Slots;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::connection::answers::Answers;
use crate::connection::buffers::{Buffer, Memory};
use crate::connection::entry::Entry;
use crate::connection::execute::{Executor, Finished, LONG_RANGES_MAX, Request, errno, execute};
use crate::connection::front_end::FuseFrontEnd;

use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::fence::Member;
use crate::limits::budget::Lease;
use crate::limits::helpers::{Assignment, HELPED_BYTES_MIN, Helpers};
use crate::peers::presence::Presence;
use crate::shutdown::Shutdown;
use crate::wire::operation::Operation;

/// Interval at which memory that was not needed is given back.
const TICK: Duration = Duration::from_secs(1);
/// Most requests read before the first of them is started.
const AHEAD_MAX: usize = 16;
/// Access to the file, which root alone reaches.
const WRITABLE: u16 = 0o600;
/// Access to the file of a read-only drive.
const READABLE: u16 = 0o400;
const BLOCK_BYTES: u32 = 4096;

/// Serves a FUSE file until its keeper leaves, it is unmounted, the export is removed, or `shutdown` is
/// requested.
#[tracing::instrument(level = "debug", skip_all, fields(export = ?entry.export.name))]
pub(super) async fn serve_fuse<S, D>(
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    member: Option<Arc<Member>>,
    entry: &Entry<D>,
    front_end: FuseFrontEnd,
    exports: &Exports<D>,
    shutdown: &mut Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let config = &exports.resources.config;
    let mut answers = member.as_ref().map(|member| Answers::new(member, config.shutdown_grace));
    let requests = device::Connection::new();
    let executor = Executor {
        device: &entry.export.device,
        member,
        long_ranges: Semaphore::new(LONG_RANGES_MAX),
        requester: requests.requester(),
    };
    let mut serving = FuseRequests {
        drive: &*entry.export.device,
        device: watched(front_end.device)?,
        area: front_end.area,
        execute: |assignment, request, buffer| execute(&executor, assignment, request, buffer),
        helpers: config.helpers.as_ref(),
        slots: Slots::new(config.requests_per_connection_max),
        entries: HashMap::new(),
        waiting: VecDeque::new(),
        memory: Memory::new(Lease::new(&exports.resources.budget, config.connection_buffer_bytes_max)),
        is_closing: false,
        is_at_limit: false,
        moved: 0,
        failure: None,
    };
    serving.take_up()?;
    let mut end = entry.export.end();
    let mut stopped = pin!(shutdown.requested());
    let mut end = pin!(end.requested());
    let mut tick = pin!(sleep(TICK));
    let (mut is_ticking, mut is_in_grace, mut seen) = (true, false, 0);
    poll_fn(|cx| {
        if !serving.is_closing {
            let is_asked_to_end = stopped.as_mut().poll(cx).is_ready() || end.as_mut().poll(cx).is_ready();
            serving.is_closing = is_asked_to_end || poll_left(stream, cx).is_ready();
        }
        let is_there = || match presence(stream) {
            Presence::Left | Presence::MayHaveLeft | Presence::SendsNoMore => Presence::Left,
            Presence::Here | Presence::Unread => Presence::Here,
        };
        if !serving.is_closing
            && let Some(answers) = &mut answers
        {
            serving.is_closing = answers.poll(cx, 0, is_there) == Some(Presence::Left);
        }
        // Requests that wait for their turn, or for space, must not begin once the keeper has left.
        let stay = match (serving.is_closing, is_there()) {
            (_, Presence::Left) => Stay::Left,
            (true, _) => Stay::Ending,
            (false, _) => Stay::Here,
        };
        if requests.poll_asked(cx) || serving.is_at_limit || serving.is_closing {
            requests.answer(|| stay);
        }
        if let Poll::Ready(result) = serving.poll(cx) {
            return Poll::Ready(result);
        }
        if serving.is_closing && !is_in_grace {
            (is_in_grace, is_ticking) = (true, true);
            tick.as_mut().reset(Instant::now() + config.shutdown_grace);
            // Requests that wait are told at once.
            cx.waker().wake_by_ref();
        } else if !is_ticking && serving.moved != seen {
            is_ticking = true;
            tick.as_mut().reset(Instant::now() + TICK);
        }
        while is_ticking && tick.as_mut().poll(cx).is_ready() {
            if is_in_grace {
                return Poll::Ready(Err(ConnectionError::GraceExpired));
            }
            if serving.moved == seen && serving.is_idle() {
                serving.release_memory();
                is_ticking = false;
            } else {
                seen = serving.moved;
                serving.memory.trim();
                tick.as_mut().reset(Instant::now() + TICK);
            }
        }
        Poll::Pending
    })
    .await
}

#[allow(deprecated, reason = "of descriptors that others may close; nobody else has this one")]
fn watched(device: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(device, Interest::READABLE)
}

/// Ready when the keeper has left. It sends nothing.
fn poll_left<S: AsyncRead + Unpin>(stream: &mut S, cx: &mut Context<'_>) -> Poll<()> {
    let mut bytes = [0; 64];
    loop {
        let mut read = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *stream).poll_read(cx, &mut read) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
            Poll::Ready(_) => return Poll::Ready(()),
        }
    }
}

/// A FUSE file that is being served.
struct FuseRequests<'a, D, E, F> {
    drive: &'a D,
    device: AsyncFd<OwnedFd>,
    area: Area,
    execute: E,
    helpers: Option<&'a Arc<Helpers>>,
    slots: Slots<F>,
    /// Of the requests in flight, by their numbers.
    entries: HashMap<u64, (fuse::Entry, fuse::Operation)>,
    /// Read, and not started.
    waiting: VecDeque<Taken>,
    memory: Memory<'a>,
    /// No more requests are read. Those in flight are completed, or stay in the area.
    is_closing: bool,
    /// Requests wait for memory or a place.
    is_at_limit: bool,
    /// Requests read and answered.
    moved: u64,
    failure: Option<ConnectionError>,
}

impl<D, E, F> FuseRequests<'_, D, E, F>
where
    D: Device,
    E: Fn(Option<Assignment>, Request, Buffer) -> F,
    F: Future<Output = Finished>,
{
    /// Takes up what an earlier server has left.
    fn take_up(&mut self) -> io::Result<()> {
        let left = self.area.left()?;
        if !left.is_empty() {
            tracing::info!(requests = left.len(), "taken up from the last server of the FUSE file");
        }
        for left in left {
            match left {
                Left::Request(taken) => self.waiting.push_back(taken),
                Left::Answer { entry, unique, operation, result } => {
                    self.answer_and_free(entry, &Reply::new(unique, operation, result), &[]);
                }
                Left::Question { unique, question } => self.answer_question(unique, &question),
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.waiting.is_empty()
    }

    /// Frees memory kept for speed.
    fn release_memory(&mut self) {
        self.memory.clear();
        self.area.trim();
    }

    /// Does all work that can be done now. Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.slots.register(cx.waker());
        loop {
            let mut progress = self.poll_finished();
            if !self.is_closing {
                progress |= self.poll_receive(cx);
                progress |= self.start_waiting(cx);
            }
            if self.is_closing && self.slots.is_empty() {
                return Poll::Ready(self.failure.take().map_or(Ok(()), Err));
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    fn fail(&mut self, error: ConnectionError) {
        self.is_closing = true;
        self.failure.get_or_insert(error);
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
                    self.fail(error.into());
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
                    Some(Errno::NODEV | Errno::CONNABORTED) => self.is_closing = true,
                    _ => self.fail(error.into()),
                },
            }
            if self.is_closing {
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
            self.is_closing = true;
            return self.memory.give(buffer);
        }
        let result = result.map(drop).map_err(|error| errno(&error).code() as i32);
        if operation.is_change() {
            // Before the answer: once that is given, nobody may execute the request again.
            self.area.done(&entry, result);
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
            self.area.free(entry);
        }
    }

    /// Writes an answer, which never blocks and is never written in part. Returns whether nobody waits for it
    /// any more.
    fn answer(&mut self, header: &[u8], data: &[u8]) -> bool {
        match rustix::io::writev(self.device.get_ref(), &[IoSlice::new(header), IoSlice::new(data)]) {
            // The second: answered by an earlier server, or given up by the kernel.
            Ok(_) | Err(Errno::NOENT) => return true,
            // It is not mounted any more.
            Err(Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => self.is_closing = true,
            Err(error) => self.fail(io::Error::from(error).into()),
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
