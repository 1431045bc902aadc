//! Segments with parity are read by place: every page that was written, dead or alive, parity, and both
//! copies of its index. A page that is not as it was written takes the spare of its group, whatever lives on
//! it.
//!
//! A scrub begins with them. Their records are then known to be whole, and are not read again.

use std::collections::BTreeMap;
use std::ops::Range;

use layout::{PAGE_BYTES, ParityShape};
use media::Media;

use super::report::{CheckProgress, CheckReport};
use super::scrub::ScrubStep;
use crate::error::Error;
use crate::shared::{Drive, Shared};
use crate::state::accumulator::FillingId;
use crate::state::core::Core;
use crate::state::parity::Then;
use crate::state::pins::Pin;
use crate::state::segments::SegmentState;

/// Marks positions of a scrub that are places: a segment, and a part of it. All others are blocks.
const PLACE: u64 = 1 << 59;
const PART_BITS: u32 = 16;
/// Pages of a part, read in one step: 4 MiB.
const PART_PAGES: u32 = 1024;
/// Segments looked at in one step for one with parity.
const LOOKED_AT_A_STEP: u32 = 4096;

/// Where in a segment a scrub is.
#[derive(Clone, Copy)]
struct Place {
    segment: u32,
    part: u32,
}

impl Place {
    fn of(position: u64) -> Option<Place> {
        let segment = (position & !PLACE) >> PART_BITS;
        let part = (position & ((1 << PART_BITS) - 1)) as u32;
        (position & PLACE != 0).then_some(Place { segment: segment as u32, part })
    }

    fn position(self) -> u64 {
        PLACE | u64::from(self.segment) << PART_BITS | u64::from(self.part)
    }

    fn next_segment(segment: u32) -> Place {
        Place { segment: segment + 1, part: 0 }
    }
}

/// What was found in a part of a filling.
struct Found {
    /// Pages of packs that are not as they were written.
    bad: Vec<u32>,
    /// The same for parity and its index.
    bad_parity: Vec<u32>,
    read_pages: u64,
    is_last: bool,
}

impl Core {
    /// Pins the first filling from a segment on that has parity; or one that may have it, as after a crash,
    /// if that is asked for. Otherwise returns where to go on looking.
    fn pin_protected(&mut self, from: u32, maybe: bool) -> Result<(FillingId, Pin), Option<u32>> {
        let (count, until) = (self.segments.count(), from.saturating_add(LOOKED_AT_A_STEP));
        for segment in from..until.min(count) {
            let row = self.segments.get(segment);
            let is_wanted = row.has_parity() || maybe && row.parity().part().is_some();
            if is_wanted && row.live_units() > 0 && row.state() == SegmentState::Sealed {
                let id = FillingId { segment, generation: row.generation() };
                return Ok((id, self.segments.pin(segment)));
            }
        }
        Err(Some(until).filter(|until| *until < count))
    }
}

impl<M: Media> Drive<M> {
    /// Position at which a scrub begins, and what it reads about, in bytes.
    pub fn scrub_begin(&self) -> (u64, u64) {
        let mut core = self.0.core();
        core.mark_unchanged();
        let segments = core.segments.count() - core.segments.free_count();
        let live_bytes = core.segments.live_units() * layout::UNIT_BYTES as u64;
        // Also if new fillings have none: those of before have it.
        match core.superblock.uses_parity() {
            true => {
                let segment_bytes = u64::from(core.geometry().segment_bytes);
                (Place { segment: 0, part: 0 }.position(), u64::from(segments) * segment_bytes)
            }
            false => (0, live_bytes),
        }
    }

    /// A step at a position that is a place; `None`: it is a block.
    pub(super) async fn scrub_place(&self, position: u64) -> Option<Result<ScrubStep, Error>> {
        let place = Place::of(position)?;
        let shared = &self.0;
        let pinned = {
            let mut core = shared.core();
            core.mark_unchanged();
            if position == (Place { segment: 0, part: 0 }.position()) {
                core.parity.verified.begin();
            }
            core.pin_protected(place.segment, false)
        };
        let blocks = ScrubStep { next_block: Some(0), ..ScrubStep::default() };
        let (id, _pin) = match pinned {
            Ok(pinned) => pinned,
            Err(from) => {
                let next = from.map(|segment| Place { segment, part: 0 }.position());
                return Some(Ok(ScrubStep { next_block: next.or(blocks.next_block), ..blocks }));
            }
        };
        let part = if id.segment == place.segment { place.part } else { 0 };
        let Some(found) = shared.look_at_part(id, part).await else {
            // Neither copy of its index is left: what lives there is read record by record.
            shared.spares_lost(id, &shared.index_pages(id));
            let next_block = Some(Place::next_segment(id.segment).position());
            return Some(Ok(ScrubStep { next_block, ..blocks }));
        };
        shared.spares_lost(id, &found.bad_parity);
        let start = shared.superblock().geometry.segment_offset(id.segment);
        for run in runs(&found.bad) {
            let [from, to] = [run.start, run.end].map(|page| start + u64::from(page) * PAGE_BYTES as u64);
            // Counts, remembers and moves what it makes. What it cannot make is found with the records.
            shared.repaired_in_part(from, to, None, Then::Move).await;
        }
        let is_whole = found.bad.is_empty();
        shared.core().parity.verified.add(id, part, found.is_last, is_whole);
        let next = match found.is_last {
            true => Place::next_segment(id.segment),
            false => Place { segment: id.segment, part: part + 1 },
        };
        let read_bytes = found.read_pages * PAGE_BYTES as u64;
        Some(Ok(ScrubStep { next_block: Some(next.position()), read_bytes, ..blocks }))
    }
}

