//! Any bytes as the memory that a run left.

use layout::RunMemory;
use layout::memory::MemoryHeader;

use super::seal;

/// Checked as it is, and with a right magic number, length and checksum.
pub(crate) fn run(data: &[u8]) {
    check(data);
    let mut memory = data.to_vec();
    memory.resize(memory.len().max(4096), 0);
    seal::memory(&mut memory);
    check(&memory);
}

fn check(bytes: &[u8]) {
    let Ok(found) = RunMemory::decode(bytes) else { return };
    let MemoryHeader { units, unit_bytes, .. } = found.header;
    let table = MemoryHeader::table_bytes(units as usize);
    assert_eq!(bytes.len(), table + units as usize * unit_bytes as usize);
    assert!(found.sealed.is_sorted_by(|a, b| a.header.sequence < b.header.sequence), "each number once");
    let packs = found.sealed.iter().map(|pack| pack.bytes).chain(found.open.iter().map(|open| open.bytes));
    let mut ranges: Vec<(usize, usize)> =
        packs.map(|pack| (pack.as_ptr().addr() - bytes.as_ptr().addr(), pack.len())).collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(at, len)| *at >= table && at + len <= bytes.len()), "packs are in units");
    assert!(ranges.is_sorted_by(|(a, len), (b, _)| a + len <= *b), "packs share no byte");
    assert!(found.newest() >= found.sequence);
}
