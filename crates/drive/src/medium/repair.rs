//! Repair: pages that cannot be read, or are not as they were written, are made again from the others of their
//! groups and parity.
//!
//! Reads cost nothing for it when all is well: everything here hangs on their error branches. Wrong data is
//! impossible, whatever parity holds: what is made counts only if its checksum is in the list, and the record
//! on it only if its own holds.

use std::collections::BTreeMap;

use layout::parity::parity_mask;
use layout::{PAGE_BYTES, ParityIndex, ParityShape};
use media::{IoBuf, Media};

use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::accumulator::{FillingId, mask, xor};

const PAGE: u32 = PAGE_BYTES as u32;
/// With more groups to be made again than one in so many, a filling is read once, front to back.
const WHOLE_PART: usize = 8;
/// Bytes read at once then.
const WINDOW_PAGES: u32 = 256;

/// What follows a repair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// What lives on these pages is to be moved.
    Move,
    /// Nothing: whoever reads them is moving it.
    Moving,
}

/// What the pages of a filling are made again from.
enum Cover {
    /// It is of this run, and its parity is in memory.
    Memory(ParityShape),
    /// It is on the medium.
    Medium(ParityIndex, ParityShape),
}

/// A group of which one page is made again.
struct Work {
    /// The page of the filling.
    bad: u32,
    /// XOR of the parity and of members so far.
    sum: Vec<u8>,
    /// Members to be added, with their checksums.
    members: Vec<(u32, u32)>,
}

impl<M: Media> Shared<M> {
    /// Returns whole pages from `start` to `end` of the backing, as they were written. `have`: as they were
    /// read, if they could be. Nothing if they were right, or cannot all be made again. The caller keeps their
    /// segment from being written again.
    pub(crate) async fn repaired(
        &self,
        start: u64,
        end: u64,
        have: Option<&IoBuf>,
        then: Then,
    ) -> Option<IoBuf> {
        self.repaired_in_part(start, end, have, then)
            .await
            .and_then(|(buf, is_whole)| is_whole.then_some(buf))
    }

    /// The same, as far as pages can be made again, and whether all of them could be.
    pub(crate) async fn repaired_in_part(
        &self,
        start: u64,
        end: u64,
        have: Option<&IoBuf>,
        then: Then,
    ) -> Option<(IoBuf, bool)> {
        let (id, first, position) = {
            let mut core = self.core();
            core.mark_unchanged();
            let (segment, offset) = core.geometry().locate(start)?;
            let row = core.segments.get(segment);
            row.parity().part()?;
            let id = FillingId { segment, generation: row.generation() };
            (id, offset / PAGE, core.geometry().segment_offset(segment))
        };
        let pages = ((end - start) / PAGE_BYTES as u64) as u32;
        let cover = self.cover_of(id).await?;
        let mut buf = IoBuf::zeroed((end - start) as usize);
        let mut bad = Vec::new();
        for page in 0..pages {
            let range = (page * PAGE) as usize..((page + 1) * PAGE) as usize;
            let read = match have {
                Some(have) => {
                    buf[range.clone()].copy_from_slice(&have[range.clone()]);
                    true
                }
                None => self.read_page(start + u64::from(page * PAGE), &mut buf[range.clone()]).await,
            };
            let expected = self.sum_of(&cover, id, first + page);
            let is_right = read && expected.is_none_or(|sum| crc32c::crc32c(&buf[range]) == sum);
            match is_right {
                true => {}
                false if expected.is_none() => return None,
                false => bad.push(first + page),
            }
        }
        if bad.is_empty() {
            // As it was written, so something else is wrong; or it can be read now.
            return have.is_none().then_some((buf, true));
        }
        let made = self.make_again(id, position, &cover, &bad).await;
        let mut core = self.core();
        let row = core.segments.get(id.segment);
        if row.generation() != id.generation {
            return None;
        }
        let place = |page: &u32| position + u64::from(page * PAGE);
        let lost: Vec<u32> = bad.iter().copied().filter(|page| !made.contains_key(page)).collect();
        let made_pages: Vec<u32> = made.keys().copied().collect();
        let now = core.ticks;
        if let Some(last) = made_pages.last() {
            core.parity.last_repaired = Some(place(last));
            core.parity.repaired(id, &made_pages, then, now);
            core.counters.corrected_reads_count += 1;
        }
        if let Some(last) = lost.last() {
            core.parity.lost_pages += lost.len() as u64;
            core.parity.last_lost = Some(place(last));
        }
        drop(core);
        tracing::warn!(
            segment = id.segment,
            made = made_pages.len(),
            lost = lost.len(),
            first = place(&bad[0]),
            "pages of the backing are not as they were written"
        );
        for (page, bytes) in made {
            let at = ((page - first) * PAGE) as usize;
            buf[at..at + PAGE_BYTES].copy_from_slice(&bytes);
        }
        Some((buf, lost.is_empty()))
    }

    async fn cover_of(&self, id: FillingId) -> Option<Cover> {
        if let Some(accumulator) = self.accumulators.get(id) {
            return Some(Cover::Memory(*accumulator.lock().shape()));
        }
        self.read_index(id).await.map(|(index, shape)| Cover::Medium(index, shape))
    }

