//! A walk over the whole map, in windows.

use std::collections::BTreeSet;

use futures::stream::StreamExt;
use layout::{Entry, LEAF_LEVEL, NODE_ENTRIES, NodeId, ROOT};
use media::Media;

use super::report::{Fault, Faults};
use super::runs::Fetched;
use crate::error::Error;
use crate::medium::load::{Bounds, Fetch, try_decode_node};
use crate::medium::record_fault::RecordFault;
use crate::shared::Shared;
use crate::state::log::InMemory;
use crate::state::node::{Base, Form};

/// Leaves that are read at once, sorted by their places. About 1.5 MiB of memory.
const WINDOW_NODES: usize = 64 * 1024;
/// The same for nodes above the leaves: their children fill about a window.
const WINDOW_PARENTS: usize = WINDOW_NODES / NODE_ENTRIES;
/// Nodes looked up in one critical section.
const NODES_A_LOOK: usize = 64;

/// Finding of a walk over the map.
pub(super) enum Met {
    /// The effective entry of a leaf for a block.
    Block(u64, Entry),
    /// A record that counts as live although a change has replaced it (accounted once the leaf is loaded).
    Owed(u64, Entry),
    /// A node's image.
    Node(Entry),
}

/// A node that an entry points to.
#[derive(Clone, Copy)]
struct NodeRef {
    id: NodeId,
    image: Entry,
}

/// All entries of a node.
type Entries = Box<[Entry; NODE_ENTRIES]>;

/// Knowledge about a node in memory.
enum NodeInMemory {
    Known(Entries),
    /// Its image is needed too.
    Image {
        fetch: Fetch,
        memory: Option<InMemory>,
        pairs: Vec<(u16, Entry)>,
        /// Everything in the image was trimmed.
        cleared: bool,
    },
}

pub(super) struct Walk<'a, M, F> {
    shared: &'a Shared<M>,
    bounds: Bounds,
    faults: &'a mut Faults,
    meet: F,
    /// Nodes found and not yet examined, by level.
    waiting: [Vec<NodeRef>; 4],
    /// Number of nodes walked, by level.
    pub(super) counts: [u64; 4],
}

impl<'a, M: Media, F: FnMut(Met)> Walk<'a, M, F> {
    pub(super) fn new(shared: &'a Shared<M>, faults: &'a mut Faults, meet: F) -> Self {
        let bounds = Bounds::of(&shared.superblock());
        Walk { shared, bounds, faults, meet, waiting: Default::default(), counts: [0; 4] }
    }

    /// Walks the whole map. Nodes that cannot be read are faults; what they map is not found. `walked` gets
    /// the number of nodes after each window.
    pub(super) async fn run(&mut self, mut walked: impl FnMut(u64)) -> Result<(), Error> {
        let (root, ids) = {
            let core = self.shared.core();
            (core.map.root_image(), core.map.ids())
        };
        // Nodes in memory to which no image leads, once all others are removed: leaves that changed, and
        // while a checkpoint is being written also nodes above, which lead to what it wrote. The highest go
        // first.
        let mut loose: BTreeSet<NodeId> = ids.into_iter().collect();
        self.waiting[usize::from(ROOT.level)].push(NodeRef { id: ROOT, image: root });
        loop {
            let highest = |loose: &mut BTreeSet<NodeId>| {
                let level = loose.last()?.level;
                let rest = loose.split_off(&NodeId { level, index: 0 }).into_iter();
                Some(rest.map(|id| NodeRef { id, image: Entry::UNMAPPED }).collect())
            };
            let Some(window) = self.next_window().or_else(|| highest(&mut loose)) else { return Ok(()) };
            for found in &window {
                loose.remove(&found.id);
            }
            self.window(window).await?;
            walked(self.counts.iter().sum());
        }
    }

    /// Returns the nodes to continue with: leaves as soon as there are many, so that they never accumulate.
    fn next_window(&mut self) -> Option<Vec<NodeRef>> {
        let full = self.waiting.iter().position(|level| level.len() >= WINDOW_NODES);
        let level = full.or_else(|| self.waiting.iter().rposition(|level| !level.is_empty()))?;
        let most = if level == usize::from(LEAF_LEVEL) { WINDOW_NODES } else { WINDOW_PARENTS };
        let waiting = &mut self.waiting[level];
        Some(waiting.split_off(waiting.len().saturating_sub(most)))
    }

    async fn window(&mut self, mut window: Vec<NodeRef>) -> Result<(), Error> {
        let mut on_media = Vec::new();
        for some in window.chunks(NODES_A_LOOK) {
            let core = self.shared.core();
            let known = |id| core.map.form(id).is_some_and(Form::is_complete);
            on_media.extend(some.iter().filter(|found| found.image.is_record() && !known(found.id)).copied());
        }
        window.retain({
            let mut at = 0;
            let on_media = &on_media;
            move |found| {
                let other = on_media.get(at).is_none_or(|next| next.id != found.id);
                at += usize::from(!other);
                other
            }
        });
        for found in window {
            self.node(found, None).await?;
        }
        on_media.sort_unstable_by_key(|found| found.image.position_bytes());
        let shared = self.shared;
        let geometry = self.bounds.geometry;
        let images = on_media.iter().map(|found| found.image);
        let mut runs = std::pin::pin!(shared.fetch_all(images, &geometry));
        while let Some(fetched) = runs.next().await {
            for found in &on_media[fetched.items.clone()] {
                self.node(*found, Some(&fetched)).await?;
            }
        }
        Ok(())
    }

