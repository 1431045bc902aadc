//! Repair: pages that cannot be read, or are not as they were written, are made again from the others of
//! their groups and parity.
//!
//! Reads cost nothing for it when all is well: everything here hangs on their error branches. Wrong data is
//! impossible, whatever parity holds: what is made counts only if its checksum is in the list, and the record
//! on it only if its own holds.
//!
//! A segment is repaired by one task at a time. What is made stays in memory until it has moved, and what
//! cannot be made is asked for again at growing intervals: clients repeat reads that fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use layout::{Entry, PAGE_BYTES, ParityShape};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::medium::cover::{Cover, Of};
use crate::medium::load::pages_around;
use crate::shared::Shared;
use crate::state::accumulator::FillingId;
use crate::state::parity::Then;
use crate::sync::{AtomicU64, Ordering};
use crate::wait::wait_until;

const PAGE: u32 = PAGE_BYTES as u32;
/// Pages of one read that may fail, for work in the background.
const FAILED_READS_MAX: u32 = 4;

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
        let _turn = self.turn(id.segment).await;
        let log_id = self.core().superblock.log_id();
        let unread = AtomicU64::new(0);
        let cover = self.cover_of(id, &log_id, &unread).await;
        {
            let mut core = self.core();
            core.mark_unchanged();
            let lacks = cover.is_none() && unread.load(Ordering::Relaxed) > 0;
            core.parity.repairs.list_lacks_reads(id, lacks);
        }
        let cover = cover?;
        let mut buf = IoBuf::zeroed((end - start) as usize);
        let (mut bad, mut remembered) = (Vec::new(), Vec::new());
        let (mut failed_reads, mut is_unread) = (0, false);
        for (page, bytes) in (first..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            if let Some(made) = self.repairs_made(id, page) {
                remembered.push(page);
                bytes.copy_from_slice(&made);
                continue;
            }
            let at = (page - first) as usize * PAGE_BYTES;
            let read = match have {
                Some(have) => {
                    bytes.copy_from_slice(&have[at..at + PAGE_BYTES]);
                    true
                }
                None if self.is_lost(id, page) => false,
                None => {
                    let read = cover.read_page(page, bytes).await;
                    failed_reads += u32::from(!read);
                    read
                }
            };
            // A disk may take seconds for each. Smaller parts of this are asked for then.
            if failed_reads > FAILED_READS_MAX && then == Then::Moving {
                return None;
            }
            match cover.sum(page) {
                Some(expected) if read && crc32c::crc32c(bytes) == expected => {}
                Some(_) => {
                    bad.push(page);
                    is_unread |= !read;
                }
                None if read => {}
                // Behind the last pack of a complete filling: it is only read over.
                None if cover.last_sequence().is_some() => {}
                None => return None,
            }
        }
        if !remembered.is_empty() {
            let mut core = self.core();
            core.counters.corrected_reads_count += u64::from(bad.is_empty());
            if then == Then::Move {
                core.parity.move_again(id, &remembered);
            }
        }
        if bad.is_empty() {
            // As it was written, so something else is wrong; or it can be read now.
            return (!remembered.is_empty() || have.is_none()).then_some((buf, true));
        }
        let due: Vec<u32> = bad.iter().copied().filter(|page| !self.is_lost(id, *page)).collect();
        let before = unread.load(Ordering::Relaxed);
        let made = cover.make_again(&due).await;
        // Of pages with the same parity, perhaps.
        let lacks_reads = is_unread || unread.load(Ordering::Relaxed) > before;
        if !self.keep_made(id, &cover, (&due, &made), lacks_reads, then) {
            return None;
        }
        let (made_count, lost_count) = (made.len(), bad.len() - made.len());
        if !due.is_empty() {
            let first = position + u64::from(due[0] * PAGE);
            tracing::warn!(
                segment = id.segment,
                made = made_count,
                lost = lost_count,
                first,
                "pages of the backing are not as they were written"
            );
        }
        for (page, bytes) in made {
            let at = ((page - first) * PAGE) as usize;
            buf[at..at + PAGE_BYTES].copy_from_slice(&bytes);
        }
        Some((buf, lost_count == 0))
    }

    /// Remembers what was made again of the pages that were tried, and what was not. Returns false if the
    /// filling is gone.
    fn keep_made(
        &self,
        id: FillingId,
        cover: &Cover<'_, M>,
        (tried, made): (&[u32], &BTreeMap<u32, Vec<u8>>),
        lacks_reads: bool,
        then: Then,
    ) -> bool {
        let mut core = self.core();
        let core = &mut *core;
        let position = core.geometry().segment_offset(id.segment);
        let place = |page: u32| position + u64::from(page * PAGE);
        let is_there = |id: FillingId| core.segments.get(id.segment).generation() == id.generation;
        if !is_there(id) {
            return false;
        }
        core.parity.repairs.retain(is_there);
        let now = core.ticks;
        core.parity.repairs.keep_index(id, cover.index());
        for page in tried {
            match made.get(page) {
                Some(bytes) => {
                    core.parity.repairs.keep(id, *page, bytes);
                    core.parity.last_repaired = Some(place(*page));
                }
                None => core.parity.repairs.failed(id, *page, now, lacks_reads),
            }
        }
        if !made.is_empty() {
            let pages: Vec<u32> = made.keys().copied().collect();
            core.parity.repaired(id, &pages, then, now);
            core.counters.corrected_reads_count += 1;
        }
        true
    }

    /// A record that lives was asked for, and something was not to be read. Counts those of its pages that
    /// cannot be made again, each once. `is_wrong`: it was read alone, and is not as it was written.
    pub(crate) fn count_lost(&self, entry: Entry, is_wrong: bool) {
        let (start, end) = pages_around(entry.position_bytes(), entry.len_bytes());
        let mut core = self.core();
        let located = core.geometry().locate(start).filter(|(segment, _)| {
            // Without parity none of this is its business.
            core.segments.get(*segment).parity().part().is_some()
        });
        if let Some((segment, offset)) = located {
            let id = FillingId { segment, generation: core.segments.get(segment).generation() };
            let first = offset / PAGE;
            let pages = first..first + ((end - start) / u64::from(PAGE)) as u32;
            for page in core.parity.repairs.newly_lost(id, pages, is_wrong) {
                core.parity.lost_pages += 1;
                core.parity.last_lost = Some(start + u64::from((page - first) * PAGE));
            }
        }
        core.mark_unchanged();
    }

    /// Something at a place is not as it was written. Returns the error instead if parity could make it again
    /// as soon as other pages can be read: a disk reads them now and then.
    pub(crate) fn lacking_reads(&self, start: u64, len: usize) -> Option<Error> {
        let (start, end) = pages_around(start, len);
        let mut core = self.core();
        core.mark_unchanged();
        let (segment, offset) = core.geometry().locate(start)?;
        let id = FillingId { segment, generation: core.segments.get(segment).generation() };
        let first = offset / PAGE;
        let pages = first..first + ((end - start) / u64::from(PAGE)) as u32;
        core.parity.repairs.lacks_reads(id, pages).then(|| {
            let what = "is not as it was written, and what parity needs for it cannot be read now";
            Error::Io(format!("the page at byte {start:#x} of the backing {what}"))
        })
    }

    /// Returns whether a page is known to be lost, and not due to be tried again.
    fn is_lost(&self, id: FillingId, page: u32) -> bool {
        let mut core = self.core();
        core.mark_unchanged();
        core.parity.repairs.is_lost(id, page, core.ticks)
    }

    fn repairs_made(&self, id: FillingId, page: u32) -> Option<Arc<[u8]>> {
        let mut core = self.core();
        core.mark_unchanged();
        core.parity.repairs.made(id, page)
    }

    /// Waits for the turn to repair pages of a segment. What another repair makes there is remembered.
    async fn turn(&self, segment: u32) -> Turn<'_, M> {
        wait_until(&self.progress, || self.turns.take(segment).then_some(())).await;
        Turn { shared: self, segment }
    }

    /// What parity needs to know of this drive.
    pub(crate) fn of<'a>(&'a self, log_id: &'a [u8; 16]) -> Of<'a, M> {
        let (geometry, tag) = {
            let mut core = self.core();
            core.mark_unchanged();
            (*core.geometry(), core.log.tag())
        };
        let (media, read_bytes) = (&*self.media, &self.media_read_bytes);
        Of { media, geometry, log_id, tag, read_bytes, failed_reads: None, planted: self.planted }
    }

    /// `unread`: counts pages that cannot be read.
    async fn cover_of<'a>(
        &'a self,
        id: FillingId,
        log_id: &'a [u8; 16],
        unread: &'a AtomicU64,
    ) -> Option<Cover<'a, M>> {
        let of = Of { failed_reads: Some(unread), ..self.of(log_id) };
        if let Some(accumulator) = self.accumulators.get(id) {
            let made = self.core().parity.repairs.all_made(id);
            return Some(of.in_memory(id, accumulator).with_made(made));
        }
        let (form, last, index, made) = {
            let core = self.core();
            let (row, repairs) = (core.segments.get(id.segment), &core.parity.repairs);
            (row.parity(), row.last_sequence(), repairs.index(id), repairs.all_made(id))
        };
        let cover = match index.zip(ParityShape::new(self.segment_bytes, form)) {
            Some((index, shape)) => of.listed(id, shape, index),
            None => of.on_medium(id, Some(form), Some(last)).await?,
        };
        Some(cover.with_made(made))
    }
}

/// The right to repair pages of a segment. Whoever has it must go on being polled.
struct Turn<'a, M> {
    shared: &'a Shared<M>,
    segment: u32,
}

impl<M> Drop for Turn<'_, M> {
    fn drop(&mut self) {
        self.shared.turns.give_back(self.segment);
        self.shared.progress.notify(usize::MAX);
    }
}
