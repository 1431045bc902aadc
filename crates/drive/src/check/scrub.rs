//! Verification of a drive's records while it is in use, in steps.

use std::ops::Range;

use futures::stream::StreamExt;
use layout::{BLOCK_BYTES, Entry, LEAF_LEVEL, NODE_ENTRIES, NodeId, ScrubMark};
use media::Media;

use super::report::Fault;
use crate::error::Error;
use crate::medium::decode::verify_record;
use crate::medium::load::Fetch;
use crate::medium::record_fault::RecordFault;
use crate::shared::{Drive, Shared};
use crate::state::accumulator::FillingId;
use crate::state::map::Missing;
use device::ReadOnly;

/// Bytes of a block.
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Empty leaves skipped in one step.
const ABSENT_A_STEP: u64 = 1024;

/// Result of a step.
#[derive(Clone, Debug, Default)]
pub struct ScrubStep {
    /// Position of the next step; `None` after the last.
    pub next_block: Option<u64>,
    /// Records verified and decompressed.
    pub records_count: u64,
    /// Their size on the medium.
    pub read_bytes: u64,
    /// Faults of the records, or of the map on the path to them.
    pub faults: Vec<Fault>,
    /// Logical bytes of hosts that are lost by them, in order. A fault names all blocks of its frame; blocks
    /// of it that were overwritten since are not among these.
    pub lost: Vec<Range<u64>>,
}

/// A record to verify.
struct Target {
    /// The first block of the record.
    first: u64,
    /// A bit for each block from there on that the map leads to. A record has at most eight blocks.
    live: u64,
    fetch: Fetch,
}

impl Target {
    /// The first of its live blocks.
    fn block(&self) -> u64 {
        self.first + u64::from(self.live.trailing_zeros())
    }

    /// The bytes of each live block.
    fn lost(&self) -> impl Iterator<Item = Range<u64>> {
        let blocks = (0..u64::BITS).filter(|at| self.live >> at & 1 == 1);
        blocks.map(|at| (self.first + u64::from(at)) * BLOCK).map(|start| start..start + BLOCK)
    }
}

/// Result of one lookup in the map.
enum Looked {
    /// Records on the medium, and where the next lookup begins.
    Records(Vec<Target>, u64),
    Missing(Missing),
}

impl<M: Media> Drive<M> {
    /// Returns how far scrubs of the drive are, as set last or recorded by a checkpoint.
    pub fn scrub_mark(&self) -> ScrubMark {
        self.0.core().scrub
    }

    /// Sets how far scrubs of the drive are. The next checkpoint records it: a crash loses what was set since
    /// the last one.
    pub fn set_scrub_mark(&self, mark: ScrubMark) {
        self.0.core().scrub = mark;
    }