    /// Handles a node and its entries. Its children are queued.
    async fn node(&mut self, found: NodeRef, fetched: Option<&Fetched>) -> Result<(), Error> {
        let NodeRef { id, image } = found;
        self.counts[usize::from(id.level)] += 1;
        if image.is_record() {
            (self.meet)(Met::Node(image));
        }
        let entries = match self.shared.in_memory(id, image) {
            NodeInMemory::Known(entries) => entries,
            NodeInMemory::Image { fetch, memory, pairs, cleared } => {
                let decoded = self.shared.image(id, &fetch, memory, fetched, &self.bounds).await;
                match decoded {
                    Ok(mut entries) => {
                        self.owe(id, &mut entries, pairs, cleared);
                        entries
                    }
                    // Nothing needs it any more, except the counts of what it led to.
                    Err(_) if cleared || pairs.len() == NODE_ENTRIES => {
                        let mut entries = Box::new([Entry::UNMAPPED; NODE_ENTRIES]);
                        self.owe(id, &mut entries, pairs, false);
                        entries
                    }
                    Err(why) => {
                        let position = image.position_bytes();
                        let blocks = self.shared.core().blocks();
                        let fault =
                            Fault::of_node(&self.bounds.geometry, blocks, id, position, &why.to_string());
                        self.faults.push(fault);
                        return Ok(());
                    }
                }
            }
        };
        let mapped = entries.iter().enumerate().filter(|(_, entry)| !entry.is_unmapped());
        if id.level == LEAF_LEVEL {
            let first = id.index * NODE_ENTRIES as u64;
            mapped.for_each(|(slot, entry)| (self.meet)(Met::Block(first + slot as u64, *entry)));
        } else {
            let children = mapped.map(|(slot, entry)| NodeRef { id: id.child(slot), image: *entry });
            self.waiting[usize::from(id.level) - 1].extend(children);
        }
        Ok(())
    }

    /// Applies changes to an image, and handles what they replace.
    fn owe(&mut self, leaf: NodeId, entries: &mut Entries, pairs: Vec<(u16, Entry)>, cleared: bool) {
        let first = leaf.index * NODE_ENTRIES as u64;
        let mut owe = |slot: u64, old: Entry| {
            if !old.is_unmapped() {
                (self.meet)(Met::Owed(first + slot, old));
            }
        };
        if cleared {
            (0..).zip(entries.iter_mut()).for_each(|(slot, entry)| owe(slot, std::mem::take(entry)));
        }
        for (slot, entry) in pairs {
            owe(slot.into(), std::mem::replace(&mut entries[usize::from(slot)], entry));
        }
    }
}

impl<M: Media> Shared<M> {
    /// Returns what memory knows about a node.
    fn in_memory(&self, id: NodeId, image: Entry) -> NodeInMemory {
        let mut core = self.core();
        let (pairs, cleared) = match core.map.form(id) {
            Some(Form::Page(entries)) => return NodeInMemory::Known(entries.clone()),
            Some(form) if form.is_complete() || !image.is_record() => {
                let mut entries = Box::new([Entry::UNMAPPED; NODE_ENTRIES]);
                form.changes().for_each(|(slot, entry)| entries[usize::from(slot)] = entry);
                return NodeInMemory::Known(entries);
            }
            Some(form) => (form.changes().collect(), form.base() == Base::MediaCleared),
            None if !image.is_record() => {
                return NodeInMemory::Known(Box::new([Entry::UNMAPPED; NODE_ENTRIES]));
            }
            None => (Vec::new(), false),
        };
        NodeInMemory::Image { fetch: core.fetch(image), memory: core.log.in_memory(image), pairs, cleared }
    }

    /// Returns a node's image.
    async fn image(
        &self,
        id: NodeId,
        fetch: &Fetch,
        memory: Option<InMemory>,
        fetched: Option<&Fetched>,
        bounds: &Bounds,
    ) -> Result<Entries, RecordFault> {
        let (position, len) = (fetch.entry.position_bytes(), fetch.entry.len_bytes());
        if let Some(memory) = memory {
            return try_decode_node(id, memory.bytes(len), fetch.mask, bounds);
        }
        // Its pack may have been on the way to the medium when the run was read: what is wrong is read again.
        let bytes = fetched.and_then(|fetched| fetched.bytes_of(fetch.entry));
        if let Some(Ok(entries)) = bytes.map(|bytes| try_decode_node(id, bytes, fetch.mask, bounds)) {
            return Ok(entries);
        }
        let decode = |buf: &[u8]| try_decode_node(id, buf, fetch.mask, bounds);
        let (buf, at) = self.read_range(position, len).await?;
        let decoded = decode(&buf[at..at + len]);
        match decoded {
            Err(why) => match self.reread(position, len).await {
                Some((buf, at)) => decode(&buf[at..at + len]),
                None => Err(why),
            },
            decoded => decoded,
        }
    }
}
