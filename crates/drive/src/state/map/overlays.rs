//! Overlays: changes to leaves that are not loaded. They are written, loaded at an opening, and completed.

use layout::{Entry, NodeId};

use super::{Image, Map, Missing};
use crate::state::node::{Base, Form};

impl Map {
    /// The changes of a leaf were written as an overlay. It stays dirty: the next checkpoint writes it again,
    /// or whole if it is loaded by then.
    pub(crate) fn overlay_written(&mut self, id: NodeId) {
        let round = self.round;
        if let Some(node) = self.written_at_cut(id) {
            node.round = round;
            self.dirty.push(id);
        }
    }

    /// Loads an overlay of a checkpoint, at an opening.
    pub(crate) fn load_overlay(&mut self, leaf: NodeId, cleared: bool, pairs: Vec<(u16, Entry)>) {
        let at = self.insert(leaf, Form::of_overlay(pairs, cleared));
        self.mark_dirty(at);
    }

    /// Returns leaves with changes over an image that is not loaded, which are worth loading, in rising
    /// order: up to `cleared_max` that were cleared (they take no more memory when loaded, and may owe most),
    /// and up to `max` others, those with most changes first. Skips those to be passed over.
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

    /// A leaf is known to have no image: its changes are everything.
    pub(super) fn complete_without_image(&mut self, leaf: NodeId) {
        let Some(&at) = self.index.get(&leaf) else { return };
        let Some(node) = &mut self.nodes[at as usize] else { unreachable!("a node in the index") };
        if node.form.is_complete() {
            return;
        }
        let before = node.form.memory_bytes();
        node.form.complete();
        let after = node.form.memory_bytes();
        self.memory_bytes = self.memory_bytes + after - before;
        if node.dirty {
            self.dirty_bytes = self.dirty_bytes + after - before;
        }
        self.overlays -= 1;
        self.insert_parents(leaf);
        self.hold_parent(leaf);
    }

    /// Returns what must be loaded to know whether a leaf's changes lie over an image. Completes the leaf if
    /// they do not.
    pub(crate) fn overlay_missing(&mut self, leaf: NodeId) -> Option<Missing> {
        self.overlay_image(leaf).filter(|missing| missing.id != leaf)
    }

    /// Returns what must be loaded to complete a leaf with changes: the leaf itself or an ancestor. Completes
    /// it if it has no image.
    pub(crate) fn overlay_image(&mut self, leaf: NodeId) -> Option<Missing> {
        if self.node(leaf).is_none_or(|node| node.form.is_complete()) {
            return None;
        }
        match self.image(leaf) {
            Image::At(image) => Some(Missing { id: leaf, image }),
            Image::Behind(missing) => Some(missing),
            Image::None => {
                self.complete_without_image(leaf);
                None
            }
        }
    }

    pub(crate) fn overlays(&self) -> u64 {
        self.overlays
    }
}
