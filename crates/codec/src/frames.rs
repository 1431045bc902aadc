//! The rule for which adjacent blocks are compressed together. It is the same for all writers and for
//! predictions.

use crate::detect::looks_doubtful;
use crate::{fill_word, looks_incompressible};

/// Class of a block before it is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One 32-bit word repeated.
    Fill(u32),
    /// [`looks_incompressible`]: stored unchanged.
    Incompressible,
    /// To be compressed, but may gain little: its bytes are distributed nearly evenly. See
    /// [`Compressor::gains_little`](crate::Compressor::gains_little).
    Doubtful,
    /// To be compressed.
    Other,
}

impl Kind {
    /// Classifies a block.
    pub fn of(block: &[u8]) -> Kind {
        match fill_word(block) {
            Some(word) => Kind::Fill(word),
            None if looks_incompressible(block) => Kind::Incompressible,
            None if looks_doubtful(block) => Kind::Doubtful,
            None => Kind::Other,
        }
    }
}

/// Returns the number of blocks in one frame. Its first block is block `first` of a drive, described by
/// `kinds[0]`. The result is the largest power of two up to `most` (itself one) that divides `first`, such
/// that none of the blocks is a fill or incompressible. It is at least 1, also for a block that does not
/// belong in a frame. If compressing them together saves nothing, the caller stores the first block alone and
/// applies the rule again to the rest.
pub fn frame_blocks(first: u64, kinds: &[Kind], most: u64) -> usize {
    let alike = |kind: &&Kind| matches!(kind, Kind::Other | Kind::Doubtful);
    let alike = kinds.iter().take(most as usize).take_while(alike).count();
    let mut blocks = most;
    while blocks > 1 && (blocks > alike as u64 || !first.is_multiple_of(blocks)) {
        blocks /= 2;
    }
    blocks.max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn frames_lie_at_multiples_of_their_blocks_and_hold_nothing_else() {
        use Kind::{Doubtful, Fill, Incompressible, Other};
        let other = [Other; 20];
        assert_eq!(frame_blocks(0, &other, 8), 8);
        assert_eq!(frame_blocks(16, &other[..7], 8), 4);
        assert_eq!(frame_blocks(4, &other, 8), 4);
        assert_eq!(frame_blocks(3, &other, 8), 1);
        assert_eq!(frame_blocks(6, &other, 1), 1);
        assert_eq!(frame_blocks(0, &[Other, Other, Other, Fill(0)], 4), 2);
        assert_eq!(frame_blocks(0, &[Incompressible, Other], 8), 1);
        assert_eq!(frame_blocks(0, &[Other, Doubtful], 8), 2);
        assert_eq!(frame_blocks(0, &[Fill(7), Fill(7)], 8), 1);
    }

    #[test]
    fn kinds_of_blocks() {
        assert_eq!(Kind::of(&[1; 4096]), Kind::Fill(0x0101_0101));
        assert_eq!(Kind::of(&testdata::random(1, 4096)), Kind::Incompressible);
        assert_eq!(Kind::of(&testdata::text_like(1, 4096)), Kind::Other);
        // One byte in twenty is zero.
        let mut most = testdata::random(1, 4096);
        most[..4096 / 20].fill(0);
        assert_eq!(Kind::of(&most), Kind::Doubtful);
        most[..4096 / 8].fill(0);
        assert_eq!(Kind::of(&most), Kind::Other);
    }
}