    /// The checksum of a page; `None` if it is no member.
    fn sum_of(&self, cover: &Cover, id: FillingId, page: u32) -> Option<u32> {
        match cover {
            Cover::Memory(_) => self.accumulators.get(id)?.lock().sum(page),
            Cover::Medium(index, _) => index.pages.get(page as usize).copied(),
        }
    }

    async fn read_page(&self, position: u64, to: &mut [u8]) -> bool {
        let (buf, read) = self.media.read(position, IoBuf::pooled(PAGE_BYTES)).await;
        Self::count(&self.media_read_bytes, PAGE_BYTES as u64);
        if read.is_ok() {
            to.copy_from_slice(&buf);
        }
        read.is_ok()
    }

    /// Makes pages again, as far as that can be done.
    async fn make_again(
        &self,
        id: FillingId,
        position: u64,
        cover: &Cover,
        bad: &[u32],
    ) -> BTreeMap<u32, Vec<u8>> {
        let (Cover::Memory(shape) | Cover::Medium(_, shape)) = cover;
        let mut groups: BTreeMap<u32, Option<Work>> = BTreeMap::new();
        for page in bad {
            let group = shape.group_of(*page);
            if let Some(known) = groups.get_mut(&group) {
                // Two of one group.
                *known = None;
                continue;
            }
            let work = self.begin_group(id, position, cover, *page).await;
            groups.insert(group, work);
        }
        let mut works: Vec<Work> = groups.into_values().flatten().collect();
        if works.len() * WHOLE_PART > shape.groups() as usize && works.len() > 1 {
            works = self.add_members_in_order(position, shape, works).await;
        } else {
            let mut done = Vec::new();
            for mut work in works {
                if self.add_members(position, &mut work).await {
                    done.push(work);
                }
            }
            works = done;
        }
        let is_right = |work: &Work| {
            self.sum_of(cover, id, work.bad) == Some(crc32c::crc32c(&work.sum))
                || self.planted.has(PlantedBug::RepairUnverified)
        };
        works.into_iter().filter(is_right).map(|work| (work.bad, work.sum)).collect()
    }

    /// Begins with the parity of the group of a page. Nothing if that is lost too.
    async fn begin_group(&self, id: FillingId, position: u64, cover: &Cover, bad: u32) -> Option<Work> {
        let (mut sum, mut members) = match cover {
            Cover::Memory(shape) => self.accumulators.get(id)?.lock().group(shape.group_of(bad)),
            Cover::Medium(index, shape) => {
                let group = shape.group_of(bad);
                let offset = shape.parity_offset(group);
                let mut page = vec![0; PAGE_BYTES];
                let read = self.read_page(position + u64::from(offset), &mut page).await;
                let expected = index.parity.get(group as usize);
                if !read || expected != Some(&crc32c::crc32c(&page)) {
                    return None;
                }
                let tag = self.core().log.tag();
                mask(&mut page, parity_mask(tag, id.segment, id.generation, offset));
                let members = shape.members(group, index.end());
                let members = members.map(|page| (page, index.pages[page as usize]));
                (page, members.collect())
            }
        };
        sum.truncate(PAGE_BYTES);
        members.retain(|(page, _)| *page != bad);
        Some(Work { bad, sum, members })
    }

    /// Adds the members of a group. Returns false if one of them is lost.
    async fn add_members(&self, position: u64, work: &mut Work) -> bool {
        let mut page = vec![0; PAGE_BYTES];
        for (member, expected) in &work.members {
            let read = self.read_page(position + u64::from(member * PAGE), &mut page).await;
            if !read || crc32c::crc32c(&page) != *expected {
                return false;
            }
            xor(&mut work.sum, &page);
        }
        true
    }

    /// The same for many groups, in the order of the pages. Returns those of which no member is lost.
    async fn add_members_in_order(&self, position: u64, shape: &ParityShape, works: Vec<Work>) -> Vec<Work> {
        let mut works: BTreeMap<u32, Work> =
            works.into_iter().map(|work| (shape.group_of(work.bad), work)).collect();
        let members = works.values().flat_map(|work| work.members.iter().copied());
        let sums: BTreeMap<u32, u32> = members.collect();
        let end = sums.keys().last().map_or(0, |last| last + 1);
        let mut from = 0;
        while from < end {
            let count = WINDOW_PAGES.min(end - from);
            let at = position + u64::from(from * PAGE);
            let (window, read) = self.media.read(at, IoBuf::pooled((count * PAGE) as usize)).await;
            Self::count(&self.media_read_bytes, u64::from(count * PAGE));
            for (page, expected) in sums.range(from..from + count) {
                let mut alone = vec![0; PAGE_BYTES];
                let range = ((page - from) * PAGE) as usize..((page - from + 1) * PAGE) as usize;
                let bytes = match read.is_ok() {
                    true => Some(&window[range]),
                    false => {
                        let read = self.read_page(position + u64::from(page * PAGE), &mut alone).await;
                        read.then_some(&alone[..])
                    }
                };
                let group = shape.group_of(*page);
                match bytes.filter(|bytes| crc32c::crc32c(bytes) == *expected) {
                    Some(bytes) => {
                        if let Some(work) = works.get_mut(&group) {
                            xor(&mut work.sum, bytes);
                        }
                    }
                    None => _ = works.remove(&group),
                }
            }
            from += count;
        }
        works.into_values().collect()
    }
}
