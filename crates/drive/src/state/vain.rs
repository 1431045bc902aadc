//! Parts of the drive in which settling found nothing worth writing. Until hosts write there, another look
//! would find nothing either, and cost as much.

use layout::BLOCK_BYTES;

/// Most parts, one bit each.
const PARTS_MAX: u64 = 1 << 16;
/// Smallest part.
const PART_BLOCKS_MIN: u64 = (128 << 10) / BLOCK_BYTES as u64;

/// Circumstances on which it depends what is worth writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Circumstances {
    pub(crate) blocks: u64,
    pub(crate) has_room: bool,
    pub(crate) dictionaries: Vec<u16>,
}

/// See the module's description. A restart forgets it.
#[derive(Debug, Default)]
pub(crate) struct Vain {
    circumstances: Circumstances,
    parts: Vec<u64>,
    /// Blocks of a part, as a power of two.
    part_log: u32,
    /// Adjacent blocks that were looked at in vain lately.
    run: (u64, u64),
}

impl Vain {
    /// Forgets everything if circumstances have changed.
    pub(crate) fn review(&mut self, circumstances: Circumstances) {
        if self.circumstances == circumstances {
            return;
        }
        let part_blocks = circumstances.blocks.div_ceil(PARTS_MAX).max(PART_BLOCKS_MIN).next_power_of_two();
        self.part_log = part_blocks.trailing_zeros();
        self.parts = vec![0; circumstances.blocks.div_ceil(part_blocks).div_ceil(64) as usize];
        self.run = (0, 0);
        self.circumstances = circumstances;
    }

    /// Returns the end of a block's part if nothing in it is worth a look.
    pub(crate) fn end_of_part(&self, block: u64) -> Option<u64> {
        let part = block >> self.part_log;
        let word = self.parts.get(part as usize / 64)?;
        (word >> (part % 64) & 1 == 1).then(|| self.circumstances.blocks.min((part + 1) << self.part_log))
    }

    /// Blocks up to `end` were looked at, all in vain or not.
    pub(crate) fn looked(&mut self, first: u64, end: u64, in_vain: bool) {
        let from = if self.run.1 == first { self.run.0 } else { first };
        self.run = if in_vain { (from, end) } else { (end, end) };
        let part_blocks = 1 << self.part_log;
        let (mut part, blocks) =
            ((first >> self.part_log).max(from.div_ceil(part_blocks)), self.circumstances.blocks);
        while in_vain && (part << self.part_log) < blocks && end >= blocks.min((part + 1) << self.part_log) {
            if let Some(word) = self.parts.get_mut(part as usize / 64) {
                *word |= 1 << (part % 64);
            }
            part += 1;
        }
    }

    /// A host wrote blocks.
    pub(crate) fn changed(&mut self, first: u64, end: u64) {
        for part in first >> self.part_log..=(end - 1) >> self.part_log {
            if let Some(word) = self.parts.get_mut(part as usize / 64) {
                *word &= !(1 << (part % 64));
            }
        }
        if first < self.run.1 && self.run.0 < end {
            self.run = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blocks: u64) -> Vain {
        let mut vain = Vain::default();
        vain.review(Circumstances { blocks, ..Circumstances::default() });
        vain
    }

    #[test]
    fn a_part_is_known_when_all_of_it_was_looked_at_in_vain() {
        let mut vain = of(100);
        vain.looked(0, 24, true);
        assert_eq!(vain.end_of_part(0), None);
        vain.looked(24, 40, true);
        assert_eq!(
            (vain.end_of_part(0), vain.end_of_part(31), vain.end_of_part(32)),
            (Some(32), Some(32), None)
        );
        vain.looked(40, 64, false);
        assert_eq!(vain.end_of_part(32), None, "something was worth it");
        vain.looked(64, 100, true);
        assert_eq!(vain.end_of_part(99), Some(100), "the last one is shorter");
        vain.looked(50, 64, true);
        assert_eq!(vain.end_of_part(50), None, "not from its beginning");
    }

    #[test]
    fn what_hosts_write_is_looked_at_again() {
        let mut vain = of(1000);
        vain.looked(0, 1000, true);
        vain.changed(64, 65);
        assert_eq!(
            (vain.end_of_part(63), vain.end_of_part(64), vain.end_of_part(96)),
            (Some(64), None, Some(128))
        );
        // Before the rest of its part is looked at.
        let mut vain = of(1000);
        vain.looked(0, 16, true);
        vain.changed(3, 4);
        vain.looked(16, 64, true);
        assert_eq!((vain.end_of_part(0), vain.end_of_part(32)), (None, Some(64)));
    }

    #[test]
    fn other_circumstances_are_looked_at_anew_and_large_drives_have_large_parts() {
        let mut vain = of(1 << 40);
        vain.looked(0, 1 << 24, true);
        assert_eq!(vain.end_of_part(0), Some(1 << 24));
        vain.review(Circumstances { blocks: 1 << 40, has_room: true, dictionaries: vec![1] });
        assert_eq!(vain.end_of_part(0), None);
    }
}
