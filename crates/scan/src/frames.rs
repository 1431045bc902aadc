//! Frames: adjacent blocks that the drive compresses together.
//!
//! [`codec::frame_blocks`] decides which blocks form a frame, for the drive and for this model.
//! `tests/frames.rs` compares the result with drives that were written to. Two effects are not modelled:
//! dictionaries, and the fallback of a drive with `auto` to LZ4 while it is short of CPU time.

use codec::{CodecId, Compressor, Effort, Kind, Policy, frame_blocks};
use layout::entry::{FRAME_BLOCKS_MAX, FRAME_STEP_BYTES};
use layout::record::RECORD_HEADER_BYTES;
use layout::{BLOCK_BYTES, Entry, UNIT_BYTES};

/// Largest number of blocks in a frame with the default options of an open drive. Frames start at multiples
/// of their length, so none crosses the boundary of an aligned group of this size. Sampling reads such
/// groups.
pub const GROUP_BLOCKS: u64 = FRAME_BLOCKS_MAX;

/// Largest number of blocks in a frame of data that was compressed again as cold data.
const SETTLED_BLOCKS: u64 = 4;

/// Fractions of a byte in sums over blocks that share a record. 840 is divisible by 1 to 8, the possible
/// numbers of blocks in a record.
pub(crate) const PARTS_A_BYTE: u64 = 840;

/// Bytes of a map entry.
pub(crate) const ENTRY_BYTES: u64 = size_of::<layout::Entry>() as u64;
/// Bytes of a map run, which covers adjacent equal entries.
const RUN_BYTES: u64 = 12;

/// The stored form of one block, or of several adjacent blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// A map entry with the 32-bit word that the block repeats.
    Fill(u32),
    /// A record of `bytes` bytes, including header and padding, for `blocks` blocks.
    Record { bytes: u32, blocks: u32 },
}

impl Kept {
    /// Bytes of the record.
    pub(crate) fn record_bytes(self) -> u64 {
        match self {
            Kept::Fill(_) => 0,
            Kept::Record { bytes, .. } => bytes.into(),
        }
    }

    /// Number of blocks.
    pub(crate) fn blocks(self) -> u64 {
        match self {
            Kept::Fill(_) => 1,
            Kept::Record { blocks, .. } => blocks.into(),
        }
    }

    /// One block's share of the record, in [`PARTS_A_BYTE`].
    pub(crate) fn parts_a_block(self) -> u64 {
        self.record_bytes() * PARTS_A_BYTE / self.blocks()
    }

    /// Returns the record for a payload.
    pub(crate) fn record(payload_bytes: usize, blocks: usize) -> Kept {
        let step = if blocks > 1 { FRAME_STEP_BYTES } else { UNIT_BYTES };
        let bytes = (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(step);
        Kept::Record { bytes: bytes as u32, blocks: blocks as u32 }
    }
}

/// Space taken by a group of adjacent blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Bytes of records.
    pub(crate) records: u64,
    /// Lower bound of the bytes that the group adds to its leaf of the map: one entry per block in a dense
    /// leaf, or runs if these take less. Fills at the beginning of the group may belong to an existing run
    /// and are not counted.
    pub(crate) map: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.records += other.records;
        self.map += other.map;
    }
}

impl Cost {
    /// Space taken by all given adjacent blocks.
    pub(crate) fn of(kept: impl IntoIterator<Item = Kept>) -> Cost {
        let (mut records, mut blocks, mut runs) = (0, 0, 0);
        let mut last = None;
        for one in kept {
            let continues = matches!(one, Kept::Fill(_)) && (blocks == 0 || last == Some(one));
            runs += u64::from(!continues);
            records += one.record_bytes();
            blocks += one.blocks();
            last = Some(one);
        }
        Cost { records, map: (blocks * ENTRY_BYTES).min(runs * RUN_BYTES) }
    }
}

/// Divides adjacent blocks into frames as the drive does.
pub(crate) struct Framer {
    compressor: Compressor,
    effort: Effort,
    /// What gains little is stored uncompressed.
    puts_off: bool,
    most_blocks: u64,
    payload: Vec<u8>,
}

impl Framer {
    /// For what hosts write to a drive with this codec.
    pub(crate) fn new(codec: Policy) -> Framer {
        let compressor = Compressor::new(codec);
        Framer {
            compressor,
            effort: Effort::Foreground,
            puts_off: codec == Policy::Auto,
            most_blocks: GROUP_BLOCKS,
            payload: Vec::new(),
        }
    }

