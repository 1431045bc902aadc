//! Substitute for an arena: its regions are those of `media`, and its bytes are plain memory, of which the
//! next process sees at any time what was stored until then. Each store is a step; before and after it a
//! process may be killed, so the watcher is shown what it would leave.

use std::sync::Arc;

#[path = "../../media/src/arena/regions.rs"]
mod regions;

use self::regions::Regions;
use crate::sync::Mutex;

/// As in `media`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaShape {
    pub(crate) table_bytes: usize,
    pub(crate) unit_bytes: usize,
    pub(crate) units: usize,
    pub(crate) largest_bytes: usize,
}

/// What a killed process leaves.
#[derive(Default)]
pub(crate) struct Remains {
    /// The arena's bytes.
    pub(crate) bytes: Vec<u8>,
    /// Packs that the medium has taken, and their records.
    pub(crate) written: Vec<(u64, Vec<u64>)>,
    /// Records that were acknowledged.
    pub(crate) acknowledged: Vec<u64>,
}

struct Inner {
    shape: ArenaShape,
    regions: Regions,
    remains: Mutex<Remains>,
    watcher: fn(&Remains),
}

#[derive(Clone)]
pub(crate) struct Arena(Arc<Inner>);

impl Arena {
    pub(crate) fn new(shape: ArenaShape, watcher: fn(&Remains)) -> Arena {
        let regions = Regions::new(shape.units, shape.units, shape.largest_bytes.div_ceil(shape.unit_bytes));
        let bytes = vec![0; shape.table_bytes + shape.units * shape.unit_bytes];
        let remains = Mutex::new(Remains { bytes, ..Remains::default() });
        Arena(Arc::new(Inner { shape, regions, remains, watcher }))
    }

    /// One step, after which the process may be killed.
    pub(crate) fn step(&self, change: impl FnOnce(&mut Remains)) {
        let mut remains = self.0.remains.lock();
        change(&mut remains);
        (self.0.watcher)(&remains);
    }

    pub(crate) fn shape(&self) -> ArenaShape {
        self.0.shape
    }

    pub(crate) fn store(&self, at: usize, value: u64) {
        self.step(|remains| remains.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()));
    }

    pub(crate) fn take(&self, len: usize) -> Option<IoBuf> {
        let count = len.div_ceil(self.0.shape.unit_bytes).max(1);
        let first = self.0.regions.take(count)?;
        Some(IoBuf { arena: self.clone(), first, units: count, len })
    }

    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.0.regions.has_room(count)
    }

    pub(crate) fn reclaim(&self, publish: impl FnMut(usize)) {
        self.0.regions.reclaim(publish);
    }

    pub(crate) fn unit_of(&self, buf: &IoBuf) -> Option<usize> {
        Some(buf.first)
    }
}

/// A buffer in an arena.
pub(crate) struct IoBuf {
    arena: Arena,
    first: usize,
    units: usize,
    len: usize,
}

impl IoBuf {
    /// The model never runs out of memory.
    pub(crate) fn pooled(_len: usize) -> IoBuf {
        unreachable!("there is room for each open pack")
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let shape = self.arena.0.shape;
        assert!(at + bytes.len() <= self.capacity(), "behind the end of a region");
        let at = shape.table_bytes + self.first * shape.unit_bytes + at;
        self.arena.step(|remains| remains.bytes[at..at + bytes.len()].copy_from_slice(bytes));
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.units * self.arena.0.shape.unit_bytes
    }

    pub(crate) fn shrink(&mut self) {
        let kept = self.len.div_ceil(self.arena.0.shape.unit_bytes).max(1);
        self.arena.0.regions.free(self.first + kept..self.first + self.units);
        self.units = kept;
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        self.arena.0.regions.give_back(self.first..self.first + self.units);
    }
}
