//! The driver's side of a queue, as the server waits for it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

use crate::data::Data;
use crate::ring::{Event, Queue, Ring, watch};

/// What issues the requests of a queue.
pub(crate) trait Driver {
    /// Waits until something has happened, and adds it to `events`.
    fn poll_events(&mut self, cx: &mut Context<'_>, events: &mut VecDeque<Event>) -> Poll<io::Result<()>>;

    /// Answers a request, by the next [`Driver::submit`].
    fn answer(&mut self, tag: u16, result: i32);

    /// Sends answers. Returns false if some have to be sent again soon.
    fn submit(&mut self) -> io::Result<bool>;
}

/// A queue that waits for its device, on the thread that is to serve it.
pub struct IdleQueue {
    ring: Ring,
    signals: AsyncFd<OwnedFd>,
}

/// A queue of a device that the driver may start.
pub struct OpenQueue {
    queue: Queue,
    signals: AsyncFd<OwnedFd>,
}

impl IdleQueue {
    /// Allocates what a queue needs, in a tokio runtime of this thread.
    ///
    /// # Errors
    /// Of io_uring.
    pub fn new(depth: u16) -> io::Result<IdleQueue> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ring = Ring::new(event.as_fd(), depth)?;
        Ok(IdleQueue { ring, signals: watch(event)? })
    }

    /// Keeps the ring when the queue is dropped. Drop this when the thread has ended: the end of a thread
    /// ends the commands that it has sent. A ring that is closed while its thread lives ends them on another
    /// one, at the same time as the driver completes some for requests that arrive. Both give back the same
    /// memory then (seen with Linux 6.12: the kernel crashes).
    ///
    /// # Errors
    /// If there are too many descriptors.
    pub fn hold(&self) -> io::Result<OwnedFd> {
        self.ring.hold()
    }

    /// Fetches requests of queue `number` of a device. None comes before the device is started.
    ///
    /// # Errors
    /// Of the driver.
    pub fn open(self, character: Arc<File>, number: u16) -> io::Result<OpenQueue> {
        let IdleQueue { ring, signals } = self;
        Ok(OpenQueue { queue: ring.open(character, number)?, signals })
    }
}

impl OpenQueue {
    pub(crate) fn depth(&self) -> u16 {
        self.queue.depth()
    }

    pub(crate) fn data(&self) -> Data {
        Data::new(self.queue.device().clone(), self.queue.number())
    }
}

impl Driver for OpenQueue {
    fn poll_events(&mut self, cx: &mut Context<'_>, events: &mut VecDeque<Event>) -> Poll<io::Result<()>> {
        let before = events.len();
        loop {
            self.queue.take(events)?;
            if events.len() > before {
                return Poll::Ready(Ok(()));
            }
            // Cleared before events are taken: one in between makes it ready again. It need not be read:
            // tokio waits for edges, and every completion causes one.
            ready!(self.signals.poll_read_ready(cx))?.clear_ready();
        }
    }

    fn answer(&mut self, tag: u16, result: i32) {
        self.queue.answer(tag, result);
    }

    fn submit(&mut self) -> io::Result<bool> {
        self.queue.submit()
    }
}
