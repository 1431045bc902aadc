//! Records on pages that were made again move at once: the place of a page that was lost once is not to be
//! trusted. What else lives in the segment follows, as out of a bad one: the groups of these pages have no
//! spare any more.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use layout::PAGE_BYTES;
use media::Media;
use space::PACK_HARD_BYTES;

use crate::error::Error;
use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::accumulator::FillingId;
use crate::state::cleaning::Pass;
use crate::state::core::Core;
use crate::state::found_record::{Filling, FoundRecord, RECORD_BYTES_MAX, find_all};
use crate::state::parity::Then;
use crate::state::segments::Claim;

const PAGE: u64 = PAGE_BYTES as u64;
/// Most pages of which the records are moved at once.
const PAGES_MAX: u64 = 32;

impl Core {
    /// Returns whether records on repaired pages can be moved now.
    pub(crate) fn moves_repaired(&self) -> bool {
        self.parity.moves(self.ticks) && !self.is_short() && self.segments.has_stock(Claim::Ordinary)
    }
}

impl<M: Media> Shared<M> {
    /// Moves what lives on the repaired pages of one filling. The caller has the right to maintenance.
    pub(crate) async fn move_repaired(self: &Arc<Self>) -> Result<(), Error> {
        let (id, mut pages, start, room, pin) = {
            let mut core = self.core();
            let Some((id, pages)) = core.parity.take_moves() else { return Ok(()) };
            let Some(pin) = core.pin_filling(id) else { return Ok(()) };
            let geometry = *core.geometry();
            let room = core.segments.get(id.segment).parity().room_bytes(geometry.segment_bytes);
            (id, pages, geometry.segment_offset(id.segment), u64::from(room), pin)
        };
        if self.planted.has(PlantedBug::RepairedNotMoved) {
            return Ok(());
        }
        while let Some(run) = first_run(&pages) {
            let moved = self.move_run(id, start, room, run.clone()).await;
            if !matches!(moved, Ok(true)) {
                let mut core = self.core();
                let now = core.ticks;
                core.parity.put_off(id, pages, now);
                return moved.map(drop);
            }
            pages.retain(|page| !run.contains(&u64::from(*page)));
        }
        drop(pin);
        let mut core = self.core();
        core.parity.has_moved = true;
        if !core.parity.is_failing(core.ticks) {
            core.parity.worn.insert(id);
        }
        Ok(())
    }

    /// Moves the records that overlap some pages. Returns false if there is no room.
    async fn move_run(
        self: &Arc<Self>,
        id: FillingId,
        start: u64,
        room: u64,
        run: Range<u64>,
    ) -> Result<bool, Error> {
        let lost = run.start * PAGE..run.end * PAGE;
        let from = lost.start.saturating_sub(RECORD_BYTES_MAX as u64);
        // The last pack that begins there is to be in the window whole.
        let to = (lost.end + PACK_HARD_BYTES as u64).min(room);
        let Ok((window, _)) = self.read_range_then(start + from, (to - from) as usize, Then::Moving).await
        else {
            // The rest of the segment is looked at record by record.
            return Ok(true);
        };
        // A page that was read, but is not as it was written.
        let window = match self.repaired_in_part(start + from, start + to, Some(&window), Then::Moving).await
        {
            Some((made, _)) => made,
            None => window,
        };
        let (tag, uuid) = {
            let core = self.core();
            (core.log.tag(), core.superblock.log_id())
        };
        let filling = Filling { tag, uuid: &uuid, segment: id.segment, generation: id.generation };
        let mut found = Vec::new();
        find_all(&window, filling, start + from, from as u32, true, &mut found);
        found.retain(|record: &FoundRecord| {
            let at = record.entry.position_bytes() - start;
            at < lost.end && at + record.entry.len_bytes() as u64 > lost.start
        });
        let mut pass = Pass { must_leave: true, scans: true, ..Pass::default() };
        self.move_batch(&found, &window, &mut pass).await
    }
}

/// The first run of neighbouring pages.
fn first_run(pages: &BTreeSet<u32>) -> Option<Range<u64>> {
    let first = u64::from(*pages.first()?);
    let mut end = first + 1;
    while end - first < PAGES_MAX && pages.contains(&(end as u32)) {
        end += 1;
    }
    Some(first..end)
}
