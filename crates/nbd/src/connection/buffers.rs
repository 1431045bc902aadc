//! Buffers for request data. They are reused within a connection and never passed to another one, so a client
//! reads only what the device filled in, or at worst bytes of the same client.

use std::task::{Context, Poll, ready};

use fuse::Payload;

use crate::limits::budget::Lease;

/// Smallest buffer, in bytes.
const SMALLEST_BYTES: usize = 4096;

/// Bytes of buffers kept for reuse by a connection.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The data of one request: `len` bytes of a buffer that may be larger, or the data of a write where the
/// kernel has put it.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    payload: Option<Payload>,
}

impl Buffer {
    /// Creates a buffer of zeros, of the size in which [`Memory`] has them. It is not charged.
    pub(crate) fn zeroed(len: usize) -> Buffer {
        Buffer { bytes: vec![0; footprint_bytes(len)].into_boxed_slice(), len, payload: None }
    }

    /// The data of a write. It is not charged.
    pub(crate) fn of_payload(payload: Payload) -> Buffer {
        Buffer { payload: Some(payload), ..Buffer::default() }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.payload.as_ref().map_or(&self.bytes[..self.len], Payload::as_slice)
    }

    /// Bytes of it that are charged.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.len
    }

    /// For the data of a read.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        debug_assert!(self.payload.is_none(), "data of a write is not changed");
        &mut self.bytes[..self.len]
    }
}

/// Bytes of memory that a buffer for `len` bytes takes: the next power of two.
pub(crate) fn footprint_bytes(len: usize) -> usize {
    if len == 0 { 0 } else { len.next_power_of_two().max(SMALLEST_BYTES) }
}

fn class_of(footprint: usize) -> usize {
    (footprint / SMALLEST_BYTES).trailing_zeros() as usize
}

/// The memory for request data of a connection. Buffers in use and those kept for reuse are charged to its
/// lease.
pub(crate) struct Memory<'a> {
    lease: Lease<'a>,
    /// Kept buffers, by size.
    classes: Vec<Class>,
    kept_bytes: usize,
}

/// Kept buffers of one size.
#[derive(Default)]
struct Class {
    buffers: Vec<Box<[u8]>>,
    /// Smallest number of buffers in the pool since the last [`Memory::trim`]: no request needed these.
    unused: usize,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(lease: Lease<'a>) -> Self {
        Self { lease, classes: Vec::new(), kept_bytes: 0 }
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.lease.held_bytes() - self.kept_bytes
    }

