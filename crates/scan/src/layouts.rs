//! Models of rival layouts on the same data: units rounded up to sectors, and the packing bins of VDO.

use codec::Policy;
use layout::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// Bytes of the largest unit that a layout compresses as one. Larger reads serve no other purpose.
pub const UNIT_BYTES_MAX: usize = 128 << 10;
/// Granularity to which a compressed unit is rounded up: the sector of current disks and the allocation unit
/// of ZFS (ashift 12), btrfs and BlueStore.
const SECTOR_BYTES: usize = 4096;

/// Largest number of fragments in one block of VDO (`VDO_MAX_COMPRESSION_SLOTS` of the Linux kernel's
/// dm-vdo).
const VDO_SLOTS: usize = 14;
/// Bytes of fragments per block: 4096 minus a header of two version numbers and the sizes of 14 fragments.
const VDO_DATA_BYTES: usize = BLOCK_BYTES - 8 - 2 * VDO_SLOTS;

/// A layout of compressed data other than Pumice's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "layout", rename_all = "snake_case")]
pub enum Layout {
    /// Units of a fixed size, each compressed as one and rounded up to 4 KiB sectors.
    Sectors {
        /// Bytes per unit.
        unit_bytes: usize,
    },
    /// Blocks compressed separately with LZ4, up to 14 of them packed into one block.
    Vdo,
}

/// A layout with a codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The layout.
    pub layout: Layout,
    /// The codec.
    pub codec: Policy,
}

impl Rival {
    /// Names the systems that the rival represents.
    pub fn like(&self) -> &'static str {
        match self.layout {
            Layout::Sectors { unit_bytes: 0x4000 } => "ZFS volblocksize=16K, BlueStore",
            Layout::Sectors { unit_bytes: 0x10000 } => "BlueStore blobs of 64K, ZFS recordsize=64K",
            Layout::Sectors { unit_bytes: 0x20000 } => "ZFS recordsize=128K, btrfs",
            Layout::Sectors { .. } => "sectors of 4 KiB",
            Layout::Vdo => "dm-vdo without deduplication",
        }
    }
}

/// Returns the rivals to compare: three unit sizes with each codec, and VDO.
pub fn rivals(codecs: &[Policy]) -> Vec<Rival> {
    let sectors =
        |unit_bytes| codecs.iter().map(move |&codec| Rival { layout: Layout::Sectors { unit_bytes }, codec });
    let vdo = Rival { layout: Layout::Vdo, codec: Policy::Lz4 };
    [16 << 10, 64 << 10, 128 << 10].into_iter().flat_map(sectors).chain([vdo]).collect()
}

/// Returns the bytes that `data` takes in units of `unit_bytes`, each compressed by `engine` and rounded up
/// to sectors. A unit of zeros takes nothing, as a hole in ZFS. Other layouts do store it, but usually in
/// little space.
pub(crate) fn sectors_bytes(
    data: &[u8],
    unit_bytes: usize,
    engine: &mut Engine,
    scratch: &mut Vec<u8>,
) -> u64 {
    let unit = |unit: &[u8]| {
        if codec::fill_word(unit) == Some(0) {
            return 0;
        }
        scratch.clear();
        engine.compress(unit, scratch);
        let len = if scratch.is_empty() { unit.len() } else { scratch.len() };
        len.next_multiple_of(SECTOR_BYTES).min(unit.len()) as u64
    };
    data.chunks(unit_bytes).map(unit).sum()
}

