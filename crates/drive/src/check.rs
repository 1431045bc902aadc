//! Checking every structure of a drive. Nothing is repaired.
//!
//! The map is walked as it is on the medium, with the changes in memory on top, and compared with the segment
//! table. Nodes and records are read in the order of their places, neighbours with one read, many reads at a
//! time. Memory stays bounded: records are compared segment by segment, in several passes if there are too
//! many for one.

mod copies;
mod own;
mod places;
mod records;
mod report;
mod runs;
mod scrub;
mod walk;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use layout::geometry::OWN_FIRST_BLOCK;
use layout::{Entry, Geometry, Mix, NodeId};
use media::Media;

use crate::error::Error;
use crate::shared::Drive;
use crate::state::segments::SegmentState;
use records::{Extent, Pass};
use report::Faults;
use walk::{Met, Walk};

pub use copies::find_copies;
pub use report::{CheckProgress, CheckReport, CopyFound, CopyState, Fault, Subject};
pub use scrub::ScrubStep;

/// Default of [`CheckOptions::memory_bytes`].
const DEFAULT_MEMORY_BYTES: u64 = 128 << 20;

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Also read, verify and decompress every record.
    pub deep: bool,
    /// Memory for comparing records, in bytes (16 per record). What does not fit takes another walk over the
    /// map.
    pub memory_bytes: u64,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { deep: false, memory_bytes: DEFAULT_MEMORY_BYTES }
    }
}

/// Live units and records of a segment, according to the map.
#[derive(Clone, Copy, Default)]
struct Live {
    units: u64,
    /// Part of these: shares of dead blocks of frames.
    dead_units: u64,
    records: u64,
}

impl<M: Media> Drive<M> {
    /// Checks that superblock and checkpoints have all their copies, that every map node can be read, that
    /// the segment table is the sum of the live records, that no two map entries overlap, and that free
    /// segments hold nothing live. A deep check also reads, verifies and decompresses every record.
    /// `progress` is called from time to time. The drive must be quiet.
    pub async fn examine(
        &self,
        options: CheckOptions,
        mut progress: impl FnMut(CheckProgress),
    ) -> Result<CheckReport, Error> {
        let shared = &self.0;
        let CheckOptions { deep, memory_bytes } = options;
        let most = memory_bytes / size_of::<Extent>() as u64;
        let mut report = CheckReport { deep, ..CheckReport::default() };
        let mut faults = Faults::default();
        let geometry = shared.superblock().geometry;
        // Pages that could not be made again when they were last asked for.
        shared.core().parity.repairs.ask_again();
        copies::examine(&*shared.media, &mut report, &mut faults).await;
        if let Some(fault) = self.damage_in_log(deep) {
            faults.push(fault);
        }

        let mut live: HashMap<u32, Live> = HashMap::new();
        // Kept from the first walk, if there are few enough.
        let mut extents = Some(Vec::new());
        let mut mix = Mix::default();
        let mut seen = SeenFrames::default();
        let mut walk = Walk::new(shared, &mut faults, |met: Met| {
            let (entry, records, fills) = match met {
                Met::Block(_, entry) => (entry, &mut report.records_count, &mut report.fills_count),
                Met::Owed(_, entry) => (entry, &mut report.owed_count, &mut report.owed_fills_count),
                Met::Node(entry) => {
                    report.nodes_bytes += entry.len_bytes() as u64;
                    (entry, &mut 0, &mut 0)
                }
            };
            *fills += u64::from(entry.fill_word().is_some());
            let Some(segment) = segment_of(&geometry, entry) else { return };
            *records += u64::from(entry.is_record());
            if let Met::Block(block, entry) | Met::Owed(block, entry) = met
                && entry.is_record()
                && block < OWN_FIRST_BLOCK
            {
                mix.add_blocks(entry, 1);
            }
            let sum = live.entry(segment).or_default();
            // A frame occupies its whole length, however many of its blocks live.
            let (block, is_new) = match met {
                Met::Block(block, _) | Met::Owed(block, _) => (block, seen.is_new(block, entry)),
                Met::Node(_) => (OWN_FIRST_BLOCK, true),
            };
            if is_new {
                sum.units += u64::from(entry.units());
                sum.dead_units += u64::from(entry.units());
                if block < OWN_FIRST_BLOCK {
                    mix.add_record(entry);
                }
            }
            sum.dead_units -= match met {
                Met::Block(..) | Met::Owed(..) => u64::from(entry.share_units(block)),
                Met::Node(entry) => u64::from(entry.units()),
            };
            sum.records += 1;
            match &mut extents {
                _ if matches!(met, Met::Owed(..)) => {}
                Some(kept) if (kept.len() as u64) < most => kept.push(Extent::of(&met)),
                kept => *kept = None,
            }
        });
        walk.run(|nodes_count| progress(CheckProgress::Map { nodes_count })).await?;
        report.nodes_counts = walk.counts;
        let units: u64 = live.values().map(|live| live.units).sum();
        report.records_bytes = (units * layout::UNIT_BYTES as u64).saturating_sub(report.nodes_bytes);
        self.compare_table(&live, &mix, &mut report, &mut faults);

        let passes = if extents.is_some() { Vec::new() } else { passes(&live, geometry.segments(), most) };
        let mut pass =
            Pass { deep, report: &mut report, faults: &mut faults, progress: &mut progress, done_bytes: 0 };
        if let Some(extents) = extents {
            pass.run(shared, extents).await;
        }
        for segments in passes {
            let mut extents = Vec::new();
            // The first walk reported faults of nodes.
            let mut known = Faults::default();
            let mut walk = Walk::new(shared, &mut known, |met| {
                if let Met::Block(_, entry) | Met::Node(entry) = met
                    && segment_of(&geometry, entry).is_some_and(|segment| segments.contains(&segment))
                {
                    extents.push(Extent::of(&met));
                }
            });
            walk.run(|_| {}).await?;
            pass.run(shared, extents).await;
        }
        if deep {
            shared.examine_places(&mut report, &mut progress).await;
        }
        (report.faults, report.faults_count) = faults.into_parts();
        Ok(report)
    }

