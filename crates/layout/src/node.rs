//! Map nodes: 512 entries of a copy-on-write radix tree of four levels.

use crate::bytes::{u16_at, u64_at};
use crate::{DecodeError, Entry};

/// Entries in a node.
pub const NODE_ENTRIES: usize = 512;
/// Level of the nodes whose entries are blocks.
pub const LEAF_LEVEL: u8 = 0;
/// Level of the root: four levels map 2^36 blocks, 256 TiB.
pub const ROOT_LEVEL: u8 = 3;
/// The root.
pub const ROOT: NodeId = NodeId { level: ROOT_LEVEL, index: 0 };

/// Which node: its level, and how many nodes of that level lie before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NodeId {
    /// 0 (leaf) to 3 (root).
    pub level: u8,
    /// Index among the nodes of its level.
    pub index: u64,
}

impl NodeId {
    /// The leaf that maps a block.
    pub fn leaf_of(block: u64) -> NodeId {
        NodeId { level: LEAF_LEVEL, index: block / NODE_ENTRIES as u64 }
    }

    /// The parent, and this node's slot in it; `None` for the root.
    pub fn parent(self) -> Option<(NodeId, usize)> {
        (self.level < ROOT_LEVEL).then_some((
            NodeId { level: self.level + 1, index: self.index / NODE_ENTRIES as u64 },
            (self.index % NODE_ENTRIES as u64) as usize,
        ))
    }

    /// Ancestor at `level`.
    pub fn ancestor(self, level: u8) -> NodeId {
        assert!(level >= self.level && level <= ROOT_LEVEL);
        NodeId { level, index: self.index >> (9 * u32::from(level - self.level)) }
    }

    /// Child in `slot`; only for levels above the leaves.
    pub fn child(self, slot: usize) -> NodeId {
        assert!(self.level > LEAF_LEVEL);
        NodeId { level: self.level - 1, index: self.index * NODE_ENTRIES as u64 + slot as u64 }
    }
}

/// Coding of a node's payload: the codec byte of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCoding {
    /// 512 entries of 8 bytes.
    Dense = 0,
    /// Only the mapped ones: 2 bytes of slot, 8 of entry, in rising order of slots.
    Sparse = 1,
    /// Runs of equal entries (fills): 2 bytes of first slot, 2 of count, 8 of entry, in rising order of
    /// slots.
    Runs = 2,
}

/// Bytes of a sparse pair.
const PAIR_BYTES: usize = 10;
/// Bytes of a run.
const RUN_BYTES: usize = 12;
/// From so many mapped entries on, dense is smaller than sparse.
const DENSE_FROM: usize = NODE_ENTRIES * 8 / PAIR_BYTES;

/// Appends a node's payload to `out`, in the smallest coding; `mapped` gives (slot, entry) in rising order,
/// mapped ones only.
pub fn encode_node<I: Iterator<Item = (u16, Entry)>>(
    mapped: impl Fn() -> I,
    out: &mut Vec<u8>,
) -> NodeCoding {
    let (count, runs) = count_runs(mapped());
    if runs * RUN_BYTES < (count * PAIR_BYTES).min(NODE_ENTRIES * 8) {
        encode_runs(mapped(), out);
        return NodeCoding::Runs;
    }
    if count >= DENSE_FROM {
        let start = out.len();
        out.resize(start + NODE_ENTRIES * 8, 0);
        for (slot, entry) in mapped() {
            let at = start + usize::from(slot) * 8;
            out[at..at + 8].copy_from_slice(&entry.0.to_le_bytes());
        }
        NodeCoding::Dense
    } else {
        encode_pairs(mapped(), out);
        NodeCoding::Sparse
    }
}

/// Reads a payload of [`encode_node`] into `entries`, which must come all unmapped.
pub fn decode_node(
    coding: u8,
    payload: &[u8],
    entries: &mut [Entry; NODE_ENTRIES],
) -> Result<(), DecodeError> {
    const WHAT: &str = "map node";
    match coding {
        0 if payload.len() == NODE_ENTRIES * 8 => {
            for (slot, entry) in entries.iter_mut().enumerate() {
                *entry = Entry(u64_at(payload, slot * 8));
            }
        }
        1 => {
            for (slot, entry) in decode_pairs(payload, WHAT)? {
                entries[usize::from(slot)] = entry;
            }
        }
        2 => decode_runs(payload, WHAT, |slots, entry| entries[slots].fill(entry))?,
        0 => return Err(DecodeError::Truncated(WHAT)),
        _ => return Err(DecodeError::Field(WHAT, "unknown coding")),
    }
    if entries.iter().all(|e| e.is_valid()) {
        Ok(())
    } else {
        Err(DecodeError::Field(WHAT, "malformed entry"))
    }
}

