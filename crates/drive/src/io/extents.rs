//! Allocation of ranges, according to the map.

use device::{Extent, ExtentKind};
use layout::{BLOCK_BYTES, Entry, NODE_ENTRIES};
use media::Media;

use crate::error::Error;
use crate::shared::{Drive, yield_now};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Leaves examined before other requests have their turn.
const LEAVES_AT_ONCE: u32 = 16;
/// Most leaves loaded for a request: each takes a read of the medium.
const LOADED_MAX: u32 = 1024;

fn kind_of(entry: Entry) -> ExtentKind {
    match entry.fill_word() {
        Some(0) => ExtentKind::Zero,
        None if entry.is_unmapped() => ExtentKind::Hole,
        _ => ExtentKind::Data,
    }
}

impl<M: Media> Drive<M> {
    /// Returns runs of one kind from `offset` on: at least one if the range is not empty, at most `max`,
    /// together no longer than `len`. They end earlier after reading 1024 leaves of the map from the medium.
    pub async fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        self.check_range(offset, len)?;
        let end = offset + len;
        let mut runs: Vec<Extent> = Vec::new();
        let mut at = offset;
        let (mut leaves, mut loaded) = (0, 0);
        while at < end && runs.len() <= max {
            let first = at / BLOCK;
            let leaf_end = (first / NODE_ENTRIES as u64 + 1) * NODE_ENTRIES as u64;
            let until = end.div_ceil(BLOCK).min(leaf_end);
            let result = self.0.core().map.lookup(first, (until - first) as usize, |block, entry| {
                let run = end.min((block + 1) * BLOCK) - at;
                at += run;
                match runs.last_mut() {
                    Some(last) if last.kind == kind_of(entry) => last.len += run,
                    _ => runs.push(Extent { len: run, kind: kind_of(entry) }),
                }
            });
            if let Err(missing) = result {
                if loaded >= LOADED_MAX && !runs.is_empty() {
                    break;
                }
                loaded += 1;
                self.0.load(missing).await?;
            }
            leaves += 1;
            // Ranges may be long, and other requests use this thread.
            if leaves % LEAVES_AT_ONCE == 0 {
                yield_now().await;
            }
        }
        runs.truncate(max.max(1));
        self.0.acknowledge(Ok(runs)).await
    }
}
