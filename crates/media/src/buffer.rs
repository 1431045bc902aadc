//! Buffers for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{PAGE_BYTES, pool};

/// Whoever a buffer's memory belongs to, if not to the pool.
pub(crate) trait Owner: Send + Sync {
    /// Gives up what `capacity` bytes at `at` need not keep for `len` bytes. Returns the new capacity.
    fn shrink(&self, at: NonNull<u8>, capacity: usize, len: usize) -> usize;

    /// These bytes are used no more.
    fn give_back(&self, at: NonNull<u8>, capacity: usize);
}

/// An owned byte buffer whose address and capacity are multiples of [`PAGE_BYTES`], as direct I/O requires.
///
/// Buffers of up to 1 MiB are recycled through a bounded pool, so that creating one causes no page faults.
/// Those of an [`Arena`](crate::Arena) go back to it.
pub struct IoBuf {
    ptr: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// `None`: the pool.
    owner: Option<Arc<dyn Owner>>,
}

// SAFETY: an IoBuf is the only owner of its allocation, like a Vec<u8>.
unsafe impl Send for IoBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// Returns a buffer of `len` zero bytes. Its capacity is at least `len` rounded up to whole pages (at
    /// least one), and all of it is zero.
    pub fn zeroed(len: usize) -> IoBuf {
        let (mut buf, recycled) = Self::take(len);
        if recycled {
            buf.set_len(buf.capacity);
            buf.fill(0);
            buf.set_len(len);
        }
        buf
    }

    /// Returns a buffer of `len` bytes with unspecified content, but never uninitialised memory. It is meant
    /// for data that is about to be overwritten whole, such as the target of a read. Its capacity is at least
    /// `len` rounded up to whole pages.
    pub fn pooled(len: usize) -> IoBuf {
        Self::take(len).0
    }

    /// A buffer in memory of an owner.
    ///
    /// # Safety
    /// `ptr` must be page-aligned and own `capacity` initialised bytes until the owner gets them back.
    pub(crate) unsafe fn owned(
        ptr: NonNull<u8>,
        len: usize,
        capacity: usize,
        owner: Arc<dyn Owner>,
    ) -> IoBuf {
        IoBuf { ptr, len, capacity, owner: Some(owner) }
    }

    /// Gives up the capacity behind its length, if the buffer is in an [`Arena`](crate::Arena).
    pub fn shrink(&mut self) {
        if let Some(owner) = &self.owner {
            self.capacity = owner.shrink(self.ptr, self.capacity, self.len);
        }
    }

    /// Bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length within the capacity. Bytes that become part of the buffer keep their earlier
    /// content, which is never uninitialised memory: the allocation was zeroed when it was made.
    ///
    /// # Panics
    /// If `len` is over the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} over capacity {}", self.capacity);
        self.len = len;
    }

    /// Returns a buffer of `len` bytes, and whether its memory has been used before. A fresh buffer is all
    /// zeros.
    fn take(len: usize) -> (IoBuf, bool) {
        let capacity = match pool::class_of(len) {
            Some((class, capacity)) => {
                if let Some(ptr) = pool::take(class, capacity) {
                    return (IoBuf { ptr, len, capacity, owner: None }, true);
                }
                capacity
            }
            None => len.next_multiple_of(PAGE_BYTES),
        };
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout));
        (IoBuf { ptr, len, capacity, owner: None }, false)
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, PAGE_BYTES).expect("page-aligned layout of a sane size")
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            return owner.give_back(self.ptr, self.capacity);
        }
        // SAFETY: the allocation has this capacity, is initialised since `take`, and nobody uses it after
        // this.
        let kept = unsafe { pool::give(self.ptr, self.capacity) };
        if !kept {
            // SAFETY: allocated in `take` with this very layout, and the pool did not take it.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes within the allocation, initialised since `take`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuf({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_is_zero_up_to_its_capacity_even_when_recycled() {
        for len in [1, 4096, 5000, 128 << 10, 300 << 10, 3 << 20] {
            for _ in 0..4 {
                let mut buf = IoBuf::zeroed(len);
                assert!(buf.len() == len && buf.capacity() >= len.next_multiple_of(PAGE_BYTES));
                assert_eq!(buf.as_ptr().addr() % PAGE_BYTES, 0);
                buf.set_len(buf.capacity());
                assert!(buf.iter().all(|&byte| byte == 0), "{len}");
                buf.fill(0xa5);
            }
        }
    }

    #[test]
    fn buffers_cross_threads_without_being_shared() {
        let threads: Vec<_> = (0..4u8)
            .map(|id| {
                std::thread::spawn(move || {
                    let mut kept = Vec::new();
                    for round in 0..200usize {
                        let mut buf = IoBuf::pooled(4096 * (1 + round % 40));
                        buf.fill(id);
                        kept.push(buf);
                        if round % 3 == 0 {
                            kept.remove(kept.len() / 2);
                        }
                    }
                    (id, kept)
                })
            })
            .collect();
        for thread in threads {
            let (id, kept) = thread.join().expect("thread");
            assert!(kept.iter().all(|buf| buf.iter().all(|&byte| byte == id)));
        }
    }
}