    /// A step of a scrub, at a position: that of [`Drive::scrub_begin`], then what each step returns.
    /// Segments with parity come first, and are read by place. Then the map is walked, at most 512 blocks a
    /// step. What is in segments that were whole is not read again; of the rest the records are read, and
    /// their checksums, addresses and contents verified. Records that are not on the medium yet are skipped.
    /// The drive may be in use: records that move meanwhile are verified where they were.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] once the drive is closed. What is wrong with the drive is no error but a fault.
    pub async fn scrub_step(&self, block: u64) -> Result<ScrubStep, Error> {
        let shared = &self.0;
        if shared.core().mode.is_closed() {
            return Err(Error::ReadOnly(ReadOnly::Closed));
        }
        if let Some(step) = self.scrub_place(block).await {
            return step;
        }
        let geometry = shared.superblock().geometry;
        let (mut records, next) = loop {
            let missing = match shared.look_from(block) {
                Looked::Records(records, next) => break (records, next),
                Looked::Missing(missing) => missing,
            };
            if let Err(error) = shared.load(missing).await {
                // What it maps is lost. Continues behind it.
                let (id, position) = (missing.id, missing.image.position_bytes());
                let after = (id.index + 1) * ((NODE_ENTRIES as u64) << (9 * u32::from(id.level)));
                let blocks = shared.core().blocks();
                let fault = Fault::of_node(&geometry, blocks, id, position, &error.to_string());
                let lost = fault.logical_offset_bytes.zip(fault.logical_len_bytes);
                return Ok(ScrubStep {
                    next_block: shared.exists(after),
                    lost: lost.map(|(offset, len)| offset..offset + len).into_iter().collect(),
                    faults: vec![fault],
                    ..ScrubStep::default()
                });
            }
        };
        let mut step = ScrubStep { next_block: shared.exists(next), ..ScrubStep::default() };
        let looked_at = records.len();
        shared.leave_out_verified(&mut records);
        step.records_count += (looked_at - records.len()) as u64;
        records.sort_unstable_by_key(|it| (it.fetch.entry.position_bytes(), it.block()));
        let entries = records.iter().map(|it| it.fetch.entry);
        let mut runs = std::pin::pin!(shared.fetch_all(entries, &geometry));
        while let Some(fetched) = runs.next().await {
            for target in &records[fetched.items.clone()] {
                let (block, fetch) = (target.block(), &target.fetch);
                let (position, len) = (fetch.entry.position_bytes(), fetch.entry.len_bytes());
                let verified = match fetched.bytes_of(fetch.entry) {
                    Some(bytes) => verify_record(&shared.dictionaries, block, bytes, fetch.entry, fetch.mask),
                    None => match shared.read_range(position, len).await {
                        Ok((buf, at)) => verify_record(
                            &shared.dictionaries,
                            block,
                            &buf[at..at + len],
                            fetch.entry,
                            fetch.mask,
                        ),
                        Err(error) => Err(error.into()),
                    },
                };
                let verified = match verified {
                    Err(why) => match shared.reread(position, len).await {
                        Some((buf, at)) => verify_record(
                            &shared.dictionaries,
                            block,
                            &buf[at..at + len],
                            fetch.entry,
                            fetch.mask,
                        ),
                        None => Err(why),
                    },
                    verified => verified,
                };
                step.read_bytes += len as u64;
                match verified {
                    Ok(_) => step.records_count += 1,
                    Err(why) => {
                        Shared::<M>::count(&shared.corrupt_records, 1);
                        shared.count_lost(fetch.entry, !matches!(why, RecordFault::Read(_)));
                        let known = &shared.dictionaries;
                        let fault = Fault::of_record(&geometry, known, block, fetch.entry, &why.to_string());
                        if fault.logical_offset_bytes.is_some() {
                            step.lost.extend(target.lost());
                        }
                        step.faults.push(fault);
                    }
                }
            }
        }
        // Records were read in the order of their places.
        step.lost.sort_unstable_by_key(|range| range.start);
        Ok(step)
    }
}

impl<M: Media> Shared<M> {
    /// Leaves out records in segments that this scrub has read by place.
    fn leave_out_verified(&self, records: &mut Vec<Target>) {
        let mut core = self.core();
        core.mark_unchanged();
        let geometry = *core.geometry();
        records.retain(|target| {
            let Some((segment, _)) = geometry.locate(target.fetch.entry.position_bytes()) else {
                return true;
            };
            let generation = core.segments.get(segment).generation();
            !core.parity.verified.has(FillingId { segment, generation })
        });
    }

    fn exists(&self, block: u64) -> Option<u64> {
        Some(block).filter(|block| *block < self.core().blocks())
    }

    /// Returns the records of the leaf with `block`, from there on, or of the next one that is not empty.
    fn look_from(&self, block: u64) -> Looked {
        let mut core = self.core();
        let core = &mut *core;
        let blocks = core.blocks();
        let mut first = block;
        for _ in 0..ABSENT_A_STEP {
            let leaf = NodeId { level: LEAF_LEVEL, ..NodeId::leaf_of(first) };
            if first >= blocks || !core.map.is_absent(leaf) {
                break;
            }
            first = (leaf.index + 1) * NODE_ENTRIES as u64;
        }
        if first >= blocks {
            return Looked::Records(Vec::new(), first);
        }
        let until = blocks.min((first / NODE_ENTRIES as u64 + 1) * NODE_ENTRIES as u64);
        let mut found: Vec<(u64, u64, Entry)> = Vec::new();
        let each = |block, entry: Entry| {
            if !entry.is_record() {
                return;
            }
            let first = entry.first_block(block);
            let bit = 1 << (block - first);
            // A frame is verified once, for the first of its blocks.
            match found.last_mut().filter(|(at, _, last)| *last == entry && entry.joins(*at, block)) {
                Some((_, live, _)) => *live |= bit,
                None => found.push((first, bit, entry)),
            }
        };
        if let Err(missing) = core.map.lookup(first, (until - first) as usize, each) {
            return Looked::Missing(missing);
        }
        found.retain(|(_, _, entry)| core.log.in_memory(*entry).is_none());
        let target = |(first, live, entry)| Target { first, live, fetch: core.fetch(entry) };
        Looked::Records(found.into_iter().map(target).collect(), until)
    }
}
