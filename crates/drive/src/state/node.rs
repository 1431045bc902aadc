//! A map node in memory: a whole page of entries, or only the known ones.

use layout::{Entry, NODE_ENTRIES, NodeId};

/// From this number of pairs on, a page takes less memory.
const PAGE_FROM_PAIRS: usize = 160;
/// Up to this number of mapped entries a loaded node takes the sparse form: a quarter of a page, with room to
/// grow.
const SPARSE_UP_TO_PAIRS: usize = 64;

/// State under the pairs of a sparse node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Nothing: slots without a pair are unmapped.
    Empty,
    /// The node's image on the medium, which is not loaded. Whether there is one may be unknown.
    Media,
    /// Like `Media`, but everything there was trimmed: only its accounting is owed.
    MediaCleared,
}

/// The entries of a node that are in memory.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// All entries.
    Page(Box<[Entry; NODE_ENTRIES]>),
    /// All entries are the same fill. Not possible over `Media`, as all of the image is replaced.
    Uniform { entry: Entry, base: Base },
    /// Pairs of slot and entry in rising order, over a base.
    Sparse { pairs: Vec<(u16, Entry)>, base: Base },
}

/// Contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Known(Entry),
    /// Only the image on the medium has it.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) form: Form,
    /// Differs from the image on the medium.
    pub(crate) dirty: bool,
    /// Checkpoint round in which it last became dirty.
    pub(crate) round: u64,
    /// Used since the eviction hand last passed.
    pub(crate) referenced: bool,
    /// When it was brought in, counted in nodes.
    pub(crate) arrival: u64,
    /// Number of complete nodes in memory directly below it.
    pub(crate) children: u16,
}

impl Form {
    pub(crate) fn empty() -> Form {
        Form::Sparse { pairs: Vec::new(), base: Base::Empty }
    }

    /// Returns the form that takes least memory for these entries, with room to grow.
    pub(crate) fn of(entries: Box<[Entry; NODE_ENTRIES]>) -> Form {
        let first = entries[0];
        if first.fill_word().is_some() && entries.iter().all(|e| *e == first) {
            return Form::Uniform { entry: first, base: Base::Empty };
        }
        let mapped = || (0..).zip(entries.iter().copied()).filter(|(_, e)| !e.is_unmapped());
        if mapped().count() > SPARSE_UP_TO_PAIRS {
            return Form::Page(entries);
        }
        Form::Sparse { pairs: mapped().collect(), base: Base::Empty }
    }

    /// Returns the form of the changes in an overlay record.
    pub(crate) fn of_overlay(pairs: Vec<(u16, Entry)>, cleared: bool) -> Form {
        let base = if cleared { Base::MediaCleared } else { Base::Media };
        match pairs.first() {
            Some(&(_, entry))
                if cleared
                    && pairs.len() == NODE_ENTRIES
                    && entry.fill_word().is_some()
                    && pairs.iter().all(|p| p.1 == entry) =>
            {
                Form::Uniform { entry, base }
            }
            _ => Form::Sparse { pairs, base },
        }
    }

    /// Returns what lies under the known entries.
    pub(crate) fn base(&self) -> Base {
        match self {
            Form::Page(_) => Base::Empty,
            Form::Uniform { base, .. } | Form::Sparse { base, .. } => *base,
        }
    }

    /// Returns whether every slot is known and accounted.
    pub(crate) fn is_complete(&self) -> bool {
        self.base() == Base::Empty
    }

    /// Returns whether every slot is known, and the image on the medium is needed for accounting alone.
    pub(crate) fn replaces_image(&self) -> bool {
        match self {
            Form::Sparse { pairs, base: Base::Media } => pairs.len() == NODE_ENTRIES,
            form => form.base() == Base::MediaCleared,
        }
    }

    pub(crate) fn get(&self, slot: usize) -> Slot {
        match self {
            Form::Page(entries) => Slot::Known(entries[slot]),
            Form::Uniform { entry, .. } => Slot::Known(*entry),
            Form::Sparse { pairs, base } => match pairs.binary_search_by_key(&(slot as u16), |p| p.0) {
                Ok(at) => Slot::Known(pairs[at].1),
                Err(_) if *base == Base::Media => Slot::Unknown,
                Err(_) => Slot::Known(Entry::UNMAPPED),
            },
        }
    }

