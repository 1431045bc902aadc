//! Conversion of sums into a report.

use std::collections::HashMap;

use layout::{BLOCK_BYTES, NODE_ENTRIES};

use crate::estimate::{Bound, Design, Interval, Tally, of_part};
use crate::frames::PARTS_A_BYTE;
use crate::layouts::Layout;
use crate::looks::Looks;
use crate::measure::{BlockTally, CostTally, RECORD_BYTES_MAX};
use crate::options::Options;
use crate::predict::{Evidence, PredictedDrive, Usage};
use crate::report::{
    Blocks, CodecResult, Data, LayoutResult, Mode, Part, REPORT_VERSION, ReadSummary, Report,
};
use crate::reservoir::Known;
use crate::source::{Population, Trouble};
use crate::worker::{ScanState, Sums};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Largest number of problem files listed. All are counted.
const TROUBLES_MAX: usize = 100;
/// Largest number of types, directories and files listed.
const PARTS_MAX: usize = 1000;

pub(crate) struct Outcome<'a> {
    pub(crate) options: &'a Options,
    pub(crate) population: &'a Population,
    pub(crate) state: Option<&'a ScanState<'a>>,
    pub(crate) sums: &'a Sums,
    /// Tallies at each look of samples drawn with replacement. Empty for streams, and if everything was read.
    pub(crate) looks: &'a Looks,
    /// True if everything was read.
    pub(crate) exact: bool,
    /// Facts about all blocks of a stream, known in addition to the samples.
    pub(crate) known: Option<Known>,
    pub(crate) seconds: f64,
}

