//! Memory that serving a drive takes on the host: `docs/design/runtime.md`, *Memory*, as numbers.

use layout::{Geometry, NODE_ENTRIES};
use serde::{Deserialize, Serialize};
use space::{LOG_RECORDS_MAX, PACK_HARD_BYTES, UNWRITTEN_MAX_BYTES};

/// Bytes of map entries and bookkeeping for each segment, and more while a checkpoint is written.
const SEGMENT_BYTES: u64 = 32 + 44;
/// Three open and sixteen spare pack buffers.
const PACK_BUFFERS_BYTES: u64 = 19 * PACK_HARD_BYTES as u64;
/// I/O buffers kept for reuse: 16 MiB in each of 16 shards.
const IO_BUFFERS_BYTES: u64 = 16 * (16 << 20);
/// Request data of all NBD connections together.
const NBD_BYTES: u64 = 256 << 20;
/// What opening takes for a moment: as many records as writers stop at, of 40 bytes, twice.
const RECOVERY_BYTES: u64 = 2 * 40 * 2 * LOG_RECORDS_MAX;
/// Memory of a node of the map that is loaded.
const NODE_MEMORY_BYTES: u64 = NODE_ENTRIES as u64 * 8 + 112;

/// Memory on the host, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// At most, while it is served: the parts below but the last two.
    pub total_max_bytes: u64,
    /// The map's cache (`--map-cache`), up to 5/16 over it under pressure, and the nodes above the leaves.
    pub map_cache_bytes: u64,
    /// Table of segments.
    pub segments_bytes: u64,
    /// Packs and buffers.
    pub buffers_bytes: u64,
    /// Requests of NBD clients.
    pub nbd_bytes: u64,
    /// For a moment, while it is opened after a crash, and before there are clients.
    pub recovery_bytes: u64,
    /// A map cache in which all of the map has room, so that no read waits for a piece of it.
    pub whole_map_bytes: u64,
    /// The document's formula for the driver of its drive: logical capacity in GB x 0.2 % + 3.5 GB.
    pub document_bytes: u64,
}

impl HostMemory {
    pub(crate) fn new(geometry: &Geometry, logical_bytes: u64, map_cache_bytes: u64) -> HostMemory {
        // Under pressure a quarter over it, and what a checkpoint loads on top; and the nodes above the leaves.
        let upper = space::upper_nodes(logical_bytes / layout::BLOCK_BYTES as u64).iter().sum::<u64>()
            * NODE_MEMORY_BYTES;
        let map_cache_bytes = map_cache_bytes + map_cache_bytes / 4 + map_cache_bytes / 16 + upper;
        let segments_bytes = u64::from(geometry.segments()) * SEGMENT_BYTES;
        let buffers_bytes = PACK_BUFFERS_BYTES + UNWRITTEN_MAX_BYTES + IO_BUFFERS_BYTES;
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
        // 8 bytes for each 4096: 0.2 % too, if one wants all of the map in memory.
        assert!((6.2e9..6.6e9).contains(&(memory.whole_map_bytes as f64)));
    }
}
