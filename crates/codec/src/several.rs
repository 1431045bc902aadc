//! Dictionaries for data of several kinds, for which one dictionary is too small.

use crate::train::fit;
use crate::{CodecId, Dictionary, Policy, TrainError, UNIT_BYTES, train, with_compressor};

/// Fewest samples of a kind for a dictionary of its own. Fewer are not enough for training, and too rare to
/// matter.
const SAMPLES_MIN: usize = 64;
/// Rounds of grouping by byte counts. Further ones change little.
const ROUNDS: usize = 8;
/// Sum to which the byte counts of a sample are scaled.
const SCALE: u32 = 1 << 16;
/// A sample belongs to a dictionary if that saves at least one byte in this many.
const SAVES_FROM: usize = 32;

/// Trains up to `count_max` dictionaries, each for one kind of data found among the samples. The samples are
/// grouped by their byte counts first (k-means). They are then regrouped by the dictionary that compresses
/// them best, and the dictionaries are trained again. The same samples in the same order give the same
/// dictionaries. The requirements of [`train`] on samples, length and level apply to each.
///
/// [`choose`](crate::choose) selects among them for a block.
///
/// # Errors
/// [`TrainError`] if no dictionary could be made.
pub fn train_several(
    samples: &[&[u8]],
    count_max: usize,
    max_bytes: usize,
    level: i8,
) -> Result<Vec<Vec<u8>>, TrainError> {
    let fitting: Vec<&[u8]> = samples.iter().copied().filter(|sample| fit(sample)).collect();
    if count_max <= 1 || fitting.len() < 2 * SAMPLES_MIN {
        return train(samples, max_bytes, level).map(|dictionary| vec![dictionary]);
    }
    let first = trained(&fitting, &sorted(&fitting, count_max), count_max, max_bytes, level);
    let numbers = 1..=u16::MAX;
    let dictionaries: Vec<Dictionary> =
        numbers.zip(&first).filter_map(|(id, bytes)| Dictionary::new(id, &bytes[..]).ok()).collect();
    let second = trained(&fitting, &served(&fitting, &dictionaries), dictionaries.len(), max_bytes, level);
    if second.is_empty() {
        return train(samples, max_bytes, level).map(|dictionary| vec![dictionary]);
    }
    Ok(second)
}

/// Trains a dictionary for each group that is large enough. `groups` holds the group of each sample.
fn trained(
    samples: &[&[u8]],
    groups: &[Option<usize>],
    count: usize,
    max_bytes: usize,
    level: i8,
) -> Vec<Vec<u8>> {
    let dictionary = |group| {
        let members = samples.iter().zip(groups).filter(|(_, of)| **of == Some(group));
        let members: Vec<&[u8]> = members.map(|(sample, _)| *sample).collect();
        if members.len() < SAMPLES_MIN {
            return None;
        }
        // A group that gives no dictionary is left out.
        train(&members, max_bytes, level).ok()
    };
    (0..count).filter_map(dictionary).collect()
}

/// Returns, for each sample, the dictionary that makes it smallest, if it saves enough.
fn served(samples: &[&[u8]], dictionaries: &[Dictionary]) -> Vec<Option<usize>> {
    with_compressor(Policy::Auto, |compressor, out| {
        let mut bytes = |sample: &[u8], dictionary: Option<&Dictionary>| {
            out.clear();
            match compressor.compress(sample, dictionary, out) {
                CodecId::Raw => sample.len() + UNIT_BYTES,
                _ => out.len(),
            }
        };
        // The outer loop is over dictionaries, because a change of dictionary is expensive for a compressor.
        let mut best: Vec<(usize, Option<usize>)> = samples
            .iter()
            .map(|sample| {
                let without = bytes(sample, None);
                (without - without / SAVES_FROM, None)
            })
            .collect();
        for (number, dictionary) in dictionaries.iter().enumerate() {
            for (sample, best) in samples.iter().zip(&mut best) {
                let with = bytes(sample, Some(dictionary));
                if with < best.0 {
                    *best = (with, Some(number));
                }
            }
        }
        best.into_iter().map(|(_, number)| number).collect()
    })
}

type Counts = [u32; 256];

/// Groups samples with similar byte counts: k-means (Lloyd, 1982), initialised as in k-means++ (Arthur and
/// Vassilvitskii, 2007), with sums of absolute differences as distances.
fn sorted(samples: &[&[u8]], count: usize) -> Vec<Option<usize>> {
    let points: Vec<Counts> = samples.iter().map(|sample| counts(sample)).collect();
    let mut random = 0x70_75_6d_69_63_65_u64;
    let mut centres = vec![points[0]];
    let mut nearest = vec![u64::MAX; points.len()];
    while centres.len() < count {
        let newest = centres[centres.len() - 1];
        for (nearest, point) in nearest.iter_mut().zip(&points) {
            // Squared: samples far from all centres are more likely to be drawn.
            *nearest = (*nearest).min(distance(point, &newest).pow(2) >> 8);
        }
        let sum: u64 = nearest.iter().sum();
        if sum == 0 {
            break;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut left = ((u128::from(random) * u128::from(sum)) >> 64) as u64;
        let drawn = nearest.iter().position(|&weight| {
            let here = left < weight;
            left = left.saturating_sub(weight);
            here
        });
        centres.push(points[drawn.unwrap_or(0)]);
    }
    let mut groups = Vec::new();
    for _ in 0..ROUNDS {
        groups = points.iter().map(|point| closest(point, &centres)).collect();
        for (number, centre) in centres.iter_mut().enumerate() {
            let (mut sums, mut members) = ([0_u64; 256], 0);
            for (point, _) in points.iter().zip(&groups).filter(|(_, of)| **of == Some(number)) {
                members += 1;
                sums.iter_mut().zip(point).for_each(|(sum, &count)| *sum += u64::from(count));
            }
            if members > 0 {
                centre.iter_mut().zip(sums).for_each(|(mean, sum)| *mean = (sum / members) as u32);
            }
        }
    }
    groups
}

fn closest(point: &Counts, centres: &[Counts]) -> Option<usize> {
    (0..centres.len()).min_by_key(|&number| distance(point, &centres[number]))
}

fn distance(one: &Counts, two: &Counts) -> u64 {
    one.iter().zip(two).map(|(one, two)| u64::from(one.abs_diff(*two))).sum()
}

fn counts(sample: &[u8]) -> Counts {
    let mut counts = [0; 256];
    for &byte in sample {
        counts[usize::from(byte)] += 1;
    }
    let len = u64::try_from(sample.len().max(1)).unwrap_or(u64::MAX);
    counts.map(|count: u32| (u64::from(count) * u64::from(SCALE) / len) as u32)
}
