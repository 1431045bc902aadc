//! Numbers of readers of segments: a segment that is being read is not written again.

use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering};

/// Segments per piece of memory. A drive that grows adds pieces.
const PINS_A_CHUNK: u32 = if cfg!(loom) { 2 } else { 4096 };

/// Readers of each segment.
#[derive(Debug, Default)]
pub(crate) struct Pins(Vec<Arc<[AtomicU32]>>);

impl Pins {
    pub(crate) fn grow(&mut self, segments: u32) {
        let chunk = || (0..PINS_A_CHUNK).map(|_| AtomicU32::new(0)).collect();
        self.0.resize_with(segments.div_ceil(PINS_A_CHUNK) as usize, chunk);
    }

    fn chunk(&self, segment: u32) -> &Arc<[AtomicU32]> {
        &self.0[(segment / PINS_A_CHUNK) as usize]
    }

    pub(crate) fn is_pinned(&self, segment: u32) -> bool {
        // Pairs with the release in `Drop`: everything the reader did happens before the segment is handed out again.
        self.chunk(segment)[(segment % PINS_A_CHUNK) as usize].load(Ordering::Acquire) > 0
    }

    /// Pins are taken only inside the drive's lock, of segments that hold something live.
    pub(crate) fn pin(&self, segment: u32) -> Pin {
        let (chunk, index) = (self.chunk(segment).clone(), segment % PINS_A_CHUNK);
        chunk[index as usize].fetch_add(1, Ordering::Relaxed);
        Pin { chunk, index }
    }
}

/// Keeps a segment from being written again as long as it exists.
#[derive(Debug)]
pub(crate) struct Pin {
    chunk: Arc<[AtomicU32]>,
    index: u32,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.chunk[self.index as usize].fetch_sub(1, Ordering::Release);
    }
}
