//! Serving a queue: fetches requests and answers them, many at a time, in one task.
//!
//! One pass of the loop polls the requests whose wakers fired, starts those that arrived, and sends all
//! answers with one system call. A new request is polled at once. If the device completes it at once, it
//! costs neither a task nor an allocation.
//!
//! # End
//!
//! At a stop, nothing more is started. What the device works at is completed and answered. Requests that wait
//! before they begin (for space, for their turn) are given up. They and those that arrive meanwhile are never
//! answered: the driver issues them again to the next server. If all requests of the queue wait so, Linux
//! before 6.16 notices the end of the thread after half a minute only.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use device::{Connection, Device, DeviceError, Stay};
use rustix::io::Errno;
use slots::Slots;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

use crate::buffers::Buffers;
use crate::data::Data;
use crate::driver::{Driver, OpenQueue};
use crate::execute::{Assign, Assignment, Executor, Finished, Job};
use crate::request::{Operation, Request};
use crate::ring::{AGAIN, Event};

/// Data of requests that are started, or of reads that are answered, before answers are sent: compressing
/// 256 KiB takes more than a millisecond.
const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// Smallest read or write that is worth another thread. Compressing it takes some 70 us.
const ASSIGNED_BYTES_MIN: usize = 32 << 10;

/// How requests are executed.
#[derive(Clone, Default)]
pub struct Options {
    /// The kernel sends no flushes and no FUA: every change is durable before it is answered.
    pub write_through: bool,
    /// Other threads for large requests, if several are in flight. `None`: all are executed on this thread.
    pub assign: Option<Assign>,
}

/// Serves a queue until `stop`, or until the device is stopped or passed to another server. All requests that
/// were answered are complete then, and no other is executed any more. If this is dropped earlier, requests
/// that are executed on other threads may end later; the driver passes the device on only then.
///
/// # Errors
/// If the driver refuses a command. The device waits for another server.
pub async fn serve<D: Device>(
    queue: OpenQueue,
    device: Arc<D>,
    options: &Options,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (depth, data) = (queue.depth(), queue.data());
    serve_from(queue, depth, data, device, options, stop).await
}

/// Serves what `driver` issues.
pub(crate) async fn serve_from<D: Device>(
    driver: impl Driver,
    depth: u16,
    data: Data,
    device: Arc<D>,
    options: &Options,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let requests = Connection::new();
    let executor = Executor::new(device, data.clone(), requests.requester());
    let mut course = Course {
        driver,
        data,
        execute: |assignment, job| executor.execute(assignment, job),
        options,
        requests,
        slots: Slots::new(depth.into()),
        events: VecDeque::new(),
        buffers: Buffers::default(),
        left: depth,
        unsent_bytes: 0,
        is_sent: true,
        again: None,
        is_ending: false,
    };
    let mut stop = pin!(stop);
    poll_fn(|cx| {
        if !course.is_ending && stop.as_mut().poll(cx).is_ready() {
            course.end();
        }
        course.poll(cx)
    })
    .await
}

/// A queue that is served.
struct Course<'a, R, E, F> {
    driver: R,
    data: Data,
    execute: E,
    options: &'a Options,
    /// Those that may wait before they begin.
    requests: Connection,
    slots: Slots<F>,
    /// Events that were not looked at.
    events: VecDeque<Event>,
    buffers: Buffers,
    /// Tags with which requests may come.
    left: u16,
    /// Data of the requests since answers were sent.
    unsent_bytes: usize,
    /// The driver has all answers.
    is_sent: bool,
    /// When answers are sent again.
    again: Option<Pin<Box<Sleep>>>,
    /// No request is started any more.
    is_ending: bool,
}

