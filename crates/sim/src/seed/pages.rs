//! Loss of pages while no process has the backing open, within what parity covers: in any group of a filling
//! one page at most, scattered or in one run. A drive with parity must show everything as if nothing had
//! happened.

use std::collections::BTreeSet;
use std::sync::Arc;

use layout::pack::{PackAddress, PackHeader, decode_pack};
use layout::{
    Checkpoint, Geometry, PAGE_BYTES, ParityForm, ParityIndex, ParityShape, SegmentUse, Superblock,
};
use media::{IoBuf, Media, SimMedia};

use super::{Run, Stop};
use crate::{Error, Subject};

/// One opening in this many is preceded by such a loss, in seeds with parity.
const ONE_IN: u64 = 3;
const PAGE: u64 = PAGE_BYTES as u64;

/// A filling all pages of which are as they were written.
struct Whole {
    segment: u32,
    index: ParityIndex,
    shape: ParityShape,
}

impl<S: Subject> Run<S> {
    /// Returns whether parity covers what is lost: other faults may have taken what is needed.
    pub(super) fn may_lose_pages(&self) -> bool {
        let is_quiet = !self.config.does_damage() && self.config.trouble.bad_copy.is_none();
        self.config.may_have_parity() && is_quiet
    }

    /// Returns whether an opening may fail so: it cannot read a page at which the log may go on, which was
    /// lost with an earlier filling of its segment; or one on which another drive may be, after the start was
    /// lost. Then the page can be read again.
    pub(super) fn end_is_unreadable(&mut self, error: &Error) -> Result<bool, Stop> {
        if let Some(at) = place_of_another(error).filter(|at| self.media.lost_pages().contains(at)) {
            self.media.find_page(at);
            return Ok(true);
        }
        let at = place_in_log(error).filter(|at| self.media.lost_pages().contains(at));
        let Some((at, geometry)) = at.zip(self.config.geometry()) else { return Ok(false) };
        // It may have grown.
        let geometry = Geometry { physical_size_bytes: self.config.backing_bytes, ..geometry };
        let media = self.media.clone();
        let place = async move { is_in_no_filling(&media, &geometry, at).await };
        let is_so = self.do_now("look at the place of a page", place)?;
        if is_so {
            self.media.find_page(at);
        }
        Ok(is_so)
    }

    /// Loses pages, in some cases.
    pub(super) fn perhaps_lose_pages(&mut self) -> Result<(), Stop> {
        if !self.may_lose_pages() || !self.losing.chance(1, ONE_IN) {
            return Ok(());
        }
        let media = self.media.clone();
        let fillings = self.do_now("look for parity", async move { fillings(&media).await })?;
        let Some((geometry, fillings)) = fillings else { return Ok(()) };
        let part = 1 + self.losing.below(4);
        for Whole { segment, index, shape } in fillings {
            if !self.losing.chance(1, part) {
                continue;
            }
            let start = geometry.segment_offset(segment);
            let groups = u64::from(shape.groups_used(index.end()));
            let mut lost: BTreeSet<u64> = BTreeSet::new();
            match self.losing.below(3) {
                // One run.
                0 => {
                    let run = 1 + self.losing.below(groups);
                    let first = self.losing.below(u64::from(index.end()));
                    lost.extend(first..(first + run).min(u64::from(index.end())));
                }
                // Any page of each of some groups, perhaps that of parity.
                _ => {
                    for group in 0..groups {
                        let members: Vec<u32> = shape.members(group as u32, index.end()).collect();
                        let at = self.losing.below(members.len() as u64 + 1) as usize;
                        let parity = shape.parity_offset(group as u32) / PAGE_BYTES as u32;
                        if self.losing.chance(1, 3) {
                            lost.insert(u64::from(members.get(at).copied().unwrap_or(parity)));
                        }
                    }
                    // One copy of the index, too.
                    if self.losing.chance(1, 4) {
                        let copy = shape.index_offsets()[self.losing.index(2)];
                        lost.insert(u64::from(copy) / PAGE);
                    }
                }
            }
            self.trace(|| format!("pages of segment {segment} are lost: {lost:?}"));
            self.count("restart: pages within the cover of parity are lost");
            let kind = self.losing.below(3);
            for page in lost {
                let at = start + page * PAGE;
                if kind == 0 {
                    self.media.lose_page(at);
                    continue;
                }
                let mut bytes = IoBuf::zeroed(PAGE_BYTES);
                if kind == 1 {
                    bytes.chunks_exact_mut(8).for_each(|word| {
                        word.copy_from_slice(&self.losing.below(u64::MAX).to_le_bytes());
                    });
                }
                let media = self.media.clone();
                let written = self.do_now("lose a page", async move {
                    media.write(at, Arc::new(bytes)).await?;
                    media.sync().await
                })?;
                written.map_err(|error| Stop::Failed(format!("a page cannot be overwritten: {error}")))?;
            }
        }
        Ok(())
    }
}

/// Where a superblock of another drive may be that cannot be read, in bytes.
fn place_of_another(error: &Error) -> Option<u64> {
    let Error::Io(why) = error else { return None };
    let (_, place) =
        why.split_once("reading at byte 0x").filter(|_| why.contains("of a newer drive may be there"))?;
    u64::from_str_radix(place.split(' ').next()?, 16).ok()
}

/// Where the newest log was being read when that failed, in bytes.
fn place_in_log(error: &Error) -> Option<u64> {
    let Error::Io(why) = error else { return None };
    let (_, place) = why.split_once("reading the log at byte 0x")?;
    u64::from_str_radix(place.split(' ').next()?, 16).ok()
}

