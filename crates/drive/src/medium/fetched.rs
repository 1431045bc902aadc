//! Data read for background work. It is decoded later, on a thread where that disturbs nobody.

use std::ops::Range;

use layout::record::decode_record;
use layout::{BLOCK_BYTES, Entry, RecordHeader};
use media::Media;

use crate::error::Error;
use crate::medium::decode::decode_data;
use crate::medium::plan::{Plan, Runs, Source};
use crate::shared::Shared;
use crate::state::dictionaries::Dictionaries;
use crate::state::pins::Pin;

/// More would delay requests at the medium.
const READS_AT_ONCE: usize = 4;

/// Adjacent blocks with everything that was read for them, in memory: no segment is kept for it. The
/// remaining work keeps a processor busy and needs no drive.
pub(crate) struct Fetched {
    plan: Plan,
    runs: Runs,
}

impl<M: Media> Shared<M> {
    /// Reads blocks without decoding them.
    pub(crate) async fn fetch_blocks(&self, first: u64, count: usize) -> Result<Fetched, Error> {
        let mut plan = self.plan(first, count).await?;
        let runs = self.fetch_runs(&plan, READS_AT_ONCE).await?;
        // A processor may be busy with other things for minutes before this is decoded.
        plan.release();
        Ok(Fetched { plan, runs })
    }

    /// Something that was fetched is not what it should be. Returns whether some of it was made again.
    pub(crate) async fn repair_fetched(&self, fetched: &mut Fetched) -> bool {
        let mut is_new = false;
        for run in &mut fetched.runs {
            let start = run.0 - run.2 as u64;
            let range = start..start + run.1.len() as u64;
            // Nothing has kept its segments: they may have been filled again.
            let Some(_pins) = self.pin_again(&fetched.plan, range) else { continue };
            is_new |= self.repair_run(run).await;
        }
        is_new
    }

    /// Pins the segments of the records of a plan in a range, if all of these are still there.
    fn pin_again(&self, plan: &Plan, range: Range<u64>) -> Option<Vec<Pin>> {
        let mut core = self.core();
        let mut pins = Vec::new();
        for source in &plan.sources {
            let Source::Media(fetch) = source else { continue };
            if !range.contains(&fetch.entry.position_bytes()) {
                continue;
            }
            let segment = core.segments.of(fetch.entry);
            let row = core.segments.get(segment);
            if row.generation() != fetch.generation || row.live_units() == 0 {
                return None;
            }
            pins.push(core.segments.pin(segment));
        }
        Some(pins)
    }
}

impl Fetched {
    /// Verifies the records of as many blocks as fit in `out`, and decodes them.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], which the caller counts.
    pub(crate) fn decode(
        &self,
        dictionaries: &Dictionaries,
        first: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.plan.fill(&self.runs, first * BLOCK_BYTES as u64, out, |part, record, fetch, out| {
            decode_data(dictionaries, part.block, record, fetch, part.skip, out)
        })
    }

    /// The map entries of the blocks.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.plan.entries
    }

    /// Returns the header of the record with a block; `None`: there is none, or its checksum is wrong.
    pub(crate) fn header_of(&self, block: u64) -> Option<RecordHeader> {
        let (record, fetch) = self.plan.record(block, &self.runs)?;
        decode_record(record, fetch.mask).ok().map(|record| record.header)
    }
}