fn encode_runs(mapped: impl Iterator<Item = (u16, Entry)>, out: &mut Vec<u8>) {
    let mut finish = |run: Option<(u16, u16, Entry)>| {
        if let Some((first, count, entry)) = run {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&entry.0.to_le_bytes());
        }
    };
    let mut run = None;
    for (slot, entry) in mapped {
        run = match run {
            Some((first, count, same)) if same == entry && first + count == slot => {
                Some((first, count + 1, same))
            }
            before => {
                finish(before);
                Some((slot, 1, entry))
            }
        };
    }
    finish(run);
}

/// Calls `each` with the slots and the entry of every run.
fn decode_runs(
    payload: &[u8],
    what: &'static str,
    mut each: impl FnMut(std::ops::Range<usize>, Entry),
) -> Result<(), DecodeError> {
    if !payload.len().is_multiple_of(RUN_BYTES) {
        return Err(DecodeError::Truncated(what));
    }
    let mut least = 0;
    for raw in payload.chunks_exact(RUN_BYTES) {
        let (first, count) = (usize::from(u16_at(raw, 0)), usize::from(u16_at(raw, 2)));
        if first < least || count == 0 || first + count > NODE_ENTRIES {
            return Err(DecodeError::Field(what, "runs out of order"));
        }
        let entry = Entry(u64_at(raw, 4));
        if !entry.is_valid() {
            return Err(DecodeError::Field(what, "malformed entry"));
        }
        least = first + count;
        each(first..least, entry);
    }
    Ok(())
}

/// Coding of an overlay's payload: the codec byte of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayCoding {
    /// Pairs, as [`encode_pairs`] writes them.
    Pairs = 0,
    /// Runs of equal entries, as those of [`NodeCoding::Runs`].
    Runs = 2,
}

/// Appends an overlay's payload to `out`, in the smaller coding; `changes` gives (slot, entry) in rising
/// order, unmapped ones too.
pub fn encode_overlay<I: Iterator<Item = (u16, Entry)>>(
    changes: impl Fn() -> I,
    out: &mut Vec<u8>,
) -> OverlayCoding {
    let (count, runs) = count_runs(changes());
    if runs * RUN_BYTES < count * PAIR_BYTES {
        encode_runs(changes(), out);
        OverlayCoding::Runs
    } else {
        encode_pairs(changes(), out);
        OverlayCoding::Pairs
    }
}

/// Reads a payload of [`encode_overlay`]: slots in range and strictly rising.
pub fn decode_overlay(coding: u8, payload: &[u8]) -> Result<Vec<(u16, Entry)>, DecodeError> {
    const WHAT: &str = "overlay";
    match coding {
        0 => decode_pairs(payload, WHAT),
        2 => {
            let mut pairs = Vec::new();
            decode_runs(payload, WHAT, |slots, entry| {
                pairs.extend(slots.map(|slot| (slot as u16, entry)));
            })?;
            Ok(pairs)
        }
        _ => Err(DecodeError::Field(WHAT, "unknown coding")),
    }
}

/// Entries, and runs of equal ones in neighbouring slots.
fn count_runs(entries: impl Iterator<Item = (u16, Entry)>) -> (usize, usize) {
    let (mut count, mut runs) = (0, 0);
    let mut last: Option<(u16, Entry)> = None;
    for (slot, entry) in entries {
        count += 1;
        runs += usize::from(last != Some((slot.wrapping_sub(1), entry)));
        last = Some((slot, entry));
    }
    (count, runs)
}

/// Appends (slot, entry) pairs; unmapped entries are allowed here (an overlay says what became unmapped).
pub fn encode_pairs(pairs: impl Iterator<Item = (u16, Entry)>, out: &mut Vec<u8>) {
    for (slot, entry) in pairs {
        out.extend_from_slice(&slot.to_le_bytes());
        out.extend_from_slice(&entry.0.to_le_bytes());
    }
}

/// Reads pairs of [`encode_pairs`]: slots in range and strictly rising.
pub fn decode_pairs(payload: &[u8], what: &'static str) -> Result<Vec<(u16, Entry)>, DecodeError> {
    if !payload.len().is_multiple_of(PAIR_BYTES) || payload.len() > NODE_ENTRIES * PAIR_BYTES {
        return Err(DecodeError::Truncated(what));
    }
    let mut pairs = Vec::with_capacity(payload.len() / PAIR_BYTES);
    let mut least = 0;
    for raw in payload.chunks_exact(PAIR_BYTES) {
        let (slot, entry) = (u16_at(raw, 0), Entry(u64_at(raw, 2)));
        if slot < least || usize::from(slot) >= NODE_ENTRIES {
            return Err(DecodeError::Field(what, "slots out of order"));
        }
        if !entry.is_valid() {
            return Err(DecodeError::Field(what, "malformed entry"));
        }
        least = slot + 1;
        pairs.push((slot, entry));
    }
    Ok(pairs)
}