impl Outcome<'_> {
    pub(crate) fn report(&self) -> Report {
        let troubles = self.population.troubles();
        let list = |some: &std::collections::BTreeMap<u32, String>| -> Vec<Trouble> {
            some.iter()
                .map(|(item, why)| Trouble { name: self.population.name(*item), why: why.clone() })
                .collect()
        };
        let mut unreadable = self.population.unlisted.clone();
        unreadable.extend(list(&troubles.unreadable));
        let mut changed = list(&troubles.changed);
        let counts = (unreadable.len() as u64, changed.len() as u64);
        unreadable.truncate(TROUBLES_MAX);
        changed.truncate(TROUBLES_MAX);
        let sums = self.sums;
        Report {
            version: REPORT_VERSION,
            program_version: env!("CARGO_PKG_VERSION").to_string(),
            sources: Vec::new(),
            mode: if self.exact { Mode::Full } else { Mode::Sample },
            confidence: self.options.confidence,
            precision_points: self.options.precision * 100.0,
            unit_precision_points: self.options.unit_precision.map(|precision| precision * 100.0),
            seed: self.options.seed,
            data: Data {
                files_count: self.population.items().len() as u64 + self.population.not_kept_count,
                directories_count: self.population.directories_count,
                apparent_bytes: self.population.bytes,
                data_bytes: self.blocks() * BLOCK,
                hole_bytes: self.population.hole_blocks * BLOCK,
            },
            read: ReadSummary {
                bytes: match self.state {
                    Some(state) => state.read_bytes.load(std::sync::atomic::Ordering::Relaxed),
                    None => self.population.bytes,
                },
                blocks_count: sums.blocks.count(),
                units_count: sums.units.count,
                seconds: self.seconds,
            },
            blocks: self.block_shares(),
            codecs: self.codecs(),
            layouts: self.layouts(),
            predicted_drive: self.predicted(),
            by_type: self.parts(&sums.parts.types, |number, state| {
                state.types.lock().map(|names| names.name(number).to_string()).unwrap_or_default()
            }),
            by_directory: self.parts(&sums.parts.groups, |number, _| {
                self.population.groups().get(number as usize).cloned().unwrap_or_default()
            }),
            largest_files: self.parts(&sums.parts.files, |number, _| self.population.name(number)),
            skipped: self.population.skipped,
            unreadable_count: counts.0,
            unreadable,
            changed_count: counts.1,
            changed,
            notes: self.population.notes.clone(),
        }
    }

    /// Number of blocks; after an exact scan, of those that could be read.
    fn blocks(&self) -> u64 {
        if self.exact { self.sums.blocks.count() } else { self.population.blocks() }
    }

    /// Returns the interval for the mean of a quantity: from its tallies at the looks if there are any, else
    /// from the tally of all samples.
    fn interval(&self, design: &Design, all: &Tally, looks: Vec<Tally>) -> (Interval, Bound) {
        match looks.is_empty() {
            true => design.interval(all, self.exact),
            false => design.sequence(&looks),
        }
    }

    /// Returns the mean of values 0 and 1 with its interval; exact if `known` gives the count for all blocks.
    fn share(&self, of: impl Fn(&BlockTally) -> Tally, known: Option<u64>) -> Interval {
        if let (Some(count), Some(all)) = (known, self.known) {
            return Interval::exact(count as f64 / all.blocks.max(1) as f64);
        }
        let looks = self.looks.blocks.iter().map(|look| of(&look.blocks)).collect();
        self.interval(&self.options.block_design().for_range(1.0), &of(&self.sums.blocks), looks).0
    }

    fn block_shares(&self) -> Blocks {
        Blocks {
            zero: self.share(|blocks| blocks.zeros, self.known.map(|known| known.zeros)),
            fill: self.share(|blocks| blocks.fills, self.known.map(|known| known.fills)),
            incompressible: self.share(|blocks| blocks.raw, None),
        }
    }

    fn codecs(&self) -> Vec<CodecResult> {
        let design = self.options.block_design();
        let blocks = &self.sums.blocks;
        let rows = self.options.codecs().into_iter().zip(&blocks.records).zip(&blocks.speeds);
        rows.enumerate()
            .map(|(at, ((codec, records), speed))| {
                let looks = self.looks.blocks.iter().map(|look| look.blocks.records[at]).collect();
                let (bytes, bound) = self.interval(&design, records, looks);
                let speed = speed.mb_per_second();
                CodecResult {
                    codec: codec.to_string(),
                    unit_bytes: BLOCK_BYTES,
                    stored: bytes.scaled(1.0 / BLOCK as f64),
                    ratio: self.ratio(bytes),
                    bound,
                    compress_mb_per_second: speed.map(|(compress, _)| compress),
                    decompress_mb_per_second: speed.map(|(_, decompress)| decompress),
                }
            })
            .collect()
    }

    /// Logical bytes per stored byte. Even a fill needs a map entry, at least a 512th of a leaf that is one
    /// run.
    fn ratio(&self, bytes: Interval) -> Interval {
        let least = 32.0 / NODE_ENTRIES as f64;
        let floored = Interval {
            estimate: bytes.estimate.max(least),
            low: bytes.low.max(least),
            high: bytes.high.max(least),
        };
        floored.dividing(BLOCK as f64)
    }

    fn layouts(&self) -> Vec<LayoutResult> {
        let Some(design) = self.options.unit_design() else { return Vec::new() };
        let units = &self.sums.units;
        let row = |(at, rival): (usize, crate::layouts::Rival)| {
            let looks = self.looks.units.iter().map(|look| look.rivals[at]).collect();
            let (mut bytes, bound) = self.interval(&design, &units.rivals[at], looks);
            if self.exact {
                bytes = Interval::exact(units.rival_bytes[at] as f64 / units.blocks.max(1) as f64);
            }
            let (layout, unit_bytes) = match rival.layout {
                Layout::Sectors { unit_bytes } => ("sectors", unit_bytes),
                Layout::Vdo => ("vdo", BLOCK_BYTES),
            };
            LayoutResult {
                layout: layout.to_string(),
                like: rival.like().to_string(),
                unit_bytes,
                codec: rival.codec.to_string(),
                stored: bytes.scaled(1.0 / BLOCK as f64),
                ratio: self.ratio(bytes),
                bound,
            }
        };
        self.options.rivals().into_iter().enumerate().map(row).collect()
    }

    /// Means over groups, whose values are in fractions of a byte.
    fn usage(&self, design: &Design, all: &CostTally, looks: &[CostTally]) -> Usage {
        let interval = |of: fn(&CostTally) -> Tally, more: f64| {
            let design = design.for_range((design.range + more) * PARTS_A_BYTE as f64);
            let looks = looks.iter().map(of).collect();
            self.interval(&design, &of(all), looks).0.scaled(1.0 / PARTS_A_BYTE as f64)
        };
        // A block adds at most eight bytes to the map.
        let (records, mapped) = (interval(|cost| cost.records, 0.0), interval(|cost| cost.mapped, 8.0));
        Usage { records, mapped, leaves: None }
    }

    fn predicted(&self) -> Option<PredictedDrive> {
        let design = self.options.block_design();
        let sums = self.sums;
        let leaves = sums.leaves.map(|leaves| self.exact.then_some(leaves));
        let framed: Vec<CostTally> = self.looks.blocks.iter().map(|look| look.framed).collect();
        let single: Vec<CostTally> = self.looks.blocks.iter().map(|look| look.single).collect();
        let framed = Usage { leaves: leaves[0], ..self.usage(&design, &sums.framed, &framed) };
        let single = Usage { leaves: leaves[1], ..self.usage(&design, &sums.single, &single) };
        // A drive that does not compress does not compress cold data either.
        let settles = self.options.codec != codec::Policy::None;
        let settled = self.options.unit_design().filter(|_| settles).map(|design| {
            let looks: Vec<CostTally> = self.looks.units.iter().map(|look| look.settled).collect();
            let usage = self.usage(&design.for_range(RECORD_BYTES_MAX as f64), &sums.units.settled, &looks);
            let a_block = |bytes: u64| Interval::exact(bytes as f64 / sums.units.blocks.max(1) as f64);
            let all = sums.units.settled_sum;
            if self.exact {
                Usage { records: a_block(all.records), mapped: a_block(all.records + all.map), leaves: None }
            } else {
                usage
            }
        });
        PredictedDrive::new(&Evidence {
            codec: self.options.codec.to_string(),
            parity: self.options.parity,
            blocks: self.blocks(),
            fills: self.share(
                |blocks| blocks.zeros.or(&blocks.fills),
                self.known.map(|known| known.zeros + known.fills),
            ),
            framed,
            single,
            settled,
        })
    }

    fn parts(&self, parts: &HashMap<u32, Tally>, name: impl Fn(u32, &ScanState<'_>) -> String) -> Vec<Part> {
        let Some(state) = self.state else { return Vec::new() };
        let design = self.options.block_design().for_range((RECORD_BYTES_MAX * PARTS_A_BYTE) as f64);
        let bytes = 1.0 / PARTS_A_BYTE as f64;
        // Parts are tallied over groups, which are read only as long as the prediction needs samples.
        let scale = match self.sums.framed.records.count {
            0 => 0.0,
            count => self.blocks() as f64 / count as f64,
        };
        let part = |(number, tally): (&u32, &Tally)| Part {
            name: name(*number, state),
            data_bytes: (tally.count as f64 * BLOCK as f64 * scale) as u64,
            stored_bytes: (tally.sum as f64 * bytes * scale) as u64,
            samples_count: tally.count,
            ratio: self.ratio(of_part(&design, tally, self.exact).0.scaled(bytes)),
        };
        let mut parts: Vec<Part> = parts.iter().map(part).collect();
        parts.sort_by(|a, b| b.stored_bytes.cmp(&a.stored_bytes).then_with(|| a.name.cmp(&b.name)));
        parts.truncate(PARTS_MAX);
        parts
    }
}
