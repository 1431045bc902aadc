//! Repair: pages that cannot be read, or are not as they were written, are made again from the others of
//! their groups and parity.
//!
//! Reads cost nothing for it when all is well: everything here hangs on their error branches. Wrong data is
//! impossible, whatever parity holds: what is made counts only if its checksum is in the list, and the record
//! on it only if its own holds.

use layout::PAGE_BYTES;
use media::{IoBuf, Media};

use crate::medium::cover::{Cover, Of};
use crate::shared::Shared;
use crate::state::accumulator::FillingId;
use crate::state::parity::Then;

const PAGE: u32 = PAGE_BYTES as u32;

impl<M: Media> Shared<M> {
    /// Returns whole pages from `start` to `end` of the backing as they were written. `have`: as they were
    /// read, if they could be. Nothing if they were right, or cannot all be made again. The caller keeps
    /// their segment from being written again.
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
        let behind = {
            let mut core = self.core();
            core.mark_unchanged();
            let (segment, _) = core.geometry().locate(start)?;
            core.geometry().segment_offset(segment) + u64::from(self.segment_bytes)
        };
        if end <= behind {
            return self.repaired_in_segment(start, end, have, then).await;
        }
        // One read may be for records in neighbouring segments.
        let mut whole = IoBuf::zeroed((end - start) as usize);
        let (mut is_whole, mut is_new) = (true, false);
        let (mut from, mut to) = (start, behind);
        while from < end {
            let range = (from - start) as usize..(to - start) as usize;
            let part = have.map(|have| {
                let mut part = IoBuf::zeroed(range.len());
                part.copy_from_slice(&have[range.clone()]);
                part
            });
            match (self.repaired_in_segment(from, to, part.as_ref(), then).await, &part) {
                (Some((made, part_is_whole)), _) => {
                    is_new = true;
                    is_whole &= part_is_whole;
                    whole[range].copy_from_slice(&made);
                }
                (None, Some(part)) => whole[range].copy_from_slice(part),
                (None, None) => {
                    let (buf, read) = self.media.read(from, IoBuf::pooled(range.len())).await;
                    read.ok()?;
                    whole[range].copy_from_slice(&buf);
                }
            }
            (from, to) = (to, end.min(to + u64::from(self.segment_bytes)));
        }
        is_new.then_some((whole, is_whole))
    }

    /// The same, within one segment.
    async fn repaired_in_segment(
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
        let log_id = self.core().superblock.log_id();
        let cover = self.cover_of(id, &log_id).await?;
        let mut buf = IoBuf::zeroed((end - start) as usize);
        let mut bad = Vec::new();
        for page in 0..pages {
            let range = (page * PAGE) as usize..((page + 1) * PAGE) as usize;
            let read = match have {
                Some(have) => {
                    buf[range.clone()].copy_from_slice(&have[range.clone()]);
                    true
                }
                None => cover.read_page(first + page, &mut buf[range.clone()]).await,
            };
            let expected = cover.sum(first + page);
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
        let made = cover.make_again(&bad).await;
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

    /// What parity needs to know of this drive.
    pub(crate) fn of<'a>(&'a self, log_id: &'a [u8; 16]) -> Of<'a, M> {
        let (geometry, tag) = {
            let mut core = self.core();
            core.mark_unchanged();
            (*core.geometry(), core.log.tag())
        };
        let (media, read_bytes) = (&*self.media, &self.media_read_bytes);
        Of { media, geometry, log_id, tag, read_bytes }
    }

    async fn cover_of<'a>(&'a self, id: FillingId, log_id: &'a [u8; 16]) -> Option<Cover<'a, M>> {
        if let Some(accumulator) = self.accumulators.get(id) {
            return Some(self.of(log_id).in_memory(id, accumulator));
        }
        let form = self.core().segments.get(id.segment).parity();
        self.of(log_id).on_medium(id, Some(form)).await
    }
}