    /// Returns a buffer of `len` bytes with unspecified content: zeros, or old data of this connection.
    /// Pending as [`Lease::poll_take`].
    pub(crate) fn poll_buffer(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<Buffer> {
        let footprint = footprint_bytes(len);
        if footprint == 0 {
            return Poll::Ready(Buffer::default());
        }
        if let Some(class) = self.classes.get_mut(class_of(footprint))
            && let Some(bytes) = class.buffers.pop()
        {
            debug_assert_eq!(bytes.len(), footprint, "buffers are kept by size");
            class.unused = class.unused.min(class.buffers.len());
            self.kept_bytes -= footprint;
            return Poll::Ready(Buffer { bytes, len, payload: None });
        }
        ready!(self.poll_charge(cx, footprint));
        Poll::Ready(Buffer::zeroed(len))
    }

    /// Charges memory that is not a buffer. Pending as [`Lease::poll_take`].
    pub(crate) fn poll_charge(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        if self.lease.poll_take(cx, bytes).is_ready() {
            return Poll::Ready(());
        }
        if self.kept_bytes == 0 {
            return Poll::Pending;
        }
        self.clear();
        self.lease.poll_take(cx, bytes)
    }

    /// Releases what [`Memory::poll_charge`] has charged.
    pub(crate) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used_bytes(), "kept buffers are not released in this way");
        self.lease.release(bytes);
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let footprint = buffer.bytes.len();
        if footprint == 0 {
            return;
        }
        debug_assert_eq!(footprint, footprint_bytes(buffer.len), "a buffer keeps the size it was taken with");
        debug_assert!(footprint <= self.used_bytes(), "a buffer given back was charged");
        if self.kept_bytes + footprint > KEPT_BYTES_MAX || !self.lease.is_plenty() {
            drop(buffer);
            self.lease.release(footprint);
            return;
        }
        let class = class_of(footprint);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Class::default);
        }
        self.classes[class].buffers.push(buffer.bytes);
        self.kept_bytes += footprint;
        debug_assert!(
            self.kept_bytes <= KEPT_BYTES_MAX.min(self.lease.held_bytes()),
            "kept buffers are charged"
        );
    }

    /// Frees kept buffers that were not needed since the last call.
    pub(crate) fn trim(&mut self) {
        let mut freed_bytes = 0;
        for class in &mut self.classes {
            freed_bytes += class.buffers.drain(..class.unused).map(|bytes| bytes.len()).sum::<usize>();
            class.unused = class.buffers.len();
        }
        debug_assert!(freed_bytes <= self.kept_bytes, "only kept buffers are freed");
        self.kept_bytes -= freed_bytes;
        self.lease.release(freed_bytes);
    }

    /// Frees all kept buffers.
    pub(crate) fn clear(&mut self) {
        self.classes = Vec::new();
        self.lease.release(std::mem::take(&mut self.kept_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::budget::Budget;

    const MIB: usize = 1 << 20;

    fn buffer(memory: &mut Memory<'_>, len: usize) -> Option<Buffer> {
        match memory.poll_buffer(&mut Context::from_waker(std::task::Waker::noop()), len) {
            Poll::Ready(buffer) => Some(buffer),
            Poll::Pending => None,
        }
    }

    /// Takes buffers of a MiB and gives them back. Returns the bytes that are kept then.
    fn keep(memory: &mut Memory<'_>, count: usize) -> usize {
        let buffers: Vec<_> = (0..count).map_while(|_| buffer(memory, MIB)).collect();
        buffers.into_iter().for_each(|buffer| memory.give(buffer));
        assert_eq!(memory.used_bytes(), 0);
        memory.kept_bytes
    }

    #[test]
    fn kept_buffers_are_charged_and_leave_half_of_all() {
        let budget = Budget::new(32 * MIB);
        let mut connections: Vec<_> = (0..40).map(|_| Memory::new(Lease::new(&budget, 32 * MIB))).collect();
        let kept: usize = connections.iter_mut().map(|memory| keep(memory, 8)).sum();
        assert!((15 * MIB..18 * MIB).contains(&kept), "{kept}");
        assert!(buffer(&mut connections[39], 14 * MIB).is_some(), "there is room");
    }

    #[test]
    fn a_connection_gives_up_kept_buffers_for_others() {
        let budget = Budget::new(32 * MIB);
        let mut memory = Memory::new(Lease::new(&budget, 32 * MIB));
        assert_eq!(keep(&mut memory, 16), 16 * MIB);
        assert!(buffer(&mut memory, 32 * MIB).is_some(), "of another size");
        assert_eq!(memory.kept_bytes, 0);
        let mut limited = Memory::new(Lease::new(&budget, 2 * MIB));
        assert!(buffer(&mut limited, MIB).is_none(), "nothing is left");
    }

    #[test]
    fn what_was_not_needed_for_a_while_is_freed() {
        let budget = Budget::new(64 * MIB);
        let mut memory = Memory::new(Lease::new(&budget, 32 * MIB));
        keep(&mut memory, 8);
        memory.trim();
        assert_eq!(memory.kept_bytes, 8 * MIB, "all were in use");
        keep(&mut memory, 3);
        memory.trim();
        assert_eq!(memory.kept_bytes, 3 * MIB);
        memory.trim();
        assert_eq!((memory.kept_bytes, memory.lease.held_bytes()), (0, 0));
    }
}