    /// For data that is settled with this codec.
    pub(crate) fn settling(codec: Policy) -> Framer {
        Framer {
            effort: Effort::Settling,
            puts_off: false,
            most_blocks: SETTLED_BLOCKS,
            ..Framer::new(codec)
        }
    }

    /// Appends the stored form of whole blocks to `kept`. They are treated as one write that starts at block
    /// `first` of the drive.
    pub(crate) fn run(&mut self, first: u64, data: &[u8], kept: &mut Vec<Kept>) {
        let kinds: Vec<Kind> = data.chunks_exact(BLOCK_BYTES).map(Kind::of).collect();
        let mut done = 0;
        while done < kinds.len() {
            let rest = &data[done * BLOCK_BYTES..];
            let blocks = frame_blocks(first + done as u64, &kinds[done..], self.most_blocks);
            let bytes = &rest[..blocks * BLOCK_BYTES];
            if self.puts_off
                && kinds[done..done + blocks].iter().all(|kind| *kind == Kind::Doubtful)
                && self.compressor.gains_little(bytes, None)
            {
                kept.extend((0..blocks).map(|_| Kept::record(BLOCK_BYTES, 1)));
                done += blocks;
                continue;
            }
            let frame = (blocks > 1).then(|| self.compressed(bytes)).flatten();
            let next = frame.unwrap_or_else(|| match kinds[done] {
                Kind::Fill(word) => Kept::Fill(word),
                Kind::Incompressible => Kept::record(BLOCK_BYTES, 1),
                Kind::Doubtful | Kind::Other => {
                    self.compressed(&rest[..BLOCK_BYTES]).unwrap_or(Kept::record(BLOCK_BYTES, 1))
                }
            });
            done += next.blocks() as usize;
            kept.push(next);
        }
    }

    /// Returns the record of blocks compressed together, or `None` if compression saves nothing.
    fn compressed(&mut self, data: &[u8]) -> Option<Kept> {
        self.payload.clear();
        let blocks = data.len() / BLOCK_BYTES;
        let id = self.compressor.compress_structured(data, None, self.effort, &mut self.payload).id;
        let most = if blocks > 1 { Entry::FRAME_MAX_LEN_BYTES } else { Entry::MAX_LEN_BYTES };
        let saves = id != CodecId::Raw && self.payload.len() + RECORD_HEADER_BYTES <= most;
        saves.then(|| Kept::record(self.payload.len(), blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(first: u64, data: &[u8]) -> Vec<Kept> {
        let mut kept = Vec::new();
        Framer::new(Policy::Auto).run(first, data, &mut kept);
        kept
    }

    fn blocks(kept: &[Kept]) -> Vec<u64> {
        kept.iter().map(|one| one.blocks()).collect()
    }

    #[test]
    fn frames_lie_at_multiples_of_their_blocks() {
        let text = codec::testdata::text_like(1, 20 * BLOCK_BYTES);
        assert_eq!(blocks(&framed(0, &text)), [8, 8, 4]);
        assert_eq!(blocks(&framed(3, &text)), [1, 4, 8, 4, 2, 1]);
        let mut mixed = text;
        mixed[2 * BLOCK_BYTES..3 * BLOCK_BYTES].fill(0);
        mixed[11 * BLOCK_BYTES..12 * BLOCK_BYTES].copy_from_slice(&codec::testdata::random(2, BLOCK_BYTES));
        let kept = framed(8, &mixed);
        assert_eq!(blocks(&kept), [2, 1, 1, 4, 2, 1, 1, 4, 4]);
        assert_eq!(kept[1], Kept::Fill(0));
        assert_eq!(kept[6], Kept::Record { bytes: 4112, blocks: 1 });
        assert!(kept.iter().filter(|one| one.blocks() > 1).all(|one| one.record_bytes() % 32 == 0));
    }

    #[test]
    fn a_group_costs_its_runs_or_its_entries() {
        let frame = Kept::Record { bytes: 9600, blocks: 8 };
        let single = Kept::Record { bytes: 4112, blocks: 1 };
        assert_eq!(Cost::of([frame]), Cost { records: 9600, map: 12 });
        assert_eq!(Cost::of([single; 8]), Cost { records: 8 * 4112, map: 64 });
        assert_eq!(Cost::of([Kept::Fill(0); 8]), Cost { records: 0, map: 0 });
        let half = Kept::Record { bytes: 4800, blocks: 4 };
        assert_eq!(Cost::of([half, Kept::Fill(0), Kept::Fill(0)]), Cost { records: 4800, map: 24 });
    }
}
