//! The map from block to record, a radix tree of nodes that are cached within a budget.
//!
//! Every node that differs from its image on the medium is in memory, either whole or as the changes to it.
//! Therefore a write never waits for the medium: to a leaf that is not loaded it adds a change, and what the
//! change replaced is accounted when the leaf is loaded. Until then the replaced record counts as live.
//!
//! The parent of a complete node is in memory too: whatever happens to its own image, the path to the root
//! can be written. Changes to a leaf that is not loaded need no parent: they can be written as they are.

mod overlays;

use layout::{Entry, LEAF_LEVEL, NODE_ENTRIES, NodeId, ROOT};
use rustc_hash::FxHashMap;
use space::{ancestors_bytes, leaves_max, upper_nodes};

use crate::state::node::{Base, Form, Node, Slot};
use crate::state::rules::first_broken;

/// The newest nodes stay, whatever the budget is: to make progress, requests need all nodes of a path at
/// once.
const NEWEST_KEPT: u64 = 64;
/// Least memory for nodes.
const BUDGET_MIN_BYTES: u64 = 64 << 10;
/// Nodes looked at for one eviction.
const EVICTION_STEPS_MAX: usize = 128;

/// A node that must be read from the medium first, and the place of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) id: NodeId,
    pub(crate) image: Entry,
}

/// Knowledge about a node's image.
enum Image {
    At(Entry),
    None,
    /// An ancestor must be loaded first.
    Behind(Missing),
}

/// Forms that nodes had at a checkpoint's cut, for those changed since and not yet written.
pub(crate) type Frozen = FxHashMap<NodeId, Form>;

/// Blocks that the drive uses for itself.
#[derive(Default)]
pub(crate) struct Own {
    /// Blocks with a record.
    pub(crate) blocks: u64,
    /// Blocks that are a fill.
    pub(crate) fills: u64,
    /// Space of the records.
    pub(crate) units: u64,
}

impl Own {
    pub(crate) fn release(&mut self, entry: Entry) {
        self.units = self.units.saturating_sub(entry.units().into());
    }
}

pub(crate) struct Map {
    nodes: Vec<Option<Node>>,
    vacant: Vec<u32>,
    index: FxHashMap<NodeId, u32>,
    /// Place of the root's image.
    root_image: Entry,
    /// Nodes that became dirty since the last cut. May include nodes that are clean again.
    dirty: Vec<NodeId>,
    dirty_bytes: u64,
    memory_bytes: u64,
    budget_bytes: u64,
    /// Most nodes above the leaves for the capacity, by level.
    upper_nodes: [u64; ROOT.level as usize],
    hand: usize,
    /// Number of nodes brought in.
    arrivals: u64,
    /// Checkpoint rounds: a dirty node of an earlier round belongs to the checkpoint being written.
    round: u64,
    /// While a checkpoint is being written: nodes as they were at its cut, if they changed since.
    frozen: Option<Frozen>,
    /// Nodes that were dirty at the cut of this checkpoint.
    leaves_at_cut: u64,
    /// Blocks with a record, and blocks that are a fill (accounted).
    pub(crate) live_blocks: u64,
    /// Mix of the records of these blocks.
    pub(crate) mix: layout::Mix,
    pub(crate) fill_blocks: u64,
    /// Part of these: the drive's own.
    pub(crate) own: Own,
    /// Sparse nodes over an image that is not loaded.
    overlays: u64,
    pub(crate) loads_count: u64,
    pub(crate) evictions_count: u64,
    pub(crate) hits_count: u64,
}

impl Map {
    /// An empty map of `blocks` blocks whose cache keeps within `budget_bytes` (at least 64 KiB).
    pub(crate) fn new(budget_bytes: u64, blocks: u64) -> Map {
        let mut map = Map {
            nodes: Vec::new(),
            vacant: Vec::new(),
            index: FxHashMap::default(),
            root_image: Entry::UNMAPPED,
            dirty: Vec::new(),
            dirty_bytes: 0,
            memory_bytes: 0,
            budget_bytes: budget_bytes.max(BUDGET_MIN_BYTES),
            upper_nodes: [0; ROOT.level as usize],
            leaves_at_cut: 0,
            hand: 0,
            arrivals: 0,
            round: 0,
            frozen: None,
            live_blocks: 0,
            mix: layout::Mix::default(),
            fill_blocks: 0,
            own: Own::default(),
            overlays: 0,
            loads_count: 0,
            evictions_count: 0,
            hits_count: 0,
        };
        map.set_blocks(blocks);
        map
    }