    /// Sets a slot. Returns what is to be accounted as replaced: the previous entry, if it is accounted now.
    /// An unknown entry is accounted when the image is loaded.
    pub(crate) fn set(&mut self, slot: usize, entry: Entry) -> Entry {
        match self {
            Form::Page(entries) => std::mem::replace(&mut entries[slot], entry),
            Form::Uniform { entry: all, base } => {
                let (old, base) = (*all, *base);
                if old != entry {
                    let mut entries = Box::new([old; NODE_ENTRIES]);
                    entries[slot] = entry;
                    *self = if base == Base::Empty {
                        Form::Page(entries)
                    } else {
                        let pairs = (0..).zip(entries.iter().copied()).filter(|(_, e)| !e.is_unmapped());
                        Form::Sparse { pairs: pairs.collect(), base }
                    };
                }
                old
            }
            Form::Sparse { pairs, base } => {
                let old = match pairs.binary_search_by_key(&(slot as u16), |p| p.0) {
                    Ok(at) if entry.is_unmapped() && *base != Base::Media => pairs.remove(at).1,
                    Ok(at) => std::mem::replace(&mut pairs[at].1, entry),
                    Err(_) if entry.is_unmapped() && *base != Base::Media => Entry::UNMAPPED,
                    Err(at) => {
                        pairs.insert(at, (slot as u16, entry));
                        Entry::UNMAPPED
                    }
                };
                if *base == Base::Empty && pairs.len() >= PAGE_FROM_PAIRS {
                    *self = page_of(pairs);
                }
                old
            }
        }
    }

    /// Unmaps every slot. `each` gets what is to be accounted as replaced, with its slot.
    pub(crate) fn clear(&mut self, mut each: impl FnMut(u64, Entry)) {
        match self {
            Form::Page(entries) => {
                (0..)
                    .zip(entries.iter())
                    .filter(|(_, e)| !e.is_unmapped())
                    .for_each(|(slot, e)| each(slot, *e));
                *self = Form::empty();
            }
            Form::Uniform { entry, base } => {
                (0..NODE_ENTRIES as u64).for_each(|slot| each(slot, *entry));
                *self = Form::Sparse { pairs: Vec::new(), base: *base };
            }
            Form::Sparse { pairs, base } => {
                std::mem::take(pairs)
                    .iter()
                    .filter(|p| !p.1.is_unmapped())
                    .for_each(|p| each(p.0.into(), p.1));
                if *base == Base::Media {
                    *base = Base::MediaCleared;
                }
            }
        }
    }

    /// There is no image under the changes, or all of it is accounted by now.
    pub(crate) fn complete(&mut self) {
        match self {
            Form::Page(_) => {}
            Form::Uniform { base, .. } => *base = Base::Empty,
            Form::Sparse { pairs, base } => {
                pairs.retain(|p| !p.1.is_unmapped());
                *base = Base::Empty;
                if pairs.len() >= PAGE_FROM_PAIRS {
                    *self = page_of(pairs);
                }
            }
        }
    }

    /// Known slots in rising order: the contents of an overlay record. Includes unmapped ones that hide
    /// entries of the image.
    pub(crate) fn changes(&self) -> Box<dyn Iterator<Item = (u16, Entry)> + '_> {
        match self {
            Form::Sparse { pairs, .. } => Box::new(pairs.iter().copied()),
            Form::Page(_) | Form::Uniform { .. } => self.mapped(),
        }
    }

    /// Mapped slots in rising order.
    pub(crate) fn mapped(&self) -> Box<dyn Iterator<Item = (u16, Entry)> + '_> {
        match self {
            Form::Page(entries) => Box::new(
                entries
                    .iter()
                    .enumerate()
                    .filter(|(_, e)| !e.is_unmapped())
                    .map(|(slot, e)| (slot as u16, *e)),
            ),
            Form::Uniform { entry, .. } => Box::new((0..NODE_ENTRIES as u16).map(|slot| (slot, *entry))),
            Form::Sparse { pairs, .. } => Box::new(pairs.iter().copied().filter(|p| !p.1.is_unmapped())),
        }
    }

    /// Approximate memory in bytes, as counted by the cache's budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // Slab slot, hash table entry and allocator overhead.
        const FIXED: usize = 112;
        let variable = match self {
            Form::Page(_) => NODE_ENTRIES * size_of::<Entry>(),
            Form::Uniform { .. } => 0,
            Form::Sparse { pairs, .. } => pairs.capacity() * size_of::<(u16, Entry)>(),
        };
        (FIXED + variable) as u64
    }
}

fn page_of(pairs: &[(u16, Entry)]) -> Form {
    let mut entries = Box::new([Entry::UNMAPPED; NODE_ENTRIES]);
    pairs.iter().for_each(|(slot, entry)| entries[usize::from(*slot)] = *entry);
    Form::Page(entries)
}
