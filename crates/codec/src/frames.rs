//! Which adjacent blocks are compressed together: the one rule for all who write, and for those who predict.

use crate::{fill_word, looks_incompressible};

/// What a block looks like before it is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One 32-bit word repeated.
    Fill(u32),
    /// [`looks_incompressible`]: stored as it came.
    Incompressible,
    /// To be compressed.
    Other,
}

impl Kind {
    /// Looks at a block.
    pub fn of(block: &[u8]) -> Kind {
        match fill_word(block) {
            Some(word) => Kind::Fill(word),
            None if looks_incompressible(block) => Kind::Incompressible,
            None => Kind::Other,
        }
    }
}

/// How many blocks go into one frame, the first of which is block `first` of a drive and `kinds[0]`: the largest power of
/// two up to `most` (itself one) that `first` is a multiple of, none of the blocks a fill or incompressible. At least 1, also
/// for a block that is no frame's. If compressing them together saves nothing, the first is stored by itself and the rule is
/// asked again behind it.
pub fn frame_blocks(first: u64, kinds: &[Kind], most: u64) -> usize {
    let alike = kinds.iter().take(most as usize).take_while(|kind| **kind == Kind::Other).count();
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
        use Kind::{Fill, Incompressible, Other};
        let other = [Other; 20];
        assert_eq!(frame_blocks(0, &other, 8), 8);
        assert_eq!(frame_blocks(16, &other[..7], 8), 4);
        assert_eq!(frame_blocks(4, &other, 8), 4);
        assert_eq!(frame_blocks(3, &other, 8), 1);
        assert_eq!(frame_blocks(6, &other, 1), 1);
        assert_eq!(frame_blocks(0, &[Other, Other, Other, Fill(0)], 4), 2);
        assert_eq!(frame_blocks(0, &[Incompressible, Other], 8), 1);
        assert_eq!(frame_blocks(0, &[Fill(7), Fill(7)], 8), 1);
    }

    #[test]
    fn kinds_of_blocks() {
        assert_eq!(Kind::of(&[1; 4096]), Kind::Fill(0x0101_0101));
        assert_eq!(Kind::of(&testdata::random(1, 4096)), Kind::Incompressible);
        assert_eq!(Kind::of(&testdata::text_like(1, 4096)), Kind::Other);
    }
}