    /// Sets the number of blocks.
    pub(crate) fn set_blocks(&mut self, blocks: u64) {
        self.upper_nodes = upper_nodes(blocks);
    }

    pub(crate) fn set_root_image(&mut self, image: Entry) {
        self.root_image = image;
    }

    pub(crate) fn root_image(&self) -> Entry {
        self.root_image
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.index.get(&id).and_then(|&i| self.nodes[i as usize].as_ref())
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.index.get(&id).and_then(|&i| self.nodes[i as usize].as_mut())
    }

    /// Returns what is known about a node's image from its ancestors.
    fn image(&self, id: NodeId) -> Image {
        let Some((parent, slot)) = id.parent() else {
            return if self.root_image.is_unmapped() { Image::None } else { Image::At(self.root_image) };
        };
        match self.node(parent).map(|p| p.form.get(slot)) {
            Some(Slot::Known(entry)) if entry.is_unmapped() => Image::None,
            Some(Slot::Known(entry)) => Image::At(entry),
            Some(Slot::Unknown) => unreachable!("only leaves have changes over an image not loaded"),
            None => match self.image(parent) {
                Image::None => Image::None,
                Image::At(image) => Image::Behind(Missing { id: parent, image }),
                behind @ Image::Behind(_) => behind,
            },
        }
    }

    /// Looks up a run of blocks within one leaf. Calls `each` with every block's entry, or returns what must
    /// be loaded first.
    pub(crate) fn lookup(
        &mut self,
        block: u64,
        count: usize,
        mut each: impl FnMut(u64, Entry),
    ) -> Result<(), Missing> {
        let leaf = NodeId::leaf_of(block);
        let first = (block % NODE_ENTRIES as u64) as usize;
        assert!(first + count <= NODE_ENTRIES);
        let image = match self.node_mut(leaf) {
            Some(node) => {
                node.referenced = true;
                let known = (first..first + count).all(|slot| node.form.get(slot) != Slot::Unknown);
                if known {
                    for slot in first..first + count {
                        if let Slot::Known(entry) = node.form.get(slot) {
                            each(block + (slot - first) as u64, entry);
                        }
                    }
                    self.hits_count += 1;
                    return Ok(());
                }
                self.image(leaf)
            }
            None => match self.image(leaf) {
                Image::None => {
                    (0..count as u64).for_each(|i| each(block + i, Entry::UNMAPPED));
                    return Ok(());
                }
                image => image,
            },
        };
        match image {
            Image::At(image) => Err(Missing { id: leaf, image }),
            Image::Behind(missing) => Err(missing),
            Image::None => {
                self.complete_without_image(leaf);
                self.lookup(block, count, each)
            }
        }
    }

    /// Returns a block's entry if it is known without the medium.
    pub(crate) fn peek(&self, block: u64) -> Slot {
        let leaf = NodeId::leaf_of(block);
        match self.node(leaf) {
            Some(node) => node.form.get((block % NODE_ENTRIES as u64) as usize),
            None => match self.image(leaf) {
                Image::None => Slot::Known(Entry::UNMAPPED),
                _ => Slot::Unknown,
            },
        }
    }

    /// Checks that a node is complete, or returns what must be loaded for that. If it is complete, returns
    /// whether it is in memory.
    pub(crate) fn complete(&mut self, id: NodeId) -> Result<bool, Missing> {
        let present = match self.node(id) {
            Some(node) if node.form.is_complete() => return Ok(true),
            present => present.is_some(),
        };
        match self.image(id) {
            Image::At(image) => Err(Missing { id, image }),
            Image::Behind(missing) => Err(missing),
            Image::None => {
                self.complete_without_image(id);
                Ok(present)
            }
        }
    }

    /// Sets a block's entry. Returns what is accounted as replaced now.
    pub(crate) fn set(&mut self, block: u64, entry: Entry) -> Entry {
        let slot = (block % NODE_ENTRIES as u64) as usize;
        let at = self.touch(NodeId::leaf_of(block));
        let Some(node) = &mut self.nodes[at] else { unreachable!("touched") };
        match &mut node.form {
            // The common case: memory does not change.
            Form::Page(entries) => std::mem::replace(&mut entries[slot], entry),
            form => {
                let before = form.memory_bytes();
                let old = form.set(slot, entry);
                let after = form.memory_bytes();
                self.resize(before, after);
                old
            }
        }
    }