impl<M: Media> Shared<M> {
    /// For a deep check: reads all fillings with parity by place.
    pub(super) async fn examine_places(
        &self,
        report: &mut CheckReport,
        mut progress: impl FnMut(CheckProgress),
    ) {
        let mut from = Some(0);
        while let Some(segment) = from {
            let pinned = self.core().pin_protected(segment, true);
            let (id, _pin) = match pinned {
                Ok(pinned) => pinned,
                Err(next) => {
                    from = next;
                    continue;
                }
            };
            from = Some(id.segment + 1);
            // A crash may have taken all of it, or some.
            let is_known = self.core().segments.get(id.segment).has_parity();
            for part in 0.. {
                let Some(found) = self.look_at_part(id, part).await else {
                    if is_known {
                        report.protected_pages_bad_count += self.index_pages(id).len() as u64;
                    }
                    break;
                };
                report.protected_pages_count += found.read_pages;
                report.protected_pages_bad_count += found.bad.len() as u64;
                if is_known {
                    report.protected_pages_bad_count += found.bad_parity.len() as u64;
                }
                if found.is_last {
                    break;
                }
            }
            progress(CheckProgress::Places {
                segment: id.segment,
                segments_count: self.core().segments.count(),
            });
        }
    }

    /// Reads a part of a filling with parity on the medium; with the last one, parity and its index. Nothing
    /// if both copies of the index are lost.
    async fn look_at_part(&self, id: FillingId, part: u32) -> Option<Found> {
        let log_id = self.superblock().log_id();
        let (form, last) = {
            let core = self.core();
            let row = core.segments.get(id.segment);
            (row.parity(), row.last_sequence())
        };
        let cover = self.of(&log_id).on_medium(id, Some(form), Some(last)).await?;
        let index = cover.index()?;
        let end = index.end().min((part + 1) * PART_PAGES);
        let pages = part * PART_PAGES..end;
        let sums: BTreeMap<u32, u32> = pages.map(|page| (page, index.pages[page as usize])).collect();
        let mut bad = Vec::new();
        cover.read_pages(&sums, |page, bytes| bad.extend(bytes.is_none().then_some(page))).await;
        let is_last = end == index.end();
        let mut read_pages = sums.len() as u64;
        let mut bad_parity = Vec::new();
        if is_last {
            bad_parity = cover.bad_parity().await;
            read_pages += index.parity.len() as u64;
        }
        Some(Found { bad, bad_parity, read_pages, is_last })
    }

    /// The pages on which the copies of an index begin.
    fn index_pages(&self, id: FillingId) -> Vec<u32> {
        let form = self.core().segments.get(id.segment).parity();
        let shape = ParityShape::new(self.segment_bytes, form);
        let offsets = shape.map(|shape| shape.index_offsets()).into_iter().flatten();
        offsets.map(|offset| offset / PAGE_BYTES as u32).collect()
    }

    /// Pages of parity or of its index are not as they were written. What lives in the segment moves to where
    /// it has a spare.
    fn spares_lost(&self, id: FillingId, pages: &[u32]) {
        let Some(first) = pages.first() else { return };
        let mut core = self.core();
        let first = core.geometry().segment_offset(id.segment) + u64::from(*first) * PAGE_BYTES as u64;
        let now = core.ticks;
        core.parity.spares_lost(id, pages, now);
        core.parity.last_repaired = Some(first);
        drop(core);
        tracing::warn!(segment = id.segment, pages = pages.len(), first, "parity is not as it was written");
    }
}

/// Runs of neighbouring pages.
fn runs(pages: &[u32]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.end == *page => run.end += 1,
            _ => runs.push(*page..page + 1),
        }
    }
    runs
}
