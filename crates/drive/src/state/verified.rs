//! Fillings that the scrub in progress has read by place and found whole: it does not read their records
//! again.

use std::collections::BTreeSet;

use crate::state::accumulator::FillingId;

/// See the module's description. Lost when the drive is closed: then records are read again.
#[derive(Default)]
pub(crate) struct Verified {
    fillings: BTreeSet<FillingId>,
    /// The filling that is being read, and its next part.
    current: Option<(FillingId, u32)>,
}

impl Verified {
    /// A scrub begins.
    pub(crate) fn begin(&mut self) {
        *self = Verified::default();
    }

    /// A part of a filling was read.
    pub(crate) fn add(&mut self, id: FillingId, part: u32, is_last: bool, is_whole: bool) {
        let follows = part == 0 || self.current == Some((id, part));
        self.current = (is_whole && follows).then_some((id, part + 1));
        if is_last && self.current.take().is_some() {
            self.fillings.insert(id);
        }
    }

    pub(crate) fn has(&self, id: FillingId) -> bool {
        self.fillings.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FillingId = FillingId { segment: 3, generation: 7 };

    #[test]
    fn a_filling_counts_only_if_all_its_parts_were_whole() {
        let mut verified = Verified::default();
        verified.add(ID, 0, false, true);
        verified.add(ID, 1, true, true);
        assert!(verified.has(ID));
        assert!(!verified.has(FillingId { generation: 8, ..ID }));
        verified.begin();
        assert!(!verified.has(ID));
        for parts in [[(0, false), (1, true)], [(0, true), (1, false)]] {
            for (part, is_whole) in parts {
                verified.add(ID, part, part == 1, is_whole);
            }
            assert!(!verified.has(ID));
        }
        // Written again between its parts, or begun in the middle.
        verified.add(ID, 0, false, true);
        verified.add(FillingId { generation: 8, ..ID }, 1, true, true);
        verified.add(ID, 1, true, true);
        assert!(verified.fillings.is_empty());
    }
}