    /// Like [`Drive::examine`]. Returns the faults found, one line each.
    pub async fn check(&self, deep: bool) -> Result<Vec<String>, Error> {
        let report = self.examine(CheckOptions { deep, ..CheckOptions::default() }, |_| {}).await?;
        Ok(report.faults.iter().map(Fault::to_string).collect())
    }

    /// Damaged data that recovery has met. A deep check finds each record by itself; on a drive that was
    /// opened for writing it is like damage anywhere else, and may have been written anew.
    fn damage_in_log(&self, deep: bool) -> Option<Fault> {
        let core = self.0.core();
        let records = core.recovered.damaged_records_count;
        let counts = !deep && records > 0 && core.mode.is_read_only();
        counts.then(|| {
            let what =
                format!("damaged records in the newest log: {records}; a deep check says what is lost");
            Fault { subject: Subject::Log, ..Fault::new(what) }
        })
    }

    fn compare_table(
        &self,
        live: &HashMap<u32, Live>,
        mix: &Mix,
        report: &mut CheckReport,
        faults: &mut Faults,
    ) {
        let core = self.0.core();
        report.segments_count = core.segments.count();
        // All others are free, and hold nothing.
        let known: BTreeSet<u32> =
            core.segments.known().map(|(segment, _)| segment).chain(live.keys().copied()).collect();
        report.segments_free_count = report.segments_count - known.len() as u32;
        for segment in known {
            let row = core.segments.get(segment);
            match row.state() {
                SegmentState::Free | SegmentState::Waiting | SegmentState::Promised => {
                    report.segments_free_count += 1
                }
                SegmentState::Bad if core.geometry().is_far(segment) => {}
                SegmentState::Damaged | SegmentState::Bad => report.segments_damaged_count += 1,
                SegmentState::Open | SegmentState::Sealed => {}
            }
            let found = live.get(&segment).map_or(0, |live| live.units);
            if found != u64::from(row.live_units()) {
                faults.push(Fault::in_segment(
                    segment,
                    format!("the table says {} live units, the map points to {found}", row.live_units()),
                ));
            }
            let dead = live.get(&segment).map_or(0, |live| live.dead_units);
            if u64::from(row.repackable_units()) > dead {
                faults.push(Fault::in_segment(
                    segment,
                    format!("the table says {} units may be packed anew, of {dead}", row.repackable_units()),
                ));
            }
            if found > 0
                && matches!(row.state(), SegmentState::Free | SegmentState::Waiting | SegmentState::Promised)
            {
                faults.push(Fault::in_segment(segment, format!("free, but holds {found} live units")));
            }
        }
        let found = (report.records_count + report.owed_count, report.fills_count + report.owed_fills_count);
        if found != (core.map.live_blocks, core.map.fill_blocks) {
            faults.push(Fault::new(format!(
                "{} blocks and {} fills are counted, the map has {} and {}",
                core.map.live_blocks, core.map.fill_blocks, found.0, found.1
            )));
        } else if core.map.mix != *mix {
            faults.push(Fault::new(format!(
                "the kinds of records are counted as {:?}, the map has {mix:?}",
                core.map.mix
            )));
        }
    }
}

/// Frames found in a leaf. If several blocks have the same one, only the first is new.
#[derive(Default)]
struct SeenFrames {
    leaf: u64,
    /// First blocks and entries.
    frames: HashSet<(u64, Entry)>,
}

impl SeenFrames {
    fn is_new(&mut self, block: u64, entry: Entry) -> bool {
        let leaf = NodeId::leaf_of(block).index;
        if leaf != self.leaf {
            self.leaf = leaf;
            self.frames.clear();
        }
        !entry.is_frame() || self.frames.insert((entry.first_block(block), entry))
    }
}

/// Returns the segment of a record.
fn segment_of(geometry: &Geometry, entry: Entry) -> Option<u32> {
    entry.is_record().then(|| geometry.locate(entry.position_bytes())).flatten().map(|(segment, _)| segment)
}

/// Returns ranges of segments that hold a bounded number of records each.
fn passes(live: &HashMap<u32, Live>, count: u32, most: u64) -> Vec<Range<u32>> {
    let records = |segment| live.get(&segment).map_or(0, |live| live.records);
    let mut passes = Vec::new();
    let mut from = 0;
    while from < count {
        let (mut to, mut sum) = (from, 0);
        while to < count && (sum == 0 || sum + records(to) <= most) {
            sum += records(to);
            to += 1;
        }
        if sum > 0 {
            passes.push(from..to);
        }
        from = to;
    }
    passes
}
