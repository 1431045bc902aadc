//! The ring: a table of operations, a queue of those not yet submitted to the kernel, and completions.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::super::backing::{Order, Outcome, Request};
use super::ticket::{Slot, Ticket, pair};
use crate::PAGE_BYTES;

/// Most bytes of one request in one submission. The rest follows when that is done.
const SUBMISSION_BYTES_MAX: usize = 1 << 30;

/// Number of queued requests that are submitted at once. Fewer wait for the end of the tick.
///
/// With all of a tick's requests in one call, a device idles until the last is prepared (about 3 us each).
/// Random 4 KiB reads at queue depth 16 on a virtio disk, reads per second relative to fio: 87 % without this
/// limit, 94 % with 8, 99 % with 4, 97 % with 1. The CPU time per read is 10 % higher with 4 than without a
/// limit.
const SUBMISSION_BATCH: usize = 4;

/// Most calls into the kernel before other tasks run.
const ROUNDS_MAX: usize = 4;

/// `IORING_ENTER_GETEVENTS` of `linux/io_uring.h`: process completions, and wait for the requested number.
const ENTER_GETEVENTS: u32 = 1;

/// Outcomes to be stored in their slots, which wakes their callers. Only to be done while nothing is
/// borrowed.
pub(super) type Finished = Vec<(Arc<Slot>, Outcome)>;

/// Stores every outcome in its slot.
pub(super) fn finish(finished: Finished) {
    for (slot, outcome) in finished {
        slot.complete(outcome);
    }
}

/// A request in progress, with all that the kernel may access before its completion.
struct Operation {
    order: Order,
    /// Bytes already transferred.
    done: usize,
    slot: Arc<Slot>,
}

/// One thread's ring.
pub(super) struct Ring {
    /// Not dropped before the kernel is done with `table`; see `drain`.
    uring: ManuallyDrop<IoUring>,
    table: ManuallyDrop<Table>,
    /// Counts signals of completions, if somebody waits for them.
    signals: Option<OwnedFd>,
    /// Number of entries at the front of the table's queue that are in the submission queue and not consumed
    /// yet.
    prepared: usize,
    /// The kernel temporarily could not take a submission, or has work left that it does not signal.
    starved: bool,
    /// The kernel refused a submission permanently: the ring takes no more requests.
    broken: bool,
}

/// The operations of a ring.
struct Table {
    operations: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// Operations that the kernel has not consumed, in order.
    queue: VecDeque<u32>,
    /// Operations that the kernel has consumed and not completed.
    in_flight: usize,
    finished: Finished,
}

impl Ring {
    pub(super) fn new(entries: u32) -> io::Result<Ring> {
        Ok(Ring {
            uring: ManuallyDrop::new(build(entries.max(1))?),
            table: ManuallyDrop::new(Table {
                operations: Vec::new(),
                free: Vec::new(),
                queue: VecDeque::new(),
                in_flight: 0,
                finished: Vec::new(),
            }),
            signals: None,
            prepared: 0,
            starved: false,
            broken: false,
        })
    }

