//! Numbers of readers of segments: a segment that is being read is not written again.

use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering};

/// Segments per piece of memory. A drive that grows adds pieces.
const PINS_A_CHUNK: u32 = if cfg!(loom) { 2 } else { 256 };

/// Readers of each segment. Pieces in which no segment was ever read: `None`.
#[derive(Debug, Default)]
pub(crate) struct Pins(Vec<Option<Arc<[AtomicU32]>>>);

impl Pins {
    pub(crate) fn grow(&mut self, segments: u32) {
        self.0.resize_with(segments.div_ceil(PINS_A_CHUNK) as usize, || None);
    }

    pub(crate) fn is_pinned(&self, segment: u32) -> bool {
        // Pairs with the release in `Drop`: everything the reader did happens before the segment is handed
        // out again.
        let chunk = &self.0[(segment / PINS_A_CHUNK) as usize];
        chunk
            .as_ref()
            .is_some_and(|chunk| chunk[(segment % PINS_A_CHUNK) as usize].load(Ordering::Acquire) > 0)
    }

    /// Pins are taken only inside the drive's lock, of segments that hold something live.
    pub(crate) fn pin(&mut self, segment: u32) -> Pin {
        let blank = || (0..PINS_A_CHUNK).map(|_| AtomicU32::new(0)).collect();
        let chunk = self.0[(segment / PINS_A_CHUNK) as usize].get_or_insert_with(blank).clone();
        let index = segment % PINS_A_CHUNK;
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