    /// Unmaps a whole leaf. `each` gets what is accounted as replaced now, with its slot. Returns false if
    /// there was nothing.
    pub(crate) fn clear_leaf(&mut self, leaf: NodeId, each: impl FnMut(u64, Entry)) -> bool {
        if self.is_absent(leaf) {
            return false;
        }
        let at = self.touch(leaf);
        let Some(node) = &mut self.nodes[at] else { unreachable!("touched") };
        let before = node.form.memory_bytes();
        node.form.clear(each);
        let after = node.form.memory_bytes();
        self.resize(before, after);
        true
    }

    /// Returns whether a leaf is known, without the medium, to be empty.
    pub(crate) fn is_absent(&self, leaf: NodeId) -> bool {
        self.node(leaf).is_none() && matches!(self.image(leaf), Image::None)
    }

    /// Gives every block of a leaf the same fill. The leaf must have been cleared.
    pub(crate) fn fill_leaf(&mut self, leaf: NodeId, entry: Entry) {
        let at = self.touch(leaf);
        let Some(node) = &mut self.nodes[at] else { unreachable!("touched") };
        let base = node.form.base();
        assert!(base != Base::Media, "cleared");
        let before = node.form.memory_bytes();
        node.form = Form::Uniform { entry, base };
        let after = node.form.memory_bytes();
        self.resize(before, after);
    }

    /// Returns the slab index of a leaf that is about to change. Creates it if absent, marks it dirty, and
    /// keeps its present form for a checkpoint that has not written it yet.
    fn touch(&mut self, leaf: NodeId) -> usize {
        let at = match self.index.get(&leaf) {
            Some(&at) => at as usize,
            None => {
                let base = if matches!(self.image(leaf), Image::None) { Base::Empty } else { Base::Media };
                if base == Base::Empty {
                    self.insert_parents(leaf);
                }
                self.insert(leaf, Form::Sparse { pairs: Vec::new(), base })
            }
        };
        self.mark_dirty(at);
        at
    }

    fn mark_dirty(&mut self, at: usize) {
        let round = self.round;
        let Some(node) = &mut self.nodes[at] else { unreachable!("a node in the index") };
        node.referenced = true;
        if !node.dirty {
            node.dirty = true;
            node.round = round;
            self.dirty_bytes += node.form.memory_bytes();
            self.dirty.push(node.id);
        } else if node.round < round && node.id.level == LEAF_LEVEL {
            // Nodes above the leaves belong to the checkpoint in progress as they are, whoever requests that
            // they are rewritten meanwhile: only the checkpoint changes them.
            node.round = round;
            if let Some(frozen) = &mut self.frozen {
                frozen.entry(node.id).or_insert_with(|| node.form.clone());
            }
            self.dirty.push(node.id);
        }
    }

    /// Brings in the ancestors of a node that is known to have no image. Those without an image are empty.
    fn insert_parents(&mut self, id: NodeId) {
        let Some((parent, _)) = id.parent() else { return };
        if self.node(parent).is_none() {
            assert!(matches!(self.image(parent), Image::None), "what has an image is loaded, not made");
            self.insert_parents(parent);
            self.insert(parent, Form::empty());
        }
    }

    /// A node has become complete. Its parent stays in memory.
    fn hold_parent(&mut self, id: NodeId) {
        let Some((parent, _)) = id.parent() else { return };
        let Some(parent) = self.node_mut(parent) else {
            unreachable!("the parent of a complete node is in memory")
        };
        parent.children += 1;
    }

