//! Checking every structure of a drive.
//!
//! The map is walked as it lies on the medium, with the changes in memory on top; what it points to is held against the
//! usage table. Memory stays bounded: records are compared segment by segment in passes.

use std::collections::HashMap;

use layout::{BLOCK_BYTES, Entry, LEAF_LEVEL, NODE_ENTRIES, NodeId, ROOT};
use media::Media;

use crate::error::Error;
use crate::load::{Bounds, decode_node};
use crate::node::{Base, Form};
use crate::read::verify_block;
use crate::segments::State;
use crate::shared::{Drive, Shared};

/// Faults listed at most: a badly damaged drive would fill the screen.
const FAULTS_MAX: usize = 1000;
/// Extents held in memory in one pass.
const EXTENTS_A_PASS: u64 = 4 << 20;

/// What a walk over the map meets.
enum Met {
    /// A leaf's entry for a block, in effect.
    Block(u64, Entry),
    /// A record that is counted as live although a change has replaced it (accounted once the leaf is loaded).
    Owed(Entry),
    /// A node's image.
    Node(Entry),
}

impl<M: Media> Drive<M> {
    /// Checks that the usage table is the sum of the live records, that no two map entries overlap, that free segments
    /// hold nothing live, and that every map node can be read; `deep` also reads, verifies and decompresses every record.
    /// Answers the faults found, a line each. The drive must be quiet.
    pub async fn check(&self, deep: bool) -> Result<Vec<String>, Error> {
        let shared = &self.0;
        let mut faults = Vec::new();
        let mut live: HashMap<u32, (u64, u64)> = HashMap::new();
        let (mut blocks, mut fills) = (0, 0);
        let geometry = shared.superblock().geometry;
        let mut outside = Vec::new();
        self.walk(&mut faults, |met| {
            let entry = match met {
                Met::Block(_, entry) | Met::Owed(entry) => {
                    blocks += u64::from(entry.is_record());
                    fills += u64::from(entry.fill_word().is_some());
                    entry
                }
                Met::Node(entry) => entry,
            };
            if entry.is_record() {
                match geometry.locate(entry.position_bytes()) {
                    Some((segment, _)) => {
                        let sum = live.entry(segment).or_default();
                        sum.0 += u64::from(entry.units());
                        sum.1 += 1;
                    }
                    None => outside.push(format!("{entry:?} lies outside the segments")),
                }
            }
        })
        .await?;
        faults.append(&mut outside);
        self.compare_table(&live, blocks, fills, &mut faults);
        // Passes over ranges of segments that hold a bounded number of records each.
        let count = shared.core().segments.count();
        let mut from = 0;
        while from < count {
            let mut to = from;
            let mut sum = 0;
            while to < count && (sum == 0 || sum + live.get(&to).map_or(0, |l| l.1) <= EXTENTS_A_PASS) {
                sum += live.get(&to).map_or(0, |l| l.1);
                to += 1;
            }
            if sum > 0 {
                self.check_segments(from..to, deep, &mut faults).await?;
            }
            from = to;
        }
        faults.truncate(FAULTS_MAX);
        Ok(faults)
    }

    fn compare_table(
        &self,
        live: &HashMap<u32, (u64, u64)>,
        blocks: u64,
        fills: u64,
        faults: &mut Vec<String>,
    ) {
        let core = self.0.core();
        for segment in 0..core.segments.count() {
            let row = core.segments.get(segment);
            let found = live.get(&segment).map_or(0, |l| l.0);
            if found != u64::from(row.live_units) {
                faults.push(format!(
                    "segment {segment} ({:?}): the table says {} live units, the map points to {found}",
                    row.state, row.live_units
                ));
            }
            if found > 0 && matches!(row.state, State::Free | State::Promised) {
                faults.push(format!("segment {segment} is free but holds {found} live units"));
            }
        }
        if blocks != core.map.live_blocks || fills != core.map.fill_blocks {
            faults.push(format!(
                "{} blocks and {} fills are counted, the map has {blocks} and {fills}",
                core.map.live_blocks, core.map.fill_blocks
            ));
        }
    }