    /// Returns a descriptor that becomes readable whenever `drive` has something to collect.
    ///
    /// It is an eventfd because the ring's own descriptor does not signal completions that wait for this
    /// thread to process them, which is the case for all completions in the mode that `build` prefers.
    pub(super) fn descriptor(&mut self) -> io::Result<OwnedFd> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        self.uring.submitter().register_eventfd(event.as_raw_fd())?;
        self.signals = Some(event.try_clone()?);
        Ok(event)
    }

    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// Returns whether `drive` should be called again soon although no completion is signalled.
    pub(super) fn starved(&self) -> bool {
        self.starved
    }

    /// Returns whether queued requests should be submitted at once rather than at the end of the tick.
    pub(super) fn full(&self) -> bool {
        let batch = SUBMISSION_BATCH.min(self.uring.params().sq_entries() as usize);
        self.table.queue.len() >= batch && self.table.in_flight < self.completions_max()
    }

    /// Queues a request for the next `drive`.
    pub(super) fn push(&mut self, order: Order) -> Ticket {
        let (slot, ticket) = pair();
        self.table.insert(Operation { order, done: 0, slot });
        ticket
    }

    /// Submits queued requests and collects completions, without waiting.
    pub(super) fn drive(&mut self) -> Finished {
        self.starved = true;
        for _ in 0..ROUNDS_MAX {
            self.prepare();
            let deferred_work = self.uring.submission().taskrun();
            if self.prepared == 0 && !deferred_work {
                self.collect();
            } else {
                let before = self.table.finished.len();
                if !self.enter(0) {
                    break;
                }
                if self.table.finished.len() > before && self.silence() {
                    continue;
                }
            }
            // One more round for requests that completions made room for, and for the rest of a short
            // transfer.
            if self.table.queue.is_empty() || self.table.in_flight >= self.completions_max() {
                self.starved = self.has_left_work();
                break;
            }
        }
        std::mem::take(&mut self.table.finished)
    }

    /// Takes the signals of completions that were collected: the kernel signals those again that this thread
    /// has processed by itself. Without this, the thread would wake up once more for nothing. Returns whether
    /// there are more completions to be processed.
    fn silence(&mut self) -> bool {
        let Some(signals) = &self.signals else { return false };
        // There is nothing to read if the kernel has signalled nothing.
        let _ = rustix::io::read(signals, &mut [0; 8]);
        // A signal that was taken may have been of a later completion. The kernel shows that one before it
        // signals it.
        self.collect();
        self.uring.submission().taskrun()
    }

    /// Returns whether there is deferred work that no signal announces any more. A call processes a limited
    /// number of items (20 in Linux 6.18), and the kernel signals only the first item of an empty list. Items
    /// need not be completions: a read that would block, of a file on FUSE, is retried some times.
    fn has_left_work(&mut self) -> bool {
        // The flag alone may be left of an item that was processed while it was being announced. To repeat
        // the call would not clear it then.
        if !self.uring.submission().taskrun() {
            return false;
        }
        // SAFETY: the descriptor stays open during this call, because the ring is borrowed.
        let ring = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
        let mut polled = [PollFd::from_borrowed_fd(ring, PollFlags::IN)];
        // If it cannot be known, there is.
        !matches!(rustix::event::poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    /// Most requests in the kernel at once: as many as the completion queue has room for.
    fn completions_max(&self) -> usize {
        self.uring.params().cq_entries() as usize
    }

    /// Waits until the kernel is done with every request.
    pub(super) fn drain(&mut self) -> Finished {
        loop {
            self.prepare();
            if self.prepared == 0 && self.table.in_flight == 0 {
                break;
            }
            let known_broken = self.broken;
            if !self.enter(1) && known_broken {
                // The kernel may still write to these buffers, and nothing shows when it stops, so they are
                // not freed.
                break;
            }
        }
        std::mem::take(&mut self.table.finished)
    }

    /// Moves queued operations into the submission queue while that and the completion queue have room. To be
    /// called just before `enter`: an operation that may not begin at this moment comes back undone.
    fn prepare(&mut self) {
        if self.broken {
            return;
        }
        // What the kernel did not take at the last call cannot be removed from the submission queue. If some
        // of it may not begin any more, nothing is submitted any more.
        if self.table.queue.iter().take(self.prepared).any(|&index| !self.table.may_begin(index)) {
            self.give_up();
            self.table.return_queued();
            return;
        }
        let completions_max = self.completions_max();
        let mut submission = self.uring.submission();
        while let Some(&index) = self.table.queue.get(self.prepared)
            && self.table.in_flight + self.prepared < completions_max
        {
            if !self.table.may_begin(index) {
                self.table.queue.remove(self.prepared);
                self.table.remove(index, None);
                continue;
            }
            let Some(operation) = &mut self.table.operations[index as usize] else {
                unreachable!("a queued operation is in the table")
            };
            let entry = operation.entry().user_data(u64::from(index));
            // SAFETY: the entry's descriptor and memory belong to the operation, which stays in the table
            // until its completion. The table is not dropped before.
            if unsafe { submission.push(&entry) }.is_err() {
                break;
            }
            self.prepared += 1;
        }
    }

    /// Calls `io_uring_enter` once, waiting for `want` completions, and collects completions. Returns `false`
    /// if the call failed.
    fn enter(&mut self, want: usize) -> bool {
        let entered = loop {
            let entered = match self.broken {
                // SAFETY: submits nothing and passes no argument.
                true => unsafe { self.uring.submitter().enter::<u8>(0, want as u32, ENTER_GETEVENTS, None) },
                false => self.uring.submit_and_wait(want),
            };
            match entered {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        if !self.broken {
            let left = self.uring.submission().len();
            let consumed = self.prepared - left;
            self.table.queue.drain(..consumed);
            self.table.in_flight += consumed;
            self.prepared = left;
        }
        let taken = match entered {
            Ok(_) => true,
            // EAGAIN: no memory for a request. EBUSY: completions must be collected first.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::AGAIN | Errno::BUSY)) => false,
            // The kernel will not process the rest of the submission queue. Nothing is submitted any more.
            Err(_) => {
                self.give_up();
                false
            }
        };
        self.collect();
        if self.broken {
            self.table.return_queued();
        }
        taken
    }

    /// Submits nothing any more.
    fn give_up(&mut self) {
        self.broken = true;
        self.prepared = 0;
    }

    fn collect(&mut self) {
        for completion in self.uring.completion() {
            self.table.complete(completion.user_data() as u32, completion.result());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        finish(self.drain());
        if self.table.in_flight == 0 {
            // SAFETY: the kernel uses none of the table's memory, and neither field is used after this.
            unsafe {
                ManuallyDrop::drop(&mut self.table);
                ManuallyDrop::drop(&mut self.uring);
            }
        }
    }
}

impl Table {
    fn insert(&mut self, operation: Operation) {
        let index = match self.free.pop() {
            Some(index) => {
                self.operations[index as usize] = Some(operation);
                index
            }
            None => {
                self.operations.push(Some(operation));
                self.operations.len() as u32 - 1
            }
        };
        self.queue.push_back(index);
    }

    /// Returns whether the kernel may be given an operation at this moment.
    fn may_begin(&self, index: u32) -> bool {
        self.operations[index as usize].as_ref().is_none_or(|operation| operation.order.may_begin())
    }

    /// Removes an operation with its result; `None`: the kernel was not given all of it.
    fn remove(&mut self, index: u32, result: Option<io::Result<()>>) {
        if let Some(operation) = self.operations[index as usize].take() {
            self.free.push(index);
            self.finished.push((operation.slot, (operation.order.request, result)));
        }
    }

    /// Processes a completion of an operation: `result` is a number of bytes, or a negated error.
    fn complete(&mut self, index: u32, result: i32) {
        self.in_flight -= 1;
        if result == -Errno::CANCELED.raw_os_error() {
            return self.perform(index);
        }
        let Some(operation) = &mut self.operations[index as usize] else {
            unreachable!("a completion is of an operation in the table")
        };
        match operation.advance(result) {
            Some(result) => self.remove(index, Some(result)),
            None => self.queue.push_back(index),
        }
    }

    /// Performs an operation on this thread, which blocks: the kernel has cancelled it, because a limit
    /// (RLIMIT_NPROC) leaves no worker for it. Nothing is wrong with the backing.
    fn perform(&mut self, index: u32) {
        if let Some(operation) = self.operations[index as usize].take() {
            self.free.push(index);
            self.finished.push((operation.slot, operation.order.perform()));
        }
    }

    /// Returns what is queued to its callers, who find another way.
    fn return_queued(&mut self) {
        while let Some(index) = self.queue.pop_front() {
            self.remove(index, None);
        }
    }
}

impl Operation {
    /// Returns the submission for the rest of this operation.
    fn entry(&mut self) -> squeue::Entry {
        let file = types::Fd(self.order.backing.file.as_raw_fd());
        match &mut self.order.request {
            Request::Read { offset, buf } => {
                let rest = &mut buf[self.done..];
                let len = rest.len().min(SUBMISSION_BYTES_MAX) as u32;
                opcode::Read::new(file, rest.as_mut_ptr(), len).offset(*offset + self.done as u64).build()
            }
            Request::Write { offset, buf } => {
                let rest = &buf[self.done..];
                let len = rest.len().min(SUBMISSION_BYTES_MAX) as u32;
                opcode::Write::new(file, rest.as_ptr(), len).offset(*offset + self.done as u64).build()
            }
            Request::Sync => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Request::Discard { .. } => unreachable!("discards take the plain back end"),
        }
    }

    /// Applies a completion. Returns the operation's result, or `None` if it has to continue.
    fn advance(&mut self, result: i32) -> Option<io::Result<()>> {
        if result < 0 {
            return match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN => None,
                error => Some(Err(error.into())),
            };
        }
        let (len, at_end) = match &self.order.request {
            Request::Read { buf, .. } => (buf.len(), io::ErrorKind::UnexpectedEof),
            Request::Write { buf, .. } => (buf.len(), io::ErrorKind::WriteZero),
            Request::Sync | Request::Discard { .. } => return Some(Ok(())),
        };
        self.done += result as usize;
        if self.done == len {
            return Some(Ok(()));
        }
        let mut progress = result as usize;
        if self.order.backing.direct {
            // Direct I/O can only continue at a page boundary: a partly transferred page is repeated.
            let part = self.done % PAGE_BYTES;
            self.done -= part;
            progress = progress.saturating_sub(part);
        }
        (progress == 0).then(|| Err(at_end.into()))
    }
}

/// Creates a ring with the cheapest completion mode that this kernel supports.
fn build(entries: u32) -> io::Result<IoUring> {
    let refused = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::INVAL);
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp();
    // Linux 6.1: completions are processed when this thread asks for them, and never interrupt it.
    let deferred =
        builder.clone().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries);
    let uring = match deferred {
        // Linux 5.19: completions are processed whenever this thread enters the kernel.
        Err(error) if refused(&error) => {
            match builder.clone().setup_coop_taskrun().setup_taskrun_flag().build(entries) {
                Err(error) if refused(&error) => builder.build(entries)?,
                other => other?,
            }
        }
        other => other?,
    };
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe)?;
    // Linux 5.6.
    for code in [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE] {
        if !probe.is_supported(code) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring cannot read and write",
            ));
        }
    }
    Ok(uring)
}