impl<R, E, F> Course<'_, R, E, F>
where
    R: Driver,
    E: Fn(Option<Assignment>, Job) -> F,
    F: Future<Output = Finished>,
{
    /// Starts no more requests, and gives up those that wait before they begin.
    fn end(&mut self) {
        self.is_ending = true;
        self.requests.answer(|| Stay::Left);
    }

    /// Does all work that can be done now. Ready when the queue is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.slots.register(cx.waker());
        loop {
            if self.requests.poll_asked(cx) {
                // The kernel does not leave.
                self.requests.answer(|| Stay::Here);
            }
            self.poll_finished()?;
            self.take_events()?;
            self.send()?;
            if self.left == 0 && self.slots.is_empty()
                || self.is_ending && self.slots.is_empty() && self.is_sent
            {
                return Poll::Ready(Ok(()));
            }
            self.poll_again(cx);
            if !self.events.is_empty() {
                // It is the turn of other tasks of this thread, and of their I/O: the device waits for both.
                let turn = pin!(yield_now());
                if turn.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                continue;
            }
            match self.driver.poll_events(cx, &mut self.events) {
                Poll::Ready(result) => result?,
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Sends answers.
    fn send(&mut self) -> io::Result<()> {
        self.unsent_bytes = 0;
        self.is_sent = self.driver.submit()?;
        Ok(())
    }

    /// Sends answers if much was done since the last time.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.unsent_bytes += bytes;
        if self.unsent_bytes >= TOGETHER_BYTES_MAX { self.send() } else { Ok(()) }
    }

    /// Wakes the task when answers are to be sent again.
    fn poll_again(&mut self, cx: &mut Context<'_>) {
        if self.is_sent {
            self.again = None;
        } else {
            let mut again = Box::pin(sleep(AGAIN));
            if again.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            self.again = Some(again);
        }
    }

    fn poll_finished(&mut self) -> io::Result<()> {
        let mut finished = Vec::new();
        self.slots.poll_woken(|done| finished.push(done));
        finished.into_iter().try_for_each(|done| self.finish(done))
    }

    /// Takes events, until much is done for which others wait.
    fn take_events(&mut self) -> io::Result<()> {
        let mut bytes = 0;
        while bytes < TOGETHER_BYTES_MAX
            && let Some(event) = self.events.pop_front()
        {
            match event {
                Event::Ended(_) => self.left -= 1,
                // The next server gets it.
                Event::Request(..) if self.is_ending => {}
                Event::Request(tag, request) => bytes += self.start(tag, request)?,
            }
        }
        Ok(())
    }

    /// Starts a request. Returns the bytes of its data.
    fn start(&mut self, tag: u16, request: Request) -> io::Result<usize> {
        let Ok(operation) = request.operation() else {
            self.driver.answer(tag, -Errno::OPNOTSUPP.raw_os_error());
            return Ok(0);
        };
        let operation = if self.options.write_through { operation.durable() } else { operation };
        let bytes = operation.data_bytes();
        let mut buffer = self.buffers.take(bytes);
        if let Operation::Write { .. } = operation
            && let Err(error) = self.data.read(tag, buffer.as_mut_slice())
        {
            self.buffers.give(buffer);
            self.driver.answer(tag, -errno_of_copy(&error));
            return Ok(bytes);
        }
        let assignment = self.assign(bytes);
        let future = (self.execute)(assignment, Job { tag, operation, buffer });
        if let Poll::Ready(finished) = self.slots.start(future) {
            self.finish(finished)?;
        }
        Ok(bytes)
    }

    /// Assigns a large request to a thread, if more requests are in flight or follow. Otherwise waking a
    /// thread would take longer than it saves.
    fn assign(&self, bytes: usize) -> Option<Assignment> {
        let is_alone = self.slots.is_empty() && self.events.is_empty();
        if bytes < ASSIGNED_BYTES_MIN || is_alone { None } else { self.options.assign.as_ref()?() }
    }

    /// Answers a request that the device has completed.
    fn finish(&mut self, finished: Finished) -> io::Result<()> {
        let Finished { tag, operation, buffer, result } = finished;
        let mut bytes = 0;
        let answer = match (result, operation) {
            // It has changed nothing. The next server gets it.
            (Err(DeviceError::Shutdown), _) => {
                self.end();
                None
            }
            (Err(error), _) => Some(-errno(&error)),
            (Ok(()), Operation::Read { .. }) => {
                bytes = buffer.as_slice().len();
                let copied = self.data.write(tag, buffer.as_slice());
                Some(copied.map_or_else(|error| -errno_of_copy(&error), |()| operation.done()))
            }
            (Ok(()), _) => Some(operation.done()),
        };
        self.buffers.give(buffer);
        if let Some(answer) = answer {
            self.driver.answer(tag, answer);
        }
        self.count(bytes)
    }
}

/// Returns the error number that reports `error` to the driver.
fn errno(error: &DeviceError) -> i32 {
    let errno = match error {
        DeviceError::Invalid(_) => Errno::INVAL,
        DeviceError::NoSpace => Errno::NOSPC,
        DeviceError::ReadOnly(_) => Errno::PERM,
        DeviceError::Io(_) => Errno::IO,
        DeviceError::Shutdown => Errno::SHUTDOWN,
    };
    errno.raw_os_error()
}

fn errno_of_copy(error: &io::Error) -> i32 {
    Errno::from_io_error(error).unwrap_or(Errno::IO).raw_os_error()
}

#[cfg(test)]
mod tests;
