//! Loading map nodes from the medium.

use layout::geometry::{MAX_BLOCKS, OWN_FIRST_BLOCK};
use layout::record::{decode_record, place_mask};
use layout::{
    BLOCK_BYTES, Entry, Geometry, LEAF_LEVEL, NODE_ENTRIES, NodeId, PAGE_BYTES, RecordKind, Superblock,
};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::medium::record_fault::RecordFault;
use crate::shared::Shared;
use crate::state::core::Core;
use crate::state::map::Missing;
use crate::state::node::Form;
use crate::state::parity::Then;
use crate::state::pins::Pin;

/// Returns the mask of a record's place.
pub(crate) fn mask_of(geometry: &Geometry, tag: u32, generation: u32, position: u64) -> u32 {
    let Some((segment, offset)) = geometry.locate(position) else {
        unreachable!("record outside the segments");
    };
    place_mask(tag, segment, generation, offset)
}

/// Limits for entries read from the medium, checked before they are used: a checksum proves no origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) geometry: Geometry,
    /// Blocks of logical space.
    pub(crate) blocks: u64,
    /// See [`Superblock::uses_parity`].
    pub(crate) uses_parity: bool,
}

impl Bounds {
    pub(crate) fn of(superblock: &Superblock) -> Bounds {
        let blocks = superblock.logical_capacity_bytes / BLOCK_BYTES as u64;
        Bounds { geometry: superblock.geometry, blocks, uses_parity: superblock.uses_parity() }
    }

    /// Returns whether these are blocks that the host sees, or the drive's own.
    pub(crate) fn exists(&self, first: u64, count: u64) -> bool {
        first < MAX_BLOCKS
            && count <= MAX_BLOCKS
            && (first + count <= self.blocks || first >= OWN_FIRST_BLOCK && first + count <= MAX_BLOCKS)
    }

    /// Returns whether a node may have this entry in a slot: nothing beyond the capacity, no record outside
    /// the segments, fills and frames only in leaves.
    pub(crate) fn allow(&self, id: NodeId, slot: usize, entry: Entry) -> bool {
        if entry.is_unmapped() {
            return true;
        }
        let first = (u128::from(id.index) * NODE_ENTRIES as u128 + slot as u128) << (9 * u32::from(id.level));
        let span = 1 << (9 * u32::from(id.level));
        let own = (u128::from(OWN_FIRST_BLOCK)..u128::from(MAX_BLOCKS)).contains(&(first + span - 1));
        (first < u128::from(self.blocks) || own)
            && match id.level {
                LEAF_LEVEL => {
                    entry.fill_word().is_some()
                        || self.geometry.holds(entry)
                            && self.exists(entry.first_block(first as u64), entry.blocks())
                }
                _ => self.geometry.holds(entry) && !entry.is_frame(),
            }
    }
}

/// A record to be fetched, with what its verification needs.
pub(crate) struct Fetch {
    pub(crate) entry: Entry,
    pub(crate) mask: u32,
    /// Generation of the segment.
    pub(crate) generation: u32,
    /// A frame that is to be cached.
    pub(crate) keep: bool,
    /// Held until the record was read: its place is not written meanwhile.
    pub(crate) pin: Option<Pin>,
}

impl Core {
    /// Pins a record's segment and collects what is needed to verify the record.
    pub(crate) fn fetch(&mut self, entry: Entry) -> Fetch {
        let segment = self.segments.of(entry);
        let generation = self.segments.get(segment).generation();
        let mask = mask_of(self.geometry(), self.log.tag(), generation, entry.position_bytes());
        Fetch { entry, mask, generation, keep: false, pin: Some(self.segments.pin(segment)) }
    }
}

impl Core {
    /// The image of a node is damaged. If everything in it was replaced, only the accounting of that is lost:
    /// the node is complete without it, and what the image led to counts as live for good. Returns false if
    /// it is still needed.
    fn give_up_image(&mut self, missing: Missing) -> bool {
        let is_replaced = self.map.form(missing.id).is_some_and(Form::replaces_image);
        if is_replaced {
            let nothing = Box::new([Entry::UNMAPPED; NODE_ENTRIES]);
            self.map.install_image(missing, nothing, |_, _| {});
            self.note(format!(
                "the damaged map node {:?} was replaced; what it led to counts as live until the drive is wiped",
                missing.id
            ));
        }
        is_replaced
    }
}

impl<M: Media> Shared<M> {
    /// Reads whole pages around `[position, position + len)`. Returns the buffer, and the offset of the range
    /// in it.
    pub(crate) async fn read_range(&self, position: u64, len: usize) -> Result<(IoBuf, usize), Error> {
        self.read_range_then(position, len, Then::Move).await
    }

    /// The same, with what follows if pages must be made again.
    pub(crate) async fn read_range_then(
        &self,
        position: u64,
        len: usize,
        then: Then,
    ) -> Result<(IoBuf, usize), Error> {
        match self.read_as_is(position, len).await {
            Err(error) => {
                let (start, end) = pages_around(position, len);
                let repaired = self.repaired(start, end, None, then).await;
                if repaired.is_none() {
                    Self::count(&self.read_errors, 1);
                }
                repaired.map(|buf| (buf, (position - start) as usize)).ok_or(error)
            }
            read => read,
        }
    }