    /// No two records in these segments overlap; with `deep` each is what the map says.
    async fn check_segments(
        &self,
        segments: std::ops::Range<u32>,
        deep: bool,
        faults: &mut Vec<String>,
    ) -> Result<(), Error> {
        let geometry = self.0.superblock().geometry;
        let mut extents: Vec<(u64, u32, u64)> = Vec::new();
        let inside =
            |e: Entry| geometry.locate(e.position_bytes()).is_some_and(|(s, _)| segments.contains(&s));
        self.walk(&mut Vec::new(), |met| match met {
            Met::Block(block, entry) if entry.is_record() && inside(entry) => {
                extents.push((entry.position_bytes(), entry.len_bytes() as u32, block));
            }
            Met::Node(entry) if inside(entry) => {
                extents.push((entry.position_bytes(), entry.len_bytes() as u32, u64::MAX));
            }
            _ => {}
        })
        .await?;
        extents.sort_unstable();
        for pair in extents.windows(2) {
            if pair[0].0 + u64::from(pair[0].1) > pair[1].0 {
                faults.push(format!(
                    "records at {:#x} (block {}) and {:#x} (block {}) overlap",
                    pair[0].0, pair[0].2, pair[1].0, pair[1].2
                ));
            }
        }
        if deep {
            for (position, len, block) in extents {
                if block == u64::MAX || faults.len() >= FAULTS_MAX {
                    continue;
                }
                if let Err(error) = self.0.verify(block, Entry::record(position, len as usize)).await {
                    faults.push(error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Walks the whole map. Nodes that cannot be read are faults; what they map is not met.
    async fn walk(&self, faults: &mut Vec<String>, mut meet: impl FnMut(Met)) -> Result<(), Error> {
        let root = self.0.core().map.root_image();
        let mut stack = vec![(ROOT, root)];
        let mut seen = std::collections::HashSet::new();
        while let Some((id, image)) = stack.pop() {
            if image.is_record() {
                meet(Met::Node(image));
            }
            if id.level == LEAF_LEVEL {
                seen.insert(id.index);
            }
            let entries = match self.0.whole(id, image, &mut meet).await {
                Ok(entries) => entries,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            for (slot, entry) in entries.iter().enumerate().filter(|(_, e)| !e.is_unmapped()) {
                if id.level == LEAF_LEVEL {
                    meet(Met::Block(id.index * NODE_ENTRIES as u64 + slot as u64, *entry));
                } else {
                    stack.push((id.child(slot), *entry));
                }
            }
        }
        // Leaves in memory that no image leads to yet.
        let ids = self.0.core().map.ids();
        for id in ids.into_iter().filter(|id| id.level == LEAF_LEVEL && !seen.contains(&id.index)) {
            let entries = self.0.whole(id, Entry::UNMAPPED, &mut meet).await?;
            for (slot, entry) in entries.iter().enumerate().filter(|(_, e)| !e.is_unmapped()) {
                meet(Met::Block(id.index * NODE_ENTRIES as u64 + slot as u64, *entry));
            }
        }
        Ok(())
    }
}

impl<M: Media> Shared<M> {
    /// All entries of a node in effect; `meet` gets what changes have replaced and not yet accounted.
    async fn whole(
        &self,
        id: NodeId,
        image: Entry,
        meet: &mut impl FnMut(Met),
    ) -> Result<Box<[Entry; NODE_ENTRIES]>, Error> {
        let (form, fetch, memory, bounds) = {
            let core = self.core();
            let fetch = image.is_record().then(|| core.fetch(image));
            let memory = image.is_record().then(|| core.log.in_memory(image)).flatten();
            (core.map.form(id).cloned(), fetch, memory, Bounds::of(&core.superblock))
        };
        let (pairs, cleared) = match form {
            Some(Form::Page(entries)) => return Ok(entries),
            Some(Form::Uniform { entry, base: Base::Empty }) => return Ok(Box::new([entry; NODE_ENTRIES])),
            Some(Form::Sparse { pairs, base: Base::Empty }) => {
                let mut entries = Box::new([Entry::UNMAPPED; NODE_ENTRIES]);
                pairs.iter().for_each(|(slot, entry)| entries[usize::from(*slot)] = *entry);
                return Ok(entries);
            }
            Some(form) => (form.changes().collect(), form.base() == Base::MediaCleared),
            None => (Vec::new(), false),
        };
        let mut entries = match fetch {
            None => Box::new([Entry::UNMAPPED; NODE_ENTRIES]),
            Some(fetch) => {
                let (position, len) = (image.position_bytes(), image.len_bytes());
                match memory {
                    Some(memory) => decode_node(id, memory.bytes(len), fetch.mask, position, &bounds)?,
                    None => {
                        let (buf, at) = self.read_range(position, len).await?;
                        decode_node(id, &buf[at..at + len], fetch.mask, position, &bounds)?
                    }
                }
            }
        };
        if cleared {
            entries.iter_mut().filter(|e| !e.is_unmapped()).for_each(|e| meet(Met::Owed(std::mem::take(e))));
        }
        for (slot, entry) in pairs {
            let old = std::mem::replace(&mut entries[usize::from(slot)], entry);
            if !old.is_unmapped() {
                meet(Met::Owed(old));
            }
        }
        Ok(entries)
    }

    /// Reads and verifies one block's record.
    async fn verify(&self, block: u64, entry: Entry) -> Result<(), Error> {
        let (fetch, memory) = {
            let core = self.core();
            (core.fetch(entry), core.log.in_memory(entry))
        };
        debug_assert!(entry.len_bytes() < 16 * BLOCK_BYTES);
        match memory {
            Some(memory) => verify_block(block, memory.bytes(entry.len_bytes()), &fetch),
            None => {
                let (buf, at) = self.read_range(entry.position_bytes(), entry.len_bytes()).await?;
                verify_block(block, &buf[at..at + entry.len_bytes()], &fetch)
            }
        }
    }
}