    fn insert(&mut self, id: NodeId, form: Form) -> usize {
        self.memory_bytes += form.memory_bytes();
        if form.is_complete() {
            self.hold_parent(id);
        } else {
            self.overlays += 1;
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let node =
            Some(Node { id, form, dirty: false, round: self.round, referenced: true, arrival, children: 0 });
        let at = match self.vacant.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.index.insert(id, at);
        at as usize
    }

    fn resize(&mut self, before: u64, after: u64) {
        self.memory_bytes = self.memory_bytes + after - before;
        self.dirty_bytes = self.dirty_bytes + after - before;
    }

    /// Installs a node that was read from the medium. Changes made meanwhile stay on top; `release` gets what
    /// they replaced, with its slot. Ignored if the node is complete already, or if its image is elsewhere by
    /// now (`image` is where it was read).
    pub(crate) fn install_image(
        &mut self,
        missing: Missing,
        entries: Box<[Entry; NODE_ENTRIES]>,
        release: impl FnMut(u64, Entry),
    ) {
        if matches!(self.image(missing.id), Image::At(image) if image == missing.image) {
            self.loads_count += 1;
            self.install(missing.id, entries, release);
        }
    }

    fn install(
        &mut self,
        id: NodeId,
        mut entries: Box<[Entry; NODE_ENTRIES]>,
        mut release: impl FnMut(u64, Entry),
    ) {
        let Some(&at) = self.index.get(&id) else {
            self.insert(id, Form::of(entries));
            return;
        };
        let round = self.round;
        self.arrivals += 1;
        let Some(node) = &mut self.nodes[at as usize] else { unreachable!("a node in the index") };
        node.arrival = self.arrivals;
        if node.form.is_complete() {
            return;
        }
        // A checkpoint in progress still writes the changes, accounted as at its cut.
        if node.dirty
            && node.round < round
            && let Some(frozen) = &mut self.frozen
        {
            frozen.entry(id).or_insert_with(|| node.form.clone());
            node.round = round;
            self.dirty.push(id);
        }
        let before = node.form.memory_bytes();
        if node.form.base() == Base::MediaCleared {
            // The image was read only for its accounting: the leaf itself does not change, and takes no more
            // memory.
            let mapped = (0..).zip(entries.iter()).filter(|(_, e)| !e.is_unmapped());
            mapped.for_each(|(slot, e)| release(slot, *e));
            node.form.complete();
        } else {
            for (slot, entry) in node.form.changes() {
                let old = std::mem::replace(&mut entries[usize::from(slot)], entry);
                if !old.is_unmapped() {
                    release(slot.into(), old);
                }
            }
            node.form = Form::of(entries);
        }
        let after = node.form.memory_bytes();
        self.memory_bytes = self.memory_bytes + after - before;
        if node.dirty {
            self.dirty_bytes = self.dirty_bytes + after - before;
        }
        self.overlays -= 1;
        self.hold_parent(id);
    }

    /// Drops clean nodes until the cache is within its budget, or none is left to drop (second chance).
    pub(crate) fn evict(&mut self) {
        // Bounded: if nearly all nodes are dirty, only a checkpoint helps.
        let mut steps = EVICTION_STEPS_MAX.min(self.nodes.len() * 2);
        while self.memory_bytes > self.budget_bytes && steps > 0 {
            steps -= 1;
            self.hand = (self.hand + 1) % self.nodes.len();
            let Some(node) = &mut self.nodes[self.hand] else { continue };
            let is_kept = node.children > 0 || node.id == ROOT || node.arrival + NEWEST_KEPT > self.arrivals;
            if node.dirty || is_kept {
                continue;
            }
            if std::mem::take(&mut node.referenced) {
                continue;
            }
            let id = node.id;
            assert!(node.form.is_complete(), "changes are dirty");
            self.memory_bytes -= node.form.memory_bytes();
            self.nodes[self.hand] = None;
            if let Some((parent, _)) = id.parent()
                && let Some(parent) = self.node_mut(parent)
            {
                parent.children -= 1;
            }
            self.vacant.push(self.hand as u32);
            self.index.remove(&id);
            self.evictions_count += 1;
        }
    }

    /// Begins a checkpoint's cut. Returns the nodes to write, in rising order. Some may not be dirty any
    /// more: see [`Map::belongs_to_cut`].
    pub(crate) fn freeze(&mut self) -> Vec<NodeId> {
        assert!(self.frozen.is_none());
        self.round += 1;
        self.frozen = Some(Frozen::default());
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        self.leaves_at_cut = dirty.len() as u64;
        dirty
    }

    /// Returns whether a node has changes from before the cut that are not written yet.
    pub(crate) fn belongs_to_cut(&self, id: NodeId) -> bool {
        self.frozen.as_ref().is_some_and(|f| f.contains_key(&id))
            || self.node(id).is_some_and(|n| n.dirty && n.round < self.round)
    }

    /// Ends a checkpoint.
    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
        self.leaves_at_cut = 0;
    }

    /// Gives a checkpoint up. The nodes that it has not written belong to the next one, as they are then.
    pub(crate) fn give_up_cut(&mut self, unwritten: impl Iterator<Item = NodeId>) {
        self.dirty.extend(unwritten);
        self.thaw();
    }

    /// Returns whether any block still has this record, whose first block is `first`.
    pub(crate) fn has_any(&self, first: u64, entry: &Entry) -> bool {
        let Some(node) = self.node(NodeId::leaf_of(first)) else { return false };
        let slot = (first % NODE_ENTRIES as u64) as usize;
        (slot..slot + entry.blocks() as usize).any(|slot| node.form.get(slot) == Slot::Known(*entry))
    }

    /// Returns a node as it was at the cut.
    pub(crate) fn at_cut(&self, id: NodeId) -> Option<&Form> {
        let frozen = self.frozen.as_ref().and_then(|f| f.get(&id));
        frozen.or_else(|| self.node(id).map(|n| &n.form))
    }

