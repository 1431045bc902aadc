//! Overlays: changes to leaves that are not loaded, written, taken over and made whole.

use layout::{Entry, NodeId};

use super::{Image, Map, Missing};
use crate::state::node::{Base, Form};

impl Map {
    /// The changes of a leaf were written as an overlay: it stays dirty, for the next checkpoint to write again or,
    /// once loaded, to write whole.
    pub(crate) fn overlay_written(&mut self, id: NodeId) {
        let round = self.round;
        if let Some(frozen) = &mut self.frozen {
            frozen.remove(&id);
        }
        if let Some(node) = self.node_mut(id)
            && node.dirty
            && node.round < round
        {
            node.round = round;
            self.dirty.push(id);
        }
    }

    /// Takes over an overlay of a checkpoint, at opening.
    pub(crate) fn load_overlay(&mut self, leaf: NodeId, cleared: bool, pairs: Vec<(u16, Entry)>) {
        let at = self.insert(leaf, Form::of_overlay(pairs, cleared));
        self.mark_dirty(at);
    }

    /// Leaves with changes over an image not loaded that are worth loading, in rising order: up to `cleared_max` that
    /// were cleared (they take no more memory when loaded, and may owe most), and up to `max` others, those with most
    /// changes first. Not those to be passed over.
    pub(crate) fn overlays_to_load(
        &self,
        cleared_max: usize,
        max: usize,
        passes_over: impl Fn(NodeId) -> bool + Copy,
    ) -> Vec<NodeId> {
        let of = |base: Base| {
            let nodes = self.nodes.iter().flatten();
            nodes.filter(move |node| node.form.base() == base && !passes_over(node.id))
        };
        let mut leaves: Vec<NodeId> = of(Base::MediaCleared).map(|node| node.id).take(cleared_max).collect();
        if max > 0 {
            let mut others: Vec<_> =
                of(Base::Media).map(|node| (node.form.changes().count(), node.id)).collect();
            if others.len() > max {
                others.select_nth_unstable_by(max, |a, b| b.cmp(a));
                others.truncate(max);
            }
            leaves.extend(others.into_iter().map(|(_, leaf)| leaf));
        }
        leaves.sort_unstable();
        leaves
    }

    /// A leaf is known by now to have no image: the changes to it are everything.
    pub(super) fn settle(&mut self, leaf: NodeId) {
        let Some(&at) = self.index.get(&leaf) else { return };
        let Some(node) = &mut self.nodes[at as usize] else { unreachable!("a node in the index") };
        if node.form.is_complete() {
            return;
        }
        let before = node.form.memory_bytes();
        node.form.settle();
        let after = node.form.memory_bytes();
        self.memory_bytes = self.memory_bytes + after - before;
        if node.dirty {
            self.dirty_bytes = self.dirty_bytes + after - before;
        }
        self.overlays -= 1;
        self.insert_parents(leaf);
        self.hold_parent(leaf);
    }

    /// What is to be loaded before it is known whether a leaf's changes lie over an image; settles it if they do not.
    pub(crate) fn overlay_missing(&mut self, leaf: NodeId) -> Option<Missing> {
        self.overlay_image(leaf).filter(|missing| missing.id != leaf)
    }

    /// What is to be loaded to make a leaf with changes whole: itself or an ancestor. Settles it if it has no image.
    pub(crate) fn overlay_image(&mut self, leaf: NodeId) -> Option<Missing> {
        if self.node(leaf).is_none_or(|node| node.form.is_complete()) {
            return None;
        }
        match self.image(leaf) {
            Image::At(image) => Some(Missing { id: leaf, image }),
            Image::Behind(missing) => Some(missing),
            Image::None => {
                self.settle(leaf);
                None
            }
        }
    }

    pub(crate) fn overlays(&self) -> u64 {
        self.overlays
    }
}
