//! An estimate of what is needed to read live data. Map entries do not say that, so some records are read.

use codec::CodecId;
use layout::entry::CLASSES;
use layout::{BLOCK_BYTES, Entry, UNIT_BYTES};
use media::Media;

use crate::shared::{Drive, Shared, yield_now};
use crate::state::sample::Random;
use crate::state::tally::Share;

/// Result of a survey.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Records read.
    pub records_count: u64,
    /// Estimates. Without data stored uncompressed.
    pub live: Vec<Surveyed>,
}

/// Estimate of the live data compressed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// Codec that decompresses it.
    pub codec: CodecId,
    /// The dictionary it needs; 0: none.
    pub dictionary: u16,
    /// It was compressed as well as the drive could at that time.
    pub settled: bool,
    /// Estimated amount.
    pub share: Share,
}

/// Observations of a class.
#[derive(Default)]
struct Seen {
    /// Weights of blocks and of their space.
    sum: (f64, f64),
    by: Vec<((CodecId, u16), (f64, f64))>,
}

impl<M: Media> Drive<M> {
    /// Reads up to `records` live records from places drawn at random, and estimates how much live data is
    /// compressed by which codec with which dictionary. The amount of frames of each size, settled or not, is
    /// known; it is divided in the proportions found. What cannot be read is left out.
    pub async fn survey(&self, records: usize) -> Survey {
        let shared = &self.0;
        let mut random = Random(shared.run.entropy ^ shared.core().log.sequence());
        let mut seen: [Seen; CLASSES] = Default::default();
        let mut survey = Survey::default();
        for place in shared.places(records, 1, &mut random).await {
            if let Some((entry, way)) = shared.way_of(place.first).await {
                survey.records_count += 1;
                let weights = (place.weight, place.weight * f64::from(entry.share_units(place.first)));
                let seen = &mut seen[entry.class()];
                let add = |to: &mut (f64, f64)| *to = (to.0 + weights.0, to.1 + weights.1);
                add(&mut seen.sum);
                match seen.by.iter_mut().find(|(known, _)| *known == way) {
                    Some((_, sum)) => add(sum),
                    None => seen.by.push((way, weights)),
                }
            }
            yield_now().await;
        }
        let mix = shared.core().map.mix;
        for (class, seen) in seen.iter().enumerate() {
            let settled = class > 4;
            for ((codec, dictionary), (blocks, units)) in &seen.by {
                let part =
                    |all: u64, some: f64, sum: f64| (all as f64 * some / sum.max(f64::MIN_POSITIVE)) as u64;
                let share = Share {
                    logical_bytes: part(mix.blocks[class], *blocks, seen.sum.0) * BLOCK_BYTES as u64,
                    physical_bytes: part(mix.units[class], *units, seen.sum.1) * UNIT_BYTES as u64,
                };
                let same = |it: &&mut Surveyed| {
                    (it.codec, it.dictionary, it.settled) == (*codec, *dictionary, settled)
                };
                match survey.live.iter_mut().find(same) {
                    Some(known) => {
                        known.share.logical_bytes += share.logical_bytes;
                        known.share.physical_bytes += share.physical_bytes;
                    }
                    None => {
                        survey.live.push(Surveyed { codec: *codec, dictionary: *dictionary, settled, share })
                    }
                }
            }
        }
        survey.live.sort_by_key(|it| (it.codec as u8, it.settled, it.dictionary));
        survey
    }
}

impl<M: Media> Shared<M> {
    /// Returns how the record of a block is compressed; `None`: there is none, or it cannot be read.
    async fn way_of(&self, block: u64) -> Option<(Entry, (CodecId, u16))> {
        let fetched = self.fetch_blocks(block, 1).await.ok()?;
        let header = fetched.header_of(block)?;
        Some((*fetched.entries().first()?, (CodecId::try_from(header.codec_number()).ok()?, header.extra)))
    }
}
