//! Bad segments are emptied: a place that takes no write may soon not be readable either. So are those that
//! lost pages: what else lives there has no spare any more.
//!
//! Moving out of a bad segment takes free segments and gives none back, and it lowers the limit by what
//! moves: the live data of a bad segment takes room that nothing else could have. So it is done while there
//! is enough of both, a segment at a time. One that lost pages, and of which all can be made again, is freed
//! by it, and needs free segments only.

use std::sync::Arc;

use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::accumulator::FillingId;
use crate::state::cleaning::{Cleaning, Pass};
use crate::state::core::Core;
use crate::state::emptying::Left;
use crate::state::segments::{Claim, SegmentState};
use crate::upkeep::clean::{RECORDS_A_BATCH, RECORDS_A_STEP};

/// Room under the limit that is left to hosts, in segments.
const ROOM_LEFT_SEGMENTS: u64 = 2;

impl Core {
    /// Returns the bad segment to be emptied now, if there is one.
    pub(crate) fn segment_to_empty(&self) -> Option<u32> {
        let has_any = self.segments.bad_count() > 0 || !self.parity.worn.is_empty();
        if !has_any || self.is_short() || !self.segments.has_stock(Claim::Ordinary) {
            return None;
        }
        let room = self.room_units().saturating_sub(ROOM_LEFT_SEGMENTS * self.segments.segment_units());
        let (now, checkpoint) = (self.ticks, self.log.checkpoint());
        let may_be = |segment: &u32| {
            let row = self.segments.get(*segment);
            let id = FillingId { segment: *segment, generation: row.generation() };
            let is_freed = row.state() == SegmentState::Sealed
                && !self.parity.repairs.has_lost(id)
                && !self.parity.given_up.contains(&id);
            (is_freed || u64::from(row.live_units()) <= room)
                && !self.log.has_open_pack_in(*segment)
                && self.emptying.is_due(*segment, now, checkpoint)
        };
        let candidates = self.segments.bad_with_live().chain(self.worn_with_live()).filter(may_be);
        // One that was begun comes to its end first.
        let begun = self.emptying.work.as_ref().map(|work| work.segment);
        candidates.min_by_key(|segment| (Some(*segment) != begun, self.segments.get(*segment).live_units()))
    }

    /// Segments that lost pages, in which something lives.
    fn worn_with_live(&self) -> impl Iterator<Item = u32> {
        let has_live = |id: &&FillingId| {
            let row = self.segments.get(id.segment);
            row.generation() == id.generation
                && row.state() == SegmentState::Sealed
                && row.live_units() > 0
                && row.unwritten == 0
        };
        self.parity.worn.iter().filter(has_live).map(|id| id.segment)
    }

    fn take_emptying(&mut self) -> Option<Cleaning> {
        let segment = self.segment_to_empty()?;
        let generation = self.segments.get(segment).generation();
        let is_same = |work: &Cleaning| (work.segment, work.generation) == (segment, generation);
        let begun = self.emptying.work.take().filter(is_same);
        Some(begun.unwrap_or_else(|| {
            let row = *self.segments.get(segment);
            tracing::debug!(segment, live_units = row.live_units(), "emptying a bad segment");
            Cleaning {
                segment,
                generation: row.generation(),
                at: self.geometry().segment_offset(segment),
                found_to: 0,
                window: None,
                pass: Pass { must_leave: true, scans: true, verifies: true, ..Pass::default() },
                stuck: false,
                is_new: false,
                // A bad one is never freed.
                pin: (row.state() == SegmentState::Sealed).then(|| self.segments.pin(segment)),
            }
        }))
    }

    /// A bad segment was read to its end, or there is no room to move what comes next.
    fn end_emptying(&mut self, work: &Cleaning, is_whole: bool) {
        let row = self.segments.get(work.segment);
        let is_its = row.generation() == work.generation;
        let may_hold = matches!(row.state(), SegmentState::Bad | SegmentState::Sealed) && is_its;
        let units = row.live_units();
        self.parity.has_moved |= row.state() == SegmentState::Sealed;
        tracing::debug!(segment = work.segment, left_units = units, is_whole, "bad segment emptied");
        if units == 0 || !may_hold {
            self.emptying.forget(work.segment);
            self.forget_worn();
            return;
        }
        let lost = is_whole && !work.pass.unreadable && u64::from(units) > work.pass.left_units;
        let left = if lost { Left::Lost } else { Left::Some };
        self.emptying.put_off(work.segment, left, self.ticks, self.log.checkpoint());
    }

    /// Forgets segments that lost pages and have been emptied.
    pub(crate) fn forget_worn(&mut self) {
        let segments = &self.segments;
        self.parity.worn.retain(|id| {
            let row = segments.get(id.segment);
            // One that is still being filled is emptied once it is full.
            let is_there = matches!(row.state(), SegmentState::Sealed | SegmentState::Open);
            row.generation() == id.generation
                && is_there
                && (row.live_units() > 0 || row.state() == SegmentState::Open)
        });
    }
}

impl<M: Media> Shared<M> {
    /// Moves some of what lives in a bad segment. The caller has the right to maintenance.
    pub(crate) async fn empty_step(self: &Arc<Self>) -> Result<(), Error> {
        let Some(mut work) = self.core().take_emptying() else { return Ok(()) };
        let end = {
            let geometry = *self.core().geometry();
            geometry.segment_offset(work.segment) + u64::from(geometry.segment_bytes)
        };
        if work.window.is_none() {
            self.next_window(&mut work, end).await;
        }
        if let Some(mut window) = work.window.take() {
            let until = window.found.len().min(window.done + RECORDS_A_STEP);
            while window.done < until {
                let batch = &window.found[window.done..until.min(window.done + RECORDS_A_BATCH)];
                if !self.move_batch(batch, &window.bytes, &mut work.pass).await? {
                    self.core().end_emptying(&work, false);
                    return Ok(());
                }
                window.done += batch.len();
            }
            if until < window.found.len() {
                work.window = Some(window);
            } else {
                work.at = window.end;
            }
        }
        let mut core = self.core();
        if core.segments.get(work.segment).live_units() > 0 && (work.window.is_some() || work.at < end) {
            core.emptying.work = Some(work);
        } else {
            core.end_emptying(&work, true);
        }
        Ok(())
    }
}
