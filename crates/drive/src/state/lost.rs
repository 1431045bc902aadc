//! Map nodes that could not be loaded. Work that can do without them passes over what lies under them for a
//! while: a disk may take seconds to report that it cannot read, and nodes that can be loaded must have their
//! turn.

use std::collections::BTreeMap;

use layout::NodeId;

use crate::error::Error;

/// Ticks for which a node is passed over: after the first failure, and at most.
const TICKS: (u64, u64) = (10, 6000);
/// Most nodes remembered.
const NODES_MAX: usize = 4096;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    nodes: BTreeMap<NodeId, Failure>,
}

#[derive(Debug)]
struct Failure {
    until_tick: u64,
    ticks: u64,
    error: Error,
}

impl Lost {
    /// A node could not be loaded.
    pub(crate) fn failed(&mut self, node: NodeId, now: u64, error: &Error) {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&node) {
            return;
        }
        let before = self.nodes.get(&node).map_or(0, |failure| failure.ticks);
        // Several requests may have tried at once.
        if self.over(node, now).is_some() {
            return;
        }
        let ticks = (before * 2).clamp(TICKS.0, TICKS.1);
        self.nodes.insert(node, Failure { until_tick: now + ticks, ticks, error: error.clone() });
    }

    /// A node was loaded.
    pub(crate) fn found(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Returns why a leaf is to be passed over for now: it, or a node on the path to it, could not be loaded.
    pub(crate) fn over(&self, leaf: NodeId, now: u64) -> Option<&Error> {
        if self.nodes.is_empty() {
            return None;
        }
        let path = std::iter::successors(Some(leaf), |node| node.parent().map(|(parent, _)| parent));
        path.filter_map(|node| self.nodes.get(&node))
            .find(|failure| now < failure.until_tick)
            .map(|failure| &failure.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_under_a_lost_node_is_passed_over_for_a_while() {
        let leaf = NodeId::leaf_of(512 * 512 + 7);
        let (above, _) = leaf.parent().expect("a leaf has one");
        let other = NodeId::leaf_of(7);
        let error = Error::Io("EIO".into());
        let mut lost = Lost::default();
        assert!(lost.over(leaf, 0).is_none());
        lost.failed(above, 5, &error);
        assert_eq!((lost.over(leaf, 14).is_some(), lost.over(leaf, 15).is_some()), (true, false));
        assert!(lost.over(other, 5).is_none());
        lost.failed(above, 15, &error);
        lost.failed(above, 16, &error);
        assert_eq!((lost.over(leaf, 34).is_some(), lost.over(leaf, 35).is_some()), (true, false));
        lost.found(above);
        assert!(lost.over(leaf, 15).is_none());
    }
}
