//! Random places of stored data, and a sample read from them: for training if too little was written.

use std::sync::Arc;

use layout::node::ROOT_LEVEL;
use layout::{BLOCK_BYTES, LEAF_LEVEL, NODE_ENTRIES, NodeId, ROOT};
use media::Media;

use crate::error::Error;
use crate::shared::{Shared, yield_now};
use crate::state::node::Slot;
use crate::state::sample::Random;

/// Adjacent blocks read together, at a multiple of their number: a read of the medium costs more than a
/// block.
const EXTENT_BLOCKS: usize = 2;
/// Most nodes above the leaves that are examined. Each maps 1 GiB.
const PARENTS_MAX: usize = 256;

/// Adjacent blocks of a drawn leaf, with data that compresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledExtent {
    pub(crate) first: u64,
    pub(crate) blocks: usize,
    /// Number of blocks of its leaf that it represents.
    pub(crate) weight: f64,
}

impl<M: Media> Shared<M> {
    /// Returns up to `most` blocks, read from places all over the mapped data. What cannot be read is left
    /// out.
    pub(crate) async fn live_sample(&self, most: usize, random: &mut Random) -> Vec<Arc<[u8]>> {
        let mut sample = Vec::new();
        for place in self.places(most.div_ceil(EXTENT_BLOCKS), EXTENT_BLOCKS, random).await {
            if sample.len() + place.blocks > most {
                break;
            }
            let mut bytes = vec![0; place.blocks * BLOCK_BYTES];
            if self.read_span(place.first * BLOCK_BYTES as u64, &mut bytes).await.is_ok() {
                sample.extend(bytes.chunks_exact(BLOCK_BYTES).map(Arc::from));
            }
            // Reading decompresses. Other requests run in between.
            yield_now().await;
        }
        sample
    }

    /// Returns at most `most` places all over the mapped data, each of up to `extent_blocks` blocks. Leaves
    /// are drawn at random, and in each as many places as needed for the number. Of more than 256 GiB with
    /// data, 256 are drawn first. Blocks that are fills or stored uncompressed are left out.
    pub(crate) async fn places(
        &self,
        most: usize,
        extent_blocks: usize,
        random: &mut Random,
    ) -> Vec<SampledExtent> {
        let mut leaves = self.some_leaves(random).await;
        random.shuffle(&mut leaves);
        leaves.truncate(most);
        let mut found: Vec<Vec<(u64, usize)>> = Vec::new();
        for leaf in leaves {
            let Ok(mut extents) = self.extents_of(leaf, extent_blocks).await else { continue };
            random.shuffle(&mut extents);
            // Of more leaves no more are wanted, and of fewer not so many that they take much memory.
            extents.truncate(most);
            found.push(extents);
        }
        // The same number of each leaf. If a leaf has fewer, others make up for it.
        let mut each = 0;
        let taken = |each: usize| found.iter().map(|extents| extents.len().min(each)).sum::<usize>();
        while taken(each) < most && found.iter().any(|extents| extents.len() > each) {
            each += 1;
        }
        let mut places = Vec::new();
        for extents in &found {
            let weight = extents.len() as f64 / extents.len().min(each).max(1) as f64;
            let some = extents.iter().take(each);
            places.extend(some.map(|&(first, blocks)| SampledExtent { first, blocks, weight }));
        }
        random.shuffle(&mut places);
        places.truncate(most);
        places
    }

    /// Returns leaves that map something of the host's: all, or those below some of their parents.
    async fn some_leaves(&self, random: &mut Random) -> Vec<NodeId> {
        let blocks = self.core().blocks();
        let mut nodes = vec![ROOT];
        for level in (LEAF_LEVEL..ROOT_LEVEL).rev() {
            let mut below = Vec::new();
            random.shuffle(&mut nodes);
            for node in nodes.into_iter().take(PARENTS_MAX) {
                // What cannot be read is not used.
                below.extend(self.children(node).await.unwrap_or_default());
            }
            let span = (NODE_ENTRIES as u64) << (9 * u32::from(level));
            below.retain(|node| node.index.checked_mul(span).is_some_and(|first| first < blocks));
            nodes = below;
        }
        // Data written since the last checkpoint may not have parents yet.
        nodes.extend(self.core().map.ids().into_iter().filter(|id| id.level == LEAF_LEVEL));
        nodes.retain(|leaf| leaf.index * (NODE_ENTRIES as u64) < blocks);
        nodes.sort_unstable_by_key(|leaf| leaf.index);
        nodes.dedup();
        nodes
    }

    /// Returns the nodes below a node.
    async fn children(&self, id: NodeId) -> Result<Vec<NodeId>, Error> {
        loop {
            let missing = {
                let mut core = self.core();
                match core.map.complete(id) {
                    Ok(false) => return Ok(Vec::new()),
                    Ok(true) => {
                        let Some(form) = core.map.form(id) else { return Ok(Vec::new()) };
                        let mapped = |slot: &usize| match form.get(*slot) {
                            Slot::Known(entry) => !entry.is_unmapped(),
                            Slot::Unknown => false,
                        };
                        let child = |slot: usize| NodeId {
                            level: id.level - 1,
                            index: id.index * NODE_ENTRIES as u64 + slot as u64,
                        };
                        return Ok((0..NODE_ENTRIES).filter(mapped).map(child).collect());
                    }
                    Err(missing) => missing,
                }
            };
            self.load(missing).await?;
        }
    }

    /// Returns where a leaf has data that compresses: first blocks, and how many.
    async fn extents_of(&self, leaf: NodeId, extent_blocks: usize) -> Result<Vec<(u64, usize)>, Error> {
        let first = leaf.index * NODE_ENTRIES as u64;
        let count = (self.core().blocks() - first).min(NODE_ENTRIES as u64) as usize;
        let mut useful = Vec::with_capacity(count);
        loop {
            useful.clear();
            let looked = self.core().map.lookup(first, count, |_, entry| {
                useful.push(entry.is_record() && !entry.is_raw());
            });
            match looked {
                Ok(()) => break,
                Err(missing) => self.load(missing).await?,
            }
        }
        let mut places = Vec::new();
        for (i, extent) in useful.chunks(extent_blocks).enumerate() {
            let at = i * extent_blocks;
            let begin = extent.iter().position(|useful| *useful);
            if let Some(begin) = begin {
                let len = extent[begin..].iter().take_while(|useful| **useful).count();
                places.push((first + (at + begin) as u64, len));
            }
        }
        Ok(places)
    }
}
