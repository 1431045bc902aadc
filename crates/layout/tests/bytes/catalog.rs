//! The catalog of dictionaries.

use crate::common::seal;
use layout::{Catalog, CatalogEntry};

#[test]
fn bytes_that_a_later_release_may_use_are_ignored() {
    let mut catalog = Catalog { last_id: 9, adopted_at: 77, ..Catalog::default() };
    catalog.slots[3] = Some(CatalogEntry { id: 9, len_bytes: 5000, crc: 0x0102_0304, retired_at: 50 });
    let mut block = catalog.encode();
    let slots = (32..392).step_by(24).flat_map(|at| [at + 2..at + 4, at + 12..at + 16]);
    for range in [14..16, 24..32, 392..4096].into_iter().chain(slots) {
        block[range].fill(0xa5);
    }
    seal::catalog(&mut block);
    assert_eq!(Catalog::decode(&block), Ok(catalog));
}
