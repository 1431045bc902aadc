//! A backing in memory, for benchmarks and for drives that do not have to outlive the process.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::range::check_range;
use crate::{IoBuf, Media, PAGE_BYTES};

/// Bytes of one chunk: large enough that a chunk's lock and table entry cost little, small enough that
/// writers to neighbouring places seldom contend.
const CHUNK_BYTES: usize = 256 << 10;

/// A piece of the backing, absent while it is all zeros. On its own cache line, so that threads that read
/// neighbouring chunks do not share a lock word.
#[repr(align(64))]
#[derive(Default)]
struct Chunk(RwLock<Option<IoBuf>>);

/// A backing in memory. A page takes memory from its first write on. Discarded chunks are freed.
///
/// Its futures are ready at the first poll. Nothing is durable: [`Media::sync`] succeeds and does nothing.
pub struct MemoryMedia {
    size_bytes: u64,
    chunks: Box<[Chunk]>,
}

impl MemoryMedia {
    /// Creates a backing of `size_bytes` zero bytes, rounded down to whole pages.
    pub fn new(size_bytes: u64) -> MemoryMedia {
        let size_bytes = size_bytes - size_bytes % PAGE_BYTES as u64;
        let chunks = (0..size_bytes.div_ceil(CHUNK_BYTES as u64)).map(|_| Chunk::default()).collect();
        MemoryMedia { size_bytes, chunks }
    }

    /// Bytes of memory that the contents occupy now.
    pub fn resident_bytes(&self) -> u64 {
        let resident = self.chunks.iter().filter(|chunk| chunk.0.read().is_some()).count();
        resident as u64 * CHUNK_BYTES as u64
    }

    /// Splits a range into (chunk, start within the chunk, start within the range, length).
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = (&Chunk, usize, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset + done as u64;
            let start = (at % CHUNK_BYTES as u64) as usize;
            let count = (CHUNK_BYTES - start).min(len - done);
            let piece = (&self.chunks[(at / CHUNK_BYTES as u64) as usize], start, done, count);
            done += count;
            Some(piece)
        })
    }

    fn read_now(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size_bytes, offset, buf.len() as u64)?;
        for (chunk, start, done, count) in self.pieces(offset, buf.len()) {
            let target = &mut buf[done..done + count];
            match &*chunk.0.read() {
                Some(data) => target.copy_from_slice(&data[start..start + count]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write_now(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(self.size_bytes, offset, buf.len() as u64)?;
        for (chunk, start, done, count) in self.pieces(offset, buf.len()) {
            let mut chunk = chunk.0.write();
            let data = chunk.get_or_insert_with(|| match count {
                CHUNK_BYTES => IoBuf::pooled(CHUNK_BYTES),
                _ => IoBuf::zeroed(CHUNK_BYTES),
            });
            data[start..start + count].copy_from_slice(&buf[done..done + count]);
        }
        Ok(())
    }

    fn discard_now(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size_bytes, offset, len)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        for (chunk, start, _, count) in self.pieces(offset, len) {
            let mut chunk = chunk.0.write();
            if count == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(data) = &mut *chunk {
                data[start..start + count].fill(0);
            }
        }
        Ok(())
    }
}

impl Media for MemoryMedia {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    async fn read(&self, offset: u64, mut buf: IoBuf) -> (IoBuf, io::Result<()>) {
        let result = self.read_now(offset, &mut buf);
        (buf, result)
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.write_now(offset, &buf)
    }

    async fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discard_now(offset, len)
    }
}

impl std::fmt::Debug for MemoryMedia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryMedia({} bytes)", self.size_bytes)
    }
}
