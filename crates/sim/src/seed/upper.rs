//! A node of the map above the leaves becomes unreadable while the drive is in use. The drive still accepts
//! writes, also of whole blocks under the node. Its checkpoints succeed (otherwise the log would fill the
//! drive), and it can be opened again. Data that does not need the node is available throughout, and all
//! other data once the node can be read again.

use layout::node::{NODE_ENTRIES, ROOT_LEVEL, decode_node};
use layout::record::RECORD_HEADER_BYTES;
use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Checkpoint, Entry, Geometry, PAGE_BYTES, RecordHeader, Superblock};
use media::{IoBuf, Media};

use super::scattered::Written;
use super::{Run, Stop};
use crate::oracle::LifeEnd;
use crate::{Error, Subject};

/// Requests per round while the node cannot be read.
const REQUESTS: usize = 128;
/// Most rounds.
const ROUNDS_MAX: u64 = 4;
/// The map's memory for a round, in which each request may touch a different leaf: writes are refused when
/// changes take half of it.
const MAP_A_ROUND_BYTES: u64 = (4 * REQUESTS * 144) as u64;
/// The part of the budget that is for frames, and the map's least.
const FRAMES_BYTES: u64 = 64 << 10;
const MAP_BYTES_MIN: u64 = 64 << 10;
/// Least number of segments that must be available for new data.
const SEGMENTS_FREE_MIN: u64 = 8;
/// Checkpoints in a row, one of which must succeed.
const CHECKPOINTS_MAX: u32 = 4;
const PAGE: u64 = PAGE_BYTES as u64;

impl<S: Subject> Run<S> {
    /// Makes a node above the leaves unreadable, on a drive that was just opened.
    pub(super) fn lose_upper_node(&mut self, written: &mut Written) -> Result<(), Stop> {
        if self.is_short_of_room()? {
            return Ok(());
        }
        // Opening reads everything after the beginning of the last checkpoint, including nodes.
        for _ in 0..2 {
            self.attempt("checkpoint", |drive| async move { drive.checkpoint().await })?
                .map_err(|error| Stop::Failed(format!("checkpoint of a quiet drive failed: {error}")))?;
        }
        let Some((level, entry)) = self.find_upper_node()? else { return Ok(()) };
        let (from, to) = pages_of(entry);
        // After this, no part of the map is in memory.
        self.crash();
        self.open()?;
        self.trace(|| {
            format!("a node of level {level} at byte {:#x} cannot be read", entry.position_bytes())
        });
        self.count(if level == 1 {
            "upper: a node of level 1 lost"
        } else {
            "upper: a node of level 2 lost"
        });
        let slices = std::mem::take(&mut self.slices);
        self.unreadable = (from..to).map(|page| page * PAGE).collect();
        self.media.hide(&self.unreadable);
        // Changes under the node stay in memory.
        let map_bytes = self.config.map_budget_bytes.saturating_sub(FRAMES_BYTES).max(MAP_BYTES_MIN);
        let rounds_max = (map_bytes / MAP_A_ROUND_BYTES).clamp(1, ROUNDS_MAX);
        for _ in 0..1 + self.rng.below(rounds_max) {
            if self.is_short_of_room()? {
                break;
            }
            self.use_without_node(written)?;
            if self.rng.chance(1, 2) {
                self.crash();
                self.open()?;
                self.count("upper: opened without the node");
            }
        }
        self.slices = slices;
        self.unreadable.clear();
        self.media.hide(&[]);
        self.crash();
        self.open()?;
        self.read_back(LifeEnd::Crash)
    }

    /// Returns whether writers may have to wait for space, and so for a checkpoint or for cleaning that needs
    /// the node.
    fn is_short_of_room(&self) -> Result<bool, Stop> {
        let space = self.space()?;
        Ok(space.free_bytes + space.reclaimable_bytes < SEGMENTS_FREE_MIN * space.segment_bytes)
    }

