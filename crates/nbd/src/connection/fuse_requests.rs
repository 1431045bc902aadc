//! Requests of a FUSE file: read from the device into the [area](fuse::Area), executed as those of NBD
//! clients are, answered through the device.
//!
//! What has no answer when the connection ends stays in the area. The next server, or the next connection of
//! this one, takes it up.
//!
//! The end of a keeper that was killed is not the end: the next one brings the area again.

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
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
use crate::connection::front_end::{FuseFrontEnd, GOODBYE};
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
/// Logged when a keeper was killed.
const UNATTENDED: &str = "the bridge of the drive's device was killed: the device works on, and fails if this server \
                          ends, too; `pumice attach` starts another bridge";
/// Logged when a server ends meanwhile.
const GIVEN_UP: &str = "the drive's device has no bridge, which was killed: its requests fail from now on";

/// Serves a FUSE file until its keeper leaves, another connection brings the area, it is unmounted, the
/// export is removed, or `shutdown` is requested.
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
    // Whoever brings an area has both.
    let Some(member) = member else { return Ok(()) };
    let Some(claim) = member.area() else { return Ok(()) };
    let mut answers = Answers::new(&member, config.shutdown_grace);
    let requests = device::Connection::new();
    let executor = Executor {
        device: &entry.export.device,
        member: Some(member.clone()),
        long_ranges: Semaphore::new(LONG_RANGES_MAX),
        requester: requests.requester(),
    };
    let mut serving = FuseRequests {
        drive: &*entry.export.device,
        device: watched(front_end.share.device.try_clone()?)?,
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
    let (mut keeper, mut share) = (Keeper::Here, Some(front_end.share));
    let (mut is_asked, mut is_stopping) = (false, false);
    poll_fn(|cx| {
        if !serving.is_closing {
            is_stopping = stopped.as_mut().poll(cx).is_ready() || end.as_mut().poll(cx).is_ready();
            keeper.poll(stream, cx);
            serving.is_closing = is_stopping || claim.poll_leave(cx).is_ready() || keeper == Keeper::Left;
            if is_stopping && keeper == Keeper::Killed {
                tracing::error!(export = ?entry.export.name, "{GIVEN_UP}");
            }
        }
        if keeper == Keeper::Killed
            && !serving.is_closing
            && let Some(share) = share.take()
        {
            if claim.leave_to_next(Arc::new(share)) {
                tracing::warn!(export = ?entry.export.name, "{UNATTENDED}");
            }
            is_ticking = true;
            tick.as_mut().reset(Instant::now() + TICK);
        }
        // Until it is known how a connection has ended, nothing is answered.
        let is_known = match keeper {
            Keeper::Here => matches!(presence(stream), Presence::Here | Presence::Unread),
            Keeper::Left | Keeper::Killed => true,
        };
        if !serving.is_closing {
            answers.poll(cx, 0, || if is_known { Presence::Here } else { Presence::Unread });
        }
        // Requests that wait for their turn, or for space, must not begin once the keeper has left.
        is_asked |= requests.poll_asked(cx) || serving.is_at_limit || serving.is_closing;
        if is_asked && (is_known || serving.is_closing) {
            is_asked = false;
            requests.answer(|| match (serving.is_closing, is_stopping) {
                (true, false) => Stay::Left,
                (true, true) => Stay::Ending,
                (false, _) => Stay::Here,
            });
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
                is_ticking = keeper == Keeper::Killed;
            } else {
                seen = serving.moved;
                serving.memory.trim();
            }
            tick.as_mut().reset(Instant::now() + TICK);
            if keeper == Keeper::Killed {
                serving.look_at_mount();
                if serving.is_closing {
                    cx.waker().wake_by_ref();
                }
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

/// What is known of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// It has the node.
    Here,
    /// It has said so.
    Left,
    /// Its connection has ended, and it has said nothing.
    Killed,
}

impl Keeper {
    /// Reads what it sends: nothing until it leaves.
    fn poll<S: AsyncRead + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) {
        let mut bytes = [0; 64];
        while *self == Keeper::Here {
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut read) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if read.filled().contains(&GOODBYE) => *self = Keeper::Left,
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
                Poll::Ready(_) => *self = Keeper::Killed,
            }
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

    /// Ends the service if the file is not mounted any more: the kernel wakes nobody for that who waits for
    /// requests.
    fn look_at_mount(&mut self) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut device = [PollFd::new(self.device.get_ref(), PollFlags::empty())];
        self.is_closing |= poll(&mut device, Some(&now)).is_ok() && !device[0].revents().is_empty();
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
