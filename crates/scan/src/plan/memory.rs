//! Host memory for serving a drive: the numbers of `docs/design/runtime.md`, *Memory*.

use layout::{Geometry, NODE_ENTRIES};
use serde::{Deserialize, Serialize};
use space::LOG_RECORDS_MAX;

/// Bytes per segment: 32 for its table row, 44 for bookkeeping and during a checkpoint.
const SEGMENT_BYTES: u64 = 32 + 44;
/// Read cache (`--read-cache`), by default.
const READ_CACHE_BYTES: u64 = drive::ReadCache::DEFAULT_BYTES;
/// I/O buffers kept for reuse: 16 MiB in each of 16 shards.
const IO_BUFFERS_BYTES: u64 = 16 * (16 << 20);
/// Request data of all NBD connections together.
const NBD_BYTES: u64 = 256 << 20;
/// Temporary memory to open a drive: the number of log records at which writers stop, 40 bytes each, held
/// twice.
const RECOVERY_BYTES: u64 = 2 * 40 * 2 * LOG_RECORDS_MAX;
/// Memory of a loaded map node.
const NODE_MEMORY_BYTES: u64 = NODE_ENTRIES as u64 * 8 + 112;

/// Host memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// Upper bound while the drive is served: the sum of the map cache, the segments, the buffers and the NBD
    /// requests.
    pub total_max_bytes: u64,
    /// Map cache (`--map-cache`), which may exceed its size by 5/16 under pressure, plus the nodes above the
    /// leaves.
    pub map_cache_bytes: u64,
    /// Table of segments.
    pub segments_bytes: u64,
    /// Pack and I/O buffers, and the read cache.
    pub buffers_bytes: u64,
    /// Requests of NBD clients.
    pub nbd_bytes: u64,
    /// Temporary memory while the drive is opened after a crash, before clients connect.
    pub recovery_bytes: u64,
    /// Size of a map cache that holds the whole map, so that no read waits for a map node.
    pub whole_map_bytes: u64,
    /// The formula of the Hyperscalers document for the driver of its drive: logical capacity in GB x 0.2 % +
    /// 3.5 GB.
    pub document_bytes: u64,
}

impl HostMemory {
    pub(crate) fn new(geometry: &Geometry, logical_bytes: u64, map_cache_bytes: u64) -> HostMemory {
        // Under pressure the cache exceeds its size by a quarter, plus what a checkpoint loads. The nodes
        // above the leaves are extra.
        let upper = space::upper_nodes(logical_bytes / layout::BLOCK_BYTES as u64).iter().sum::<u64>()
            * NODE_MEMORY_BYTES;
        let map_cache_bytes = map_cache_bytes + map_cache_bytes / 4 + map_cache_bytes / 16 + upper;
        let segments_bytes = u64::from(geometry.segments()) * SEGMENT_BYTES;
        let packs_bytes = drive::MEMORY_SHAPE.len_bytes() as u64;
        let buffers_bytes = packs_bytes + IO_BUFFERS_BYTES + READ_CACHE_BYTES;
        let leaves = logical_bytes.div_ceil((NODE_ENTRIES * layout::BLOCK_BYTES) as u64);
        HostMemory {
            total_max_bytes: map_cache_bytes + segments_bytes + buffers_bytes + NBD_BYTES,
            map_cache_bytes,
            segments_bytes,
            buffers_bytes,
            nbd_bytes: NBD_BYTES,
            recovery_bytes: RECOVERY_BYTES,
            whole_map_bytes: leaves * NODE_MEMORY_BYTES,
            document_bytes: logical_bytes / 500 + 3_500_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_s_example() {
        // "for a 3.2TB CSD 2000: 3200 GB x 0.2% + 3.5 GB = 9.9 GB"
        let geometry = Geometry::new(3200 << 30, None).expect("a drive");
        let memory = HostMemory::new(&geometry, 3_200_000_000_000, 128 << 20);
        assert_eq!(memory.document_bytes, 9_900_000_000);
        assert!(memory.total_max_bytes < 1 << 30);
        // 8 bytes per 4096, also 0.2 %, if the whole map is in memory.
        assert!((6.2e9..6.6e9).contains(&(memory.whole_map_bytes as f64)));
    }
}