    fn use_without_node(&mut self, written: &mut Written) -> Result<(), Stop> {
        for (_, answer) in self.write_scattered(written, REQUESTS)?.into_iter().flatten() {
            match answer {
                Ok(()) | Err(Error::NoSpace) => {}
                Err(error) => {
                    let space = self.space()?;
                    return Err(Stop::Failed(format!(
                        "a write of a whole block failed for a node that cannot be read ({space:?}): {error}"
                    )));
                }
            }
        }
        self.flush_quietly()?;
        let mut answer = Ok(());
        for _ in 0..CHECKPOINTS_MAX {
            answer = self.attempt("checkpoint", |drive| async move { drive.checkpoint().await })?;
            if answer.is_ok() {
                self.count("upper: checkpoint without the node");
                return Ok(());
            }
        }
        answer.map_err(|error| {
            Stop::Failed(format!("no checkpoint succeeds since a node of the map cannot be read: {error}"))
        })
    }

    /// Finds a node of level 1 or 2 in the newest checkpoint. Returns its level and entry.
    fn find_upper_node(&mut self) -> Result<Option<(u8, Entry)>, Stop> {
        let copy = self.rng.index(SUPERBLOCK_COPIES);
        let page = self.read_raw(Geometry::superblock_offset(copy), PAGE)?;
        let Ok(superblock) = Superblock::decode(&page) else { return Ok(None) };
        let geometry = superblock.geometry;
        let len = Checkpoint::encoded_len(geometry.segments() as usize) as u64;
        let mut newest: Option<Checkpoint> = None;
        for slot in 0..2 {
            let bytes = self.read_raw(geometry.checkpoint_offset(slot, 0), len)?;
            if let Ok(checkpoint) = Checkpoint::decode(&bytes)
                && newest.as_ref().is_none_or(|newest| newest.number < checkpoint.number)
            {
                newest = Some(checkpoint);
            }
        }
        let Some(root) = newest.map(|checkpoint| checkpoint.root) else { return Ok(None) };
        let mut entry = root;
        let wanted = if self.rng.chance(3, 4) { 1 } else { 2 };
        for level in (wanted..ROOT_LEVEL).rev() {
            if !entry.is_record() {
                return Ok(None);
            }
            let children = self.read_node(entry)?;
            // The drive's internal data is under the last child.
            let count =
                children.len().saturating_sub(usize::from(level == ROOT_LEVEL - 1 && children.len() > 1));
            match children.get(self.rng.index(count.max(1))) {
                Some(child) => entry = *child,
                None => return Ok(None),
            }
        }
        // A drive does not open without the root.
        let (from, to) = pages_of(entry);
        let (root_from, root_to) = pages_of(root);
        let is_apart = root.is_record() && (to <= root_from || root_to <= from);
        Ok((entry.is_record() && is_apart).then_some((wanted, entry)))
    }

    /// Returns the entries of a node above the leaves that are not empty.
    fn read_node(&mut self, entry: Entry) -> Result<Vec<Entry>, Stop> {
        let position = entry.position_bytes();
        let start = position / PAGE * PAGE;
        let end = (position + entry.len_bytes() as u64).next_multiple_of(PAGE);
        let bytes = self.read_raw(start, end - start)?;
        let record = &bytes[(position - start) as usize..];
        let mut entries = [Entry::UNMAPPED; NODE_ENTRIES];
        if let Ok(header) = RecordHeader::decode(record) {
            let payload = &record[RECORD_HEADER_BYTES..][..usize::from(header.payload_len)];
            if decode_node(header.codec, payload, &mut entries).is_err() {
                return Ok(Vec::new());
            }
        }
        Ok(entries.into_iter().filter(|entry| entry.is_record()).collect())
    }

    fn read_raw(&mut self, offset: u64, len: u64) -> Result<IoBuf, Stop> {
        let media = self.media.clone();
        let read = async move { media.read(offset, IoBuf::zeroed(len as usize)).await };
        let (bytes, result) = self.do_now("read the backing", read)?;
        result.map_err(|error| Stop::Failed(format!("read of a quiet backing: {error}")))?;
        Ok(bytes)
    }
}

/// Pages that a record occupies: the first one, and the one after the last.
fn pages_of(entry: Entry) -> (u64, u64) {
    let (from, len) = (entry.position_bytes(), entry.len_bytes() as u64);
    (from / PAGE, (from + len).div_ceil(PAGE))
}