/// Returns the bytes of the blocks into which VDO packs the blocks of `data`. Each fragment goes to the open
/// bin that it fills best.
///
/// Bins that are still open at the end would be filled further, so each counts in proportion to its fill
/// level, measured by the number of fragments of mean size that fit in a bin. A bin with a single fragment of
/// more than half its size counts as a whole block: a second fragment that fits is rare, and the block is
/// then stored uncompressed.
pub(crate) fn vdo_bytes(data: &[u8], engine: &mut Engine, scratch: &mut Vec<u8>) -> u64 {
    /// Number of open bins (`DEFAULT_PACKER_BINS` of dm-vdo).
    const BINS: usize = 16;
    let mut bins: Vec<(usize, usize)> = Vec::new();
    let mut written = 0;
    for block in data.chunks(BLOCK_BYTES) {
        if codec::fill_word(block) == Some(0) {
            continue;
        }
        scratch.clear();
        engine.compress(block, scratch);
        let len = scratch.len();
        if len == 0 || len > VDO_DATA_BYTES {
            written += BLOCK_BYTES;
            continue;
        }
        let best = bins
            .iter_mut()
            .filter(|(used, slots)| used + len <= VDO_DATA_BYTES && *slots < VDO_SLOTS)
            .max_by_key(|(used, _)| *used);
        match best {
            Some((used, slots)) => {
                *used += len;
                *slots += 1;
            }
            None => {
                if bins.len() == BINS {
                    // The fullest bin is written out.
                    let fullest = (0..BINS).max_by_key(|&bin| bins[bin].0).unwrap_or(0);
                    bins.swap_remove(fullest);
                    written += BLOCK_BYTES;
                }
                bins.push((len, 1));
            }
        }
    }
    let fragments: usize = bins.iter().map(|(_, slots)| slots).sum();
    let used: usize = bins.iter().map(|(used, _)| used).sum();
    let taken = (VDO_DATA_BYTES * fragments).checked_div(used).unwrap_or(1).clamp(1, VDO_SLOTS);
    let open = |&(used, slots): &(usize, usize)| match slots {
        1 if used > VDO_DATA_BYTES / 2 => BLOCK_BYTES,
        _ => (used * BLOCK_BYTES / VDO_DATA_BYTES).max(slots * BLOCK_BYTES / taken).min(BLOCK_BYTES),
    };
    (written + bins.iter().map(open).sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(codec: &str) -> Engine {
        Engine::of_rival(codec.parse().expect(codec))
    }

    #[test]
    fn four_kib_sectors_save_nothing_on_four_kib_units() {
        let data = codec::testdata::text_like(1, 128 << 10);
        assert_eq!(sectors_bytes(&data, 4096, &mut engine("zstd:3"), &mut Vec::new()), 128 << 10);
    }

    #[test]
    fn larger_units_lose_less_to_rounding() {
        let data = codec::testdata::fio_like(1, 128 << 10, 60);
        let mut zstd = engine("zstd:1");
        let [small, middle, large] =
            [16, 64, 128].map(|kib| sectors_bytes(&data, kib << 10, &mut zstd, &mut Vec::new()));
        // 40 % of 16 KiB is 6.4 KiB: two sectors of four.
        assert_eq!(small, 64 << 10);
        assert!(large <= middle && middle < small, "{small} {middle} {large}");
        assert!(large >= (128 << 10) * 4 / 10);
    }

    #[test]
    fn zeros_take_nothing_and_random_data_all() {
        let zeros = vec![0; 128 << 10];
        let random = codec::testdata::random(1, 128 << 10);
        let (mut lz4, scratch) = (engine("lz4"), &mut Vec::new());
        assert_eq!(sectors_bytes(&zeros, 128 << 10, &mut lz4, scratch), 0);
        assert_eq!(vdo_bytes(&zeros, &mut lz4, scratch), 0);
        assert_eq!(sectors_bytes(&random, 16 << 10, &mut lz4, scratch), 128 << 10);
        assert_eq!(vdo_bytes(&random, &mut lz4, scratch), 128 << 10);
    }

    #[test]
    fn vdo_packs_fourteen_at_most() {
        // Each block compresses to a few bytes. At most 14 fit in one block, however small they are.
        let mut data = vec![0_u8; 28 * 4096];
        for (i, block) in data.chunks_mut(4096).enumerate() {
            block[0] = i as u8 + 1;
        }
        assert_eq!(vdo_bytes(&data, &mut engine("lz4"), &mut Vec::new()), 2 * 4096);
        // Two blocks that compress to 60 % do not fit in one block.
        let data = codec::testdata::fio_like(1, 32 * 4096, 40);
        assert_eq!(vdo_bytes(&data, &mut engine("lz4"), &mut Vec::new()), 32 * 4096);
        // Two blocks that compress to 40 % fit in one block.
        let data = codec::testdata::fio_like(1, 32 * 4096, 60);
        let bytes = vdo_bytes(&data, &mut engine("lz4"), &mut Vec::new());
        assert!((15 * 4096..=17 * 4096).contains(&bytes), "{bytes}");
    }
}