    /// A checkpoint wrote a complete node: its parent points to the new image. Returns the previous image.
    pub(crate) fn image_written(&mut self, id: NodeId, image: Entry) -> Entry {
        self.written(id);
        let Some((parent, slot)) = id.parent() else { return std::mem::replace(&mut self.root_image, image) };
        let round = self.round;
        let Some(&at) = self.index.get(&parent) else {
            unreachable!("the parent of a complete node is in memory")
        };
        let Some(node) = &mut self.nodes[at as usize] else { unreachable!("a node in the index") };
        if image.is_unmapped() && node.form.get(slot) == Slot::Known(image) {
            // Filled and emptied between two checkpoints. Nothing changes above it.
            return image;
        }
        node.referenced = true;
        let before = node.form.memory_bytes();
        let old = node.form.set(slot, image);
        let after = node.form.memory_bytes();
        self.memory_bytes = self.memory_bytes + after - before;
        if node.dirty {
            self.dirty_bytes = self.dirty_bytes + after - before;
        } else {
            node.dirty = true;
            node.round = round.saturating_sub(1);
            self.dirty_bytes += after;
        }
        old
    }

    /// The log holds the state of the node at the cut, which is kept no longer. Returns the node if it is
    /// dirty and has not changed since the cut.
    fn written_at_cut(&mut self, id: NodeId) -> Option<&mut Node> {
        let round = self.round;
        if let Some(frozen) = &mut self.frozen {
            frozen.remove(&id);
        }
        self.node_mut(id).filter(|node| node.dirty && node.round < round)
    }

    /// The log holds the state of the node at the cut. It is clean unless it changed since.
    fn written(&mut self, id: NodeId) {
        if let Some(node) = self.written_at_cut(id) {
            node.dirty = false;
            let bytes = node.form.memory_bytes();
            self.dirty_bytes -= bytes;
        }
    }

    /// Returns whether a checkpoint's cut is kept.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Part of [`Core::broken_invariant`](crate::state::core::Core::broken_invariant).
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        first_broken(&[
            (self.dirty_bytes <= self.memory_bytes, "more of the map is dirty than is in memory"),
            (self.index.len() + self.vacant.len() == self.nodes.len(), "a node is not in the index"),
            (self.overlays <= self.index.len() as u64, "there are more overlays than nodes"),
        ])
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Upper bound of the bytes to write all changed nodes and their ancestors. `written_bytes` is what is
    /// written already.
    pub(crate) fn write_estimate_bytes(&self, written_bytes: u64) -> u64 {
        // Overlays lie under no node.
        let changed = (self.dirty.len() as u64 + self.leaves_at_cut).saturating_sub(self.overlays);
        self.dirty_bytes + ancestors_bytes(self.upper_nodes, changed, self.leaves_max(written_bytes))
    }

    /// Upper bound of the bytes of all nodes above the leaves.
    pub(crate) fn upper_estimate_bytes(&self, written_bytes: u64) -> u64 {
        let leaves = self.leaves_max(written_bytes);
        ancestors_bytes(self.upper_nodes, leaves, leaves)
    }

    fn leaves_max(&self, written_bytes: u64) -> u64 {
        let mapped = self.live_blocks.saturating_add(self.fill_blocks);
        leaves_max(mapped, written_bytes.saturating_add(self.dirty_bytes))
    }

    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Changes the budget. Nodes are dropped as others come in, until the cache is within it.
    pub(crate) fn set_budget_bytes(&mut self, bytes: u64) {
        self.budget_bytes = bytes.max(BUDGET_MIN_BYTES);
    }

    pub(crate) fn over_budget(&self) -> bool {
        self.memory_bytes > self.budget_bytes
    }

    /// The form of a node in memory.
    pub(crate) fn form(&self, id: NodeId) -> Option<&Form> {
        self.node(id).map(|n| &n.form)
    }

    /// Marks a node for rewriting, so that its image moves. It must be in memory and complete.
    pub(crate) fn rewrite(&mut self, id: NodeId) {
        if let Some(&at) = self.index.get(&id) {
            self.mark_dirty(at as usize);
        }
    }

    /// Returns whether `image` is the present place of a node's image. Returns what must be loaded to know
    /// that.
    pub(crate) fn has_image(&self, id: NodeId, image: Entry) -> Result<bool, Missing> {
        match self.image(id) {
            Image::At(at) => Ok(at == image),
            Image::None => Ok(false),
            Image::Behind(missing) => Err(missing),
        }
    }

    /// Ids of all nodes in memory.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.iter().flatten().map(|n| n.id).collect()
    }
}
