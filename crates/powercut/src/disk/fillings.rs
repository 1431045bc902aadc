//! Fillings of segments on a disk whose parity is there, and which of their groups have lost nothing.
//!
//! Parity covers a loss only if the drive can know that the filling was durable: otherwise lost pages and a
//! torn end of the log are the same. So a filling counts if nothing of its segment is being changed, both
//! copies of its index are durable and the same, every page that was not taken here has its checksum, and
//! what is in segments without parity, or in a checkpoint, vouches for its last pack. The newest checkpoint
//! has it in use, or it is newer: what is in a free segment is of no use, and an opening fails if it cannot
//! read the page at which the log may go on.

use std::collections::{BTreeMap, BTreeSet};

use layout::pack::{PackAddress, PackHeader, decode_pack};
use layout::{Checkpoint, Geometry, ParityForm, ParityIndex, ParityShape, Superblock};

use super::image::{Image, PAGE_BYTES, Page};

const PAGE: u64 = PAGE_BYTES as u64;

/// A filling of a segment: the segment and its generation.
pub(super) type FillingId = (u32, u32);

/// Pages of fillings that were lost here, by their number in the segment.
pub(super) type Taken = BTreeMap<FillingId, BTreeSet<u32>>;

/// A filling with parity.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    pub(super) id: FillingId,
    /// First page of its segment, on the disk.
    pub(super) first: u64,
    /// Pages of packs.
    pub(super) end: u32,
    pub(super) shape: ParityShape,
    /// Groups in which nothing is lost.
    pub(super) groups: BTreeSet<u32>,
    /// Both copies of the index are as they were written.
    pub(super) is_index_whole: bool,
    last_sequence: u64,
}

impl Filling {
    /// The page of a group's parity, in the segment.
    pub(super) fn parity_page(&self, group: u32) -> u32 {
        self.shape.parity_offset(group) / PAGE_BYTES as u32
    }

    /// The group of a page of packs or of parity; `None` for others.
    pub(super) fn group_of(&self, page: u32) -> Option<u32> {
        let first = self.parity_page(0);
        match page {
            _ if page < self.end => Some(self.shape.group_of(page)),
            _ if page < first => None,
            _ => Some(page - first).filter(|group| *group < self.shape.groups_used(self.end)),
        }
    }

    /// Pages of a copy of the index, in the segment.
    pub(super) fn index_pages(&self, copy: usize) -> std::ops::Range<u32> {
        let first = self.shape.index_offsets()[copy] / PAGE_BYTES as u32;
        first..first + (self.shape.index_bytes() / PAGE_BYTES) as u32
    }
}

/// Looks for fillings, and remembers checksums of pages.
#[derive(Default)]
pub(super) struct Finder {
    /// Of pages as they were when last looked at.
    sums: Vec<Option<(Page, u32)>>,
    /// Newest pack that is known to be durable. It only grows: what vouched for it was durable.
    durable: u64,
    /// The newest checkpoint.
    checkpoint: Option<Checkpoint>,
    /// Fillings in use, and the pages of their segments.
    used: Vec<(FillingId, std::ops::Range<u64>)>,
}

impl Finder {
    /// Returns whether a page was taken from a filling in use, as of the last look.
    pub(super) fn is_taken(&self, page: u64, taken: &Taken) -> bool {
        let in_filling = self.used.iter().find(|(_, pages)| pages.contains(&page));
        in_filling.is_some_and(|(id, pages)| {
            taken.get(id).is_some_and(|taken| taken.contains(&((page - pages.start) as u32)))
        })
    }

