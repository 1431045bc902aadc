//! Memory for blocks of one size that are kept for long, such as those of a cache.
//!
//! A cache that allocates block by block grows a page at a time: each block costs a page fault, and in
//! threads other than the first one a system call of the C library's allocator as well. A slab gets memory
//! from the kernel for many blocks at once, with its pages, and uses it again for other blocks. It gives
//! nothing back before it is dropped.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::PAGE_BYTES;

/// Memory from the kernel.
struct Chunk(NonNull<u8>);

/// Memory for one block, which nobody uses.
struct Spare(NonNull<u8>);

// SAFETY: the pointer is the only reference to its memory.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Send for Spare {}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    spares: Vec<Spare>,
}

/// See the [module](self).
pub struct Slab {
    block_bytes: usize,
    chunk_bytes: usize,
    state: Mutex<State>,
}

/// A block in a slab: its contents never change.
pub struct SlabBlock {
    memory: NonNull<u8>,
    slab: Arc<Slab>,
}

// SAFETY: a block is the only owner of its memory, like a Box<[u8]>.
unsafe impl Send for SlabBlock {}
// SAFETY: shared access only reads.
unsafe impl Sync for SlabBlock {}

impl Slab {
    /// Creates an empty slab for blocks of `block_bytes`, a multiple of [`PAGE_BYTES`], which gets memory for
    /// `chunk_blocks` blocks at a time.
    ///
    /// # Panics
    /// If a size is 0, or not a multiple of [`PAGE_BYTES`].
    pub fn new(block_bytes: usize, chunk_blocks: usize) -> Arc<Slab> {
        assert!(block_bytes > 0 && block_bytes.is_multiple_of(PAGE_BYTES), "whole pages");
        assert!(chunk_blocks > 0, "a chunk has blocks");
        Arc::new(Slab { block_bytes, chunk_bytes: block_bytes * chunk_blocks, state: Mutex::default() })
    }

    /// Memory from the kernel, in bytes: blocks, and room for more.
    pub fn taken_bytes(&self) -> usize {
        self.state.lock().chunks.len() * self.chunk_bytes
    }

    /// Keeps a copy of `contents` in a block. Returns `None` if the kernel has no memory.
    ///
    /// # Panics
    /// If `contents` is not as long as a block.
    pub fn keep(self: &Arc<Self>, contents: &[u8]) -> Option<SlabBlock> {
        assert_eq!(contents.len(), self.block_bytes, "blocks have one size");
        let Spare(memory) = self.spare()?;
        // SAFETY: the memory is as long as a block, and a spare has no other user.
        unsafe { memory.copy_from_nonoverlapping(NonNull::from(contents).cast(), self.block_bytes) };
        Some(SlabBlock { memory, slab: self.clone() })
    }

    fn spare(&self) -> Option<Spare> {
        let mut state = self.state.lock();
        if let Some(spare) = state.spares.pop() {
            return Some(spare);
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let chunk = unsafe { mmap_anonymous(std::ptr::null_mut(), self.chunk_bytes, access, flags) }.ok()?;
        let chunk = NonNull::new(chunk)?.cast::<u8>();
        state.chunks.push(Chunk(chunk));
        // The first block last, which is taken next.
        for at in (0..self.chunk_bytes).step_by(self.block_bytes).rev() {
            // SAFETY: within the mapping.
            state.spares.push(Spare(unsafe { chunk.add(at) }));
        }
        state.spares.pop()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        for Chunk(chunk) in self.state.get_mut().chunks.drain(..) {
            // SAFETY: a mapping of this length, made by `spare`. Each block holds the slab, so there is none
            // any more.
            let unmapped = unsafe { munmap(chunk.as_ptr().cast(), self.chunk_bytes) };
            debug_assert!(unmapped.is_ok());
        }
    }
}

impl Deref for SlabBlock {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is as long as a block, was filled by `keep`, and lives as long as the slab.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.slab.block_bytes) }
    }
}

impl Drop for SlabBlock {
    fn drop(&mut self) {
        self.slab.state.lock().spares.push(Spare(self.memory));
    }
}

impl std::fmt::Debug for SlabBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlabBlock({} bytes)", self.slab.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_contents_and_memory_is_used_again() {
        let slab = Slab::new(PAGE_BYTES, 4);
        assert_eq!(slab.taken_bytes(), 0);
        let keep = |byte: u8| slab.keep(&[byte; PAGE_BYTES]).expect("memory");
        let mut blocks: Vec<(u8, SlabBlock)> = (0..9).map(|byte| (byte, keep(byte))).collect();
        assert_eq!(slab.taken_bytes(), 12 * PAGE_BYTES);
        blocks.retain(|(byte, _)| byte % 3 != 1);
        blocks.extend((100..106).map(|byte| (byte, keep(byte))));
        assert!(blocks.iter().all(|(byte, block)| block.iter().all(|it| it == byte)));
        assert_eq!(slab.taken_bytes(), 12 * PAGE_BYTES, "three were free, three had not been used");
        let last = keep(200);
        assert_eq!(slab.taken_bytes(), 16 * PAGE_BYTES);
        drop((slab, blocks));
        assert!(last.iter().all(|it| *it == 200), "a block keeps its slab");
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        // More than there are addresses.
        let slab = Slab::new(PAGE_BYTES, 1 << 45);
        assert!(slab.keep(&[1; PAGE_BYTES]).is_none());
        assert_eq!(slab.taken_bytes(), 0);
    }

    #[test]
    fn threads_share_no_block() {
        let slab = Slab::new(PAGE_BYTES, 8);
        std::thread::scope(|scope| {
            for id in 0..4_u8 {
                let slab = &slab;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for round in 0..500_usize {
                        kept.push(slab.keep(&[id; PAGE_BYTES]).expect("memory"));
                        if round % 3 > 0 {
                            kept.swap_remove(round % kept.len());
                        }
                    }
                    assert!(kept.iter().all(|block| block.iter().all(|byte| *byte == id)));
                });
            }
        });
    }
}
