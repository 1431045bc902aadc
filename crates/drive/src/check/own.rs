//! Names of the drive's own blocks: no host can reach them, so their numbers say nothing to anyone.

use layout::catalog::{CATALOG_COPIES, CATALOG_SLOTS, DICTIONARY_BYTES_MAX};
use layout::geometry::OWN_FIRST_BLOCK;
use layout::{BLOCK_BYTES, Catalog};

use crate::state::dictionaries::Dictionaries;

/// A block that the drive keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnBlock {
    pub(super) name: String,
    /// Nothing is lost without it: its other copy was read when the drive was opened, or nothing needs it.
    pub(super) is_spare: bool,
}

impl OwnBlock {
    /// Returns what a block is; `None` if hosts can have it.
    pub(super) fn of(block: u64, dictionaries: &Dictionaries) -> Option<OwnBlock> {
        if block < OWN_FIRST_BLOCK {
            return None;
        }
        let is_catalog_lost = dictionaries.is_lost();
        if let Some(copy) = (0..CATALOG_COPIES).find(|copy| Catalog::block(*copy) == block) {
            let name = format!("catalog of dictionaries, copy {copy}");
            return Some(OwnBlock { name, is_spare: !is_catalog_lost });
        }
        let copies = (0..CATALOG_SLOTS).flat_map(|slot| (0..CATALOG_COPIES).map(move |copy| (slot, copy)));
        let mut places = copies.map(|(slot, copy)| (slot, copy, Catalog::dictionary_block(slot, copy)));
        let blocks = (DICTIONARY_BYTES_MAX / BLOCK_BYTES) as u64;
        let found = places.find(|(.., first)| (*first..first + blocks).contains(&block));
        let Some((slot, copy, _)) = found else {
            let name = "a block of the drive's own that has no use".to_string();
            return Some(OwnBlock { name, is_spare: !is_catalog_lost });
        };
        let entry = dictionaries.catalog().slots[slot];
        Some(match entry {
            Some(entry) => OwnBlock {
                name: format!("dictionary {}, copy {copy}", entry.id),
                is_spare: dictionaries.of(entry.id).is_ok(),
            },
            // Without its catalog nothing is known of it.
            None if is_catalog_lost => {
                OwnBlock { name: format!("a dictionary, copy {copy}"), is_spare: false }
            }
            None => OwnBlock { name: "a place for a dictionary, not in use".to_string(), is_spare: true },
        })
    }
}

#[cfg(test)]
mod tests {
    use layout::CatalogEntry;
    use layout::geometry::MAX_BLOCKS;

    use super::*;
    use crate::state::dictionaries::NoDictionary;

    fn of(block: u64, dictionaries: &Dictionaries) -> (String, bool) {
        let own = OwnBlock::of(block, dictionaries).expect("the drive's own");
        (own.name, own.is_spare)
    }

    #[test]
    fn every_block_beyond_those_of_hosts_has_a_name() {
        let dictionaries = Dictionaries::default();
        assert_eq!(OwnBlock::of(OWN_FIRST_BLOCK - 1, &dictionaries), None);
        let entry = CatalogEntry { id: 7, len_bytes: 5000, crc: 0, retired_at: 0 };
        dictionaries.catalog.lock().slots[3] = Some(entry);
        dictionaries.known.write().insert(7, Err(NoDictionary::Unreadable(7)));
        let place = Catalog::dictionary_block(3, 1);
        let names: Vec<_> = [OWN_FIRST_BLOCK, OWN_FIRST_BLOCK + 1, OWN_FIRST_BLOCK + 2, place, place + 15]
            .map(|block| of(block, &dictionaries))
            .into();
        let expected = [
            ("catalog of dictionaries, copy 0", true),
            ("catalog of dictionaries, copy 1", true),
            ("a block of the drive's own that has no use", true),
            ("dictionary 7, copy 1", false),
            ("dictionary 7, copy 1", false),
        ];
        assert_eq!(names, expected.map(|(name, is_spare)| (name.to_string(), is_spare)));
        let unused = ("a place for a dictionary, not in use".to_string(), true);
        assert_eq!(of(MAX_BLOCKS - 1, &dictionaries), unused);
        dictionaries.lost.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(of(MAX_BLOCKS - 1, &dictionaries), ("a dictionary, copy 1".to_string(), false));
        assert!(!of(OWN_FIRST_BLOCK, &dictionaries).1);
    }
}