    /// Returns the fillings. `image` is durable; `changing` are pages with changes that are not. Forgets what
    /// was taken from fillings that are no more.
    pub(super) fn find(
        &mut self,
        image: &Image,
        changing: &BTreeSet<u64>,
        taken: &mut Taken,
    ) -> Option<Vec<Filling>> {
        let copies = (0..2).map(|copy| image.read(Geometry::superblock_offset(copy), PAGE_BYTES));
        let superblocks = copies.filter_map(|page| Superblock::decode(&page).ok());
        let superblock = superblocks.max_by_key(|superblock| superblock.update)?;
        let geometry = superblock.geometry;
        let log_id = superblock.log_id();
        self.look_at_checkpoints(image, &geometry, &log_id);
        let pages = u64::from(geometry.segment_bytes) / PAGE;
        self.used.clear();
        let (mut found, mut others, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for segment in 0..geometry.segments() {
            let first = geometry.segment_offset(segment) / PAGE;
            let index = index_of(image, &geometry, segment, &log_id);
            seen.extend(index.iter().map(|(index, _)| (segment, index.generation)));
            let filling = index.and_then(|(index, shape)| self.filling(image, first, &index, shape, taken));
            match filling {
                Some(filling) if self.is_in_use(&filling) => {
                    self.used.push((filling.id, first..first + pages));
                    let is_changing = changing.range(first..first + pages).next().is_some();
                    found.extend(Some(filling).filter(|_| !is_changing));
                }
                Some(_) => {}
                None => others.push((segment, first)),
            }
        }
        taken.retain(|id, _| seen.contains(id));
        if found.iter().any(|filling| filling.last_sequence > self.durable) {
            for (segment, first) in others {
                let bytes = image.read(first * PAGE, geometry.segment_bytes as usize);
                self.look_at_packs(&bytes, segment, &log_id);
            }
        }
        found.retain(|filling| filling.last_sequence <= self.durable);
        Some(found)
    }

    fn look_at_checkpoints(&mut self, image: &Image, geometry: &Geometry, log_id: &[u8; 16]) {
        self.checkpoint = None;
        for slot in 0..2 {
            for copy in 0..2 {
                let at = geometry.checkpoint_offset(slot, copy);
                let area = image.read(at, geometry.checkpoint_area_bytes() as usize);
                let found = Checkpoint::decode(&area).ok().filter(|found| found.uuid == *log_id);
                let Some(found) = found else { continue };
                self.durable = self.durable.max(found.durable);
                if self.checkpoint.as_ref().is_none_or(|newest| newest.number < found.number) {
                    self.checkpoint = Some(found);
                }
            }
        }
    }

    /// Returns whether a filling holds data, as far as the newest checkpoint knows. A segment is filled again
    /// only after the checkpoint that freed it.
    fn is_in_use(&self, filling: &Filling) -> bool {
        let Some(checkpoint) = &self.checkpoint else { return false };
        let (segment, generation) = filling.id;
        let row = checkpoint.rows.get(segment as usize);
        let holds_data = row.is_some_and(|row| row.generation == generation && row.live_units > 0);
        holds_data || filling.last_sequence > checkpoint.sequence
    }

    fn look_at_packs(&mut self, bytes: &[u8], segment: u32, uuid: &[u8; 16]) {
        let mut offset = 0;
        while let Some(rest) = bytes.get(offset..).filter(|rest| rest.len() >= PAGE_BYTES) {
            let Ok(header) = PackHeader::decode(rest) else { break };
            let place = PackAddress { uuid, segment, generation: header.generation, offset: offset as u32 };
            if decode_pack(rest, place, |_, _| {}).is_err() {
                break;
            }
            self.durable = self.durable.max(header.durable);
            offset += header.len as usize;
        }
    }

    /// Returns the filling of an index, unless something of it was lost elsewhere than here.
    fn filling(
        &mut self,
        image: &Image,
        first: u64,
        index: &ParityIndex,
        shape: ParityShape,
        taken: &Taken,
    ) -> Option<Filling> {
        let id = (index.segment, index.generation);
        let nothing = BTreeSet::new();
        let taken = taken.get(&id).unwrap_or(&nothing);
        let mut filling = Filling {
            id,
            first,
            end: index.end(),
            shape,
            groups: (0..shape.groups_used(index.end())).collect(),
            is_index_whole: true,
            last_sequence: index.last_sequence,
        };
        let pages = (0..).zip(&index.pages);
        let parity = (filling.parity_page(0)..).zip(&index.parity);
        for (page, sum) in pages.chain(parity) {
            let is_right = self.sum(image, first + u64::from(page)) == *sum;
            if !is_right && !taken.contains(&page) {
                return None;
            }
        }
        for page in taken {
            if let Some(group) = filling.group_of(*page) {
                filling.groups.remove(&group);
            }
        }
        let mut copy = vec![0; shape.index_bytes()];
        index.encode(&shape, &mut copy);
        for number in 0..2 {
            for (page, bytes) in filling.index_pages(number).zip(copy.chunks_exact(PAGE_BYTES)) {
                let is_right = image.read((first + u64::from(page)) * PAGE, PAGE_BYTES) == bytes;
                if !is_right && !taken.contains(&page) {
                    return None;
                }
                filling.is_index_whole &= !taken.contains(&page);
            }
        }
        Some(filling)
    }

    fn sum(&mut self, image: &Image, at: u64) -> u32 {
        let Some(page) = image.page(at) else { return crc32c::crc32c(&[0; PAGE_BYTES]) };
        let at = at as usize;
        if self.sums.len() <= at {
            self.sums.resize(at + 1, None);
        }
        match &self.sums[at] {
            Some((known, sum)) if known.is(page) => *sum,
            _ => {
                let sum = crc32c::crc32c(page.bytes());
                self.sums[at] = Some((page.clone(), sum));
                sum
            }
        }
    }
}

/// Reads the index of a segment: the last copy, or one of those that a form may have.
fn index_of(
    image: &Image,
    geometry: &Geometry,
    segment: u32,
    log_id: &[u8; 16],
) -> Option<(ParityIndex, ParityShape)> {
    let segment_bytes = geometry.segment_bytes;
    let shapes = ParityForm::ALL.map(|form| ParityShape::new(segment_bytes, form));
    let shapes = shapes.into_iter().flatten();
    let places: Vec<_> = shapes.map(|shape| (shape.index_offsets(), shape.index_bytes())).collect();
    let last = places.first().map(|(offsets, len)| (offsets[1], *len));
    let offsets = last.into_iter().chain(places.iter().map(|(offsets, len)| (offsets[0], *len)));
    let start = geometry.segment_offset(segment);
    offsets
        .filter_map(|(offset, len)| {
            let bytes = image.read(start + u64::from(offset), len);
            ParityIndex::decode(&bytes, segment_bytes).ok()
        })
        .find(|(index, _)| index.log_id == *log_id && index.segment == segment)
}