/// Returns whether a place is in no filling that is in use, as far as the newest checkpoint tells.
async fn is_in_no_filling(media: &SimMedia, geometry: &Geometry, at: u64) -> bool {
    let mut newest: Option<Checkpoint> = None;
    for place in [0, 1].into_iter().flat_map(|slot| geometry.checkpoint_places(slot)) {
        let area = read(media, place, geometry.checkpoint_area_bytes() as usize).await;
        let found = area.and_then(|area| Checkpoint::decode(&area).ok());
        newest = found.into_iter().chain(newest).max_by_key(|found| found.number);
    }
    let Some((checkpoint, (segment, offset))) = newest.zip(geometry.locate(at)) else { return false };
    let Some(row) = checkpoint.rows.get(segment as usize) else { return false };
    let start = geometry.segment_offset(segment);
    for shape in ParityForm::ALL.map(|form| ParityShape::new(geometry.segment_bytes, form)).iter().flatten() {
        for copy in shape.index_offsets() {
            let bytes = read(media, start + u64::from(copy), shape.index_bytes()).await;
            let index = bytes.and_then(|bytes| ParityIndex::decode(&bytes, geometry.segment_bytes).ok());
            let Some((index, _)) = index.filter(|(index, _)| index.log_id == checkpoint.uuid) else {
                continue;
            };
            let is_in_use = row.usage == SegmentUse::Used && row.generation == index.generation;
            if u64::from(index.end()) <= u64::from(offset) / PAGE {
                return true;
            }
            // What is newer than the checkpoint can be made again.
            return !is_in_use && index.last_sequence <= checkpoint.sequence;
        }
    }
    true
}

async fn read(media: &SimMedia, at: u64, len: usize) -> Option<IoBuf> {
    let (buf, read) = media.read(at, IoBuf::zeroed(len)).await;
    read.is_ok().then_some(buf)
}

/// Returns fillings with whole parity that are known to have been durable by what is in segments without.
async fn fillings(media: &SimMedia) -> Option<(Geometry, Vec<Whole>)> {
    let mut superblocks = Vec::new();
    for copy in 0..2 {
        let page = read(media, Geometry::superblock_offset(copy), PAGE_BYTES).await;
        superblocks.extend(page.and_then(|page| Superblock::decode(&page).ok()));
    }
    let superblock = superblocks.into_iter().max_by_key(|superblock| superblock.update)?;
    let (geometry, log_id) = (superblock.geometry, superblock.log_id());
    let segment_bytes = geometry.segment_bytes;
    let mut durable = 0;
    for slot in 0..2 {
        let len = geometry.checkpoint_area_bytes() as usize;
        let area = read(media, geometry.checkpoint_offset(slot, 0), len).await;
        let found = area.and_then(|area| Checkpoint::decode(&area).ok()).filter(|found| found.uuid == log_id);
        // Both are needed to tell which one is the newest.
        durable = durable.max(found.map_or(0, |found| found.durable));
    }
    let mut whole = Vec::new();
    for segment in 0..geometry.segments() {
        let start = geometry.segment_offset(segment);
        let Some(bytes) = read(media, start, segment_bytes as usize).await else { continue };
        let last = ParityShape::new(segment_bytes, ParityForm::Part32)?.index_offsets()[1];
        let found = ParityIndex::decode(&bytes[last as usize..], segment_bytes).ok();
        let found = found.filter(|(index, _)| index.log_id == log_id && index.segment == segment);
        // A power cut may have taken the other copy.
        let found = found.filter(|(_, shape)| {
            let [first, last] = shape.index_offsets().map(|offset| offset as usize);
            bytes[first..first + shape.index_bytes()] == bytes[last..last + shape.index_bytes()]
        });
        let sum = |page: usize| crc32c::crc32c(&bytes[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]);
        let is_whole = |(index, shape): &(ParityIndex, ParityShape)| {
            let parity_at = shape.parity_offset(0) as usize / PAGE_BYTES;
            is_durable(media, start, index, shape)
                && index.pages.iter().enumerate().all(|(page, expected)| sum(page) == *expected)
                && index
                    .parity
                    .iter()
                    .enumerate()
                    .all(|(group, expected)| sum(parity_at + group) == *expected)
        };
        match found.filter(is_whole) {
            Some((index, shape)) => whole.push(Whole { segment, index, shape }),
            None => {
                let mut offset = 0;
                while let Ok(header) = PackHeader::decode(&bytes[offset..]) {
                    let (generation, at) = (header.generation, offset as u32);
                    let place = PackAddress { uuid: &log_id, segment, generation, offset: at };
                    if decode_pack(&bytes[offset..], place, |_, _| {}).is_err() {
                        break;
                    }
                    durable = durable.max(header.durable);
                    offset += header.len as usize;
                    if offset >= segment_bytes as usize {
                        break;
                    }
                }
            }
        }
    }
    // What a killed process has written may be lost yet.
    let durable = durable.min(media.called_durable());
    whole.retain(|filling| filling.index.last_sequence <= durable);
    Some((geometry, whole))
}

/// Returns whether no power cut can take anything of a filling and its parity.
fn is_durable(media: &SimMedia, start: u64, index: &ParityIndex, shape: &ParityShape) -> bool {
    let page = PAGE_BYTES as u32;
    let copies =
        shape.index_offsets().map(|at| at / page..at / page + (shape.index_bytes() / PAGE_BYTES) as u32);
    let parity = (0..shape.groups_used(index.end())).map(|group| shape.parity_offset(group) / page);
    let pages = (0..index.end()).chain(copies.into_iter().flatten()).chain(parity);
    pages.into_iter().all(|at| media.durable_page(start + u64::from(at) * PAGE).is_some())
}