    /// The same, without repair.
    pub(crate) async fn read_as_is(&self, position: u64, len: usize) -> Result<(IoBuf, usize), Error> {
        let (start, end) = pages_around(position, len);
        let (buf, result) = self.media.read(start, IoBuf::pooled((end - start) as usize)).await;
        match result {
            Ok(()) => {
                assert_eq!(buf.len() as u64, end - start, "a medium returns the buffer that it was given");
                Self::count(&self.media_read_bytes, end - start);
                Ok((buf, (position - start) as usize))
            }
            Err(error) => Err(Error::io("reading", start, &error)),
        }
    }

    /// The record at a place was not what it should be. Returns what [`Shared::read_range`] would if the
    /// medium had kept what was written there, if that can be made again and differs.
    pub(crate) async fn reread(&self, position: u64, len: usize) -> Option<(IoBuf, usize)> {
        let (start, end) = pages_around(position, len);
        let (have, read) = self.media.read(start, IoBuf::pooled((end - start) as usize)).await;
        let have = read.is_ok().then_some(have);
        // Or it was wrong on its way only.
        let buf = self.repaired(start, end, have.as_ref(), Then::Move).await.or(have)?;
        Some((buf, (position - start) as usize))
    }

    /// Loads a node into the map, unless another request has done so meanwhile.
    pub(crate) async fn load(&self, missing: Missing) -> Result<(), Error> {
        let mut loaded = self.load_image(missing).await;
        let mut core = self.core();
        let now = core.ticks;
        if matches!(loaded, Err(Error::Corrupt(_))) && core.give_up_image(missing) {
            loaded = Ok(());
        }
        match &loaded {
            Ok(()) => core.lost.found(missing.id),
            Err(error) => core.lost.failed(missing.id, now, error),
        }
        drop(core);
        if let Err(error) = &loaded {
            self.count_lost(missing.image, matches!(error, Error::Corrupt(_)));
        }
        loaded
    }

    async fn load_image(&self, missing: Missing) -> Result<(), Error> {
        let (fetch, in_memory, bounds) = {
            let mut core = self.core();
            if !matches!(core.map.has_image(missing.id, missing.image), Ok(true)) {
                return Ok(());
            }
            (core.fetch(missing.image), core.log.in_memory(missing.image), Bounds::of(&core.superblock))
        };
        let (position, len) = (missing.image.position_bytes(), missing.image.len_bytes());
        let entries = match in_memory {
            Some(memory) => decode_node(missing.id, memory.bytes(len), fetch.mask, position, &bounds)?,
            None => {
                let decode = |buf: &IoBuf, at: usize| {
                    decode_node(missing.id, &buf[at..at + len], fetch.mask, position, &bounds)
                };
                let (buf, at) = self.read_range(position, len).await?;
                let mut decoded = decode(&buf, at);
                if decoded.is_err()
                    && let Some((buf, at)) = self.reread(position, len).await
                {
                    decoded = decode(&buf, at);
                }
                if decoded.is_err() {
                    // Not for good, as a node that is damaged would be given up.
                    if let Some(error) = self.lacking_reads(position, len) {
                        Self::count(&self.read_errors, 1);
                        return Err(error);
                    }
                    Self::count(&self.corrupt_records, 1);
                }
                decoded?
            }
        };
        let mut core = self.core();
        let mut dead = Vec::new();
        // Only leaves have changes over an image, so only their entries die here.
        let first = missing.id.index.wrapping_mul(NODE_ENTRIES as u64);
        core.map.install_image(missing, entries, |slot, entry| dead.push((first + slot, entry)));
        core.release(&dead);
        if core.map.over_budget() {
            core.map.evict();
        }
        Ok(())
    }
}

/// Decodes and verifies a node's record, and checks its entries.
pub(crate) fn decode_node(
    id: NodeId,
    bytes: &[u8],
    mask: u32,
    position: u64,
    bounds: &Bounds,
) -> Result<Box<[Entry; NODE_ENTRIES]>, Error> {
    try_decode_node(id, bytes, mask, bounds)
        .map_err(|why| Error::Corrupt(format!("map node {id:?} at byte {position:#x} of the backing: {why}")))
}

/// Like [`decode_node`].
pub(crate) fn try_decode_node(
    id: NodeId,
    bytes: &[u8],
    mask: u32,
    bounds: &Bounds,
) -> Result<Box<[Entry; NODE_ENTRIES]>, RecordFault> {
    let record = decode_record(bytes, mask)?;
    if record.header.kind != RecordKind::Node
        || record.header.block != id.index
        || record.header.extra != u16::from(id.level)
    {
        return Err(RecordFault::NotTheNode);
    }
    let mut entries = Box::new([Entry::UNMAPPED; NODE_ENTRIES]);
    layout::node::decode_node(record.header.codec, record.payload, &mut entries)?;
    match entries.iter().enumerate().find(|(slot, entry)| !bounds.allow(id, *slot, **entry)) {
        None => Ok(entries),
        Some((slot, entry)) => Err(RecordFault::Entry { slot, entry: *entry }),
    }
}

/// The whole pages around `[position, position + len)`.
pub(crate) fn pages_around(position: u64, len: usize) -> (u64, u64) {
    let page = PAGE_BYTES as u64;
    (position / page * page, (position + len as u64).next_multiple_of(page))
}
