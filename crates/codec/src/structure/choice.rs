//! Choice of a transform by looking at the data.

use std::ops::RangeInclusive;

use super::columns::{Change, Columns};
use super::difference::Difference;
use super::entropy::{COUNTED_MAX, Counts};
use super::gradient::Gradient;
use super::look::{self, Code};
use super::transform::Transform;
use super::{row, stride};

/// How to compress data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Without a transform.
    Plain,
    /// With a transform.
    Transformed(Transform, Coding),
    /// With it or without, whichever is smaller.
    Either(Transform, Coding),
}

/// How zstd compresses transformed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// As usual.
    Matches,
    /// Entropy coding only: a search for matches would find little, and make the literals more expensive.
    Literals,
}

/// One plausible branch in so many bytes is code.
const CODE_ONE_IN: usize = 80;
/// Repeats in 1024 places up to which matches gain little.
const REPEATS_FEW: usize = 32;
/// Repeats from which data is no array of numbers.
const REPEATS_SOME: usize = 512;
/// Bytes by which the changes of columns are judged when there is time.
const CHANGES_BYTES: usize = 4096;
/// Share of equal bytes from which it is worth trying records, in 65536ths.
const SHARE_MIN: u32 = 65536 / 12;
/// Share of equal bytes at a distance from which data may be records, in 65536ths.
const RECORDS_FROM: u32 = 65536 / 2;
/// Data of at least this length may hold pages of several kinds.
const PAGES_FROM_BYTES: usize = 16 << 10;
/// Lengths of records in which columns are smaller if other distances have few equal bytes.
const RECORDS_SURE: RangeInclusive<usize> = 16..=64;
/// Bytes in which records are looked for in a hurry.
const RECORDS_BYTES: usize = 1152;

/// Chooses quickly. `is_even`: all byte values are about as frequent, but for runs. Of all that is looked
/// for, only numbers that fill their range are so.
pub(super) fn quick(data: &[u8], is_even: bool) -> Choice {
    if !is_even && look::is_text(data) {
        return Choice::Plain;
    }
    match (!is_even).then(|| look::code(data, CODE_ONE_IN)).flatten() {
        Some(Code::X86) => return Choice::Transformed(Transform::X86, Coding::Matches),
        // Less certain: words of other data look like a branch more often than bytes.
        Some(Code::Arm64) => return Choice::Either(Transform::Arm64, Coding::Matches),
        None => {}
    }
    let repeats = look::repeats(data);
    let few = repeats <= REPEATS_FEW;
    if (few || repeats <= REPEATS_SOME && look::is_smooth(data))
        && let Some(choice) = numbers(data, few)
    {
        return choice;
    }
    if is_even {
        return Choice::Plain;
    }
    let sample = &data[data.len() / 8 * 5..];
    let sample = &sample[..sample.len().min((data.len() / 6).min(RECORDS_BYTES))];
    let (record, _, mean) = stride::find(sample, stride::usual());
    if record.share >= RECORDS_FROM
        && record.share.saturating_sub(mean) > mean / 4
        && elsewhere(data, record.bytes)
        && let Some(columns) = Columns::new(record.bytes, 0)
    {
        let transform = Transform::Columns(columns.with_change(Change::Difference));
        let is_sure = record.share > 4 * mean && RECORDS_SURE.contains(&record.bytes);
        return if is_sure {
            Choice::Transformed(transform, Coding::Matches)
        } else {
            Choice::Either(transform, Coding::Matches)
        };
    }
    Choice::Plain
}

/// Returns whether a frame has such records in its first half, too, and not only in one of its pages.
fn elsewhere(data: &[u8], bytes: usize) -> bool {
    let sample = &data[data.len() / 8..];
    let sample = &sample[..sample.len().min(RECORDS_BYTES)];
    data.len() < PAGES_FROM_BYTES || stride::share(sample, bytes) >= RECORDS_FROM / 4 * 3
}

/// Chooses for arrays of numbers, which have `few` repeats or some. `None`: it is none, or has nothing to
/// gain.
fn numbers(data: &[u8], few: bool) -> Option<Choice> {
    let (mut planes, mut differences) = ([Counts::new(), Counts::new()], Counts::new());
    let bytes_max = if few { COUNTED_MAX } else { COUNTED_MAX / 2 };
    for part in parts(data, bytes_max) {
        let mut before = part.first().copied().unwrap_or_default();
        for pair in part.as_chunks::<2>().0 {
            planes[0].add(pair[0]);
            planes[1].add(pair[1]);
            differences.add(pair[0].wrapping_sub(before));
            differences.add(pair[1].wrapping_sub(pair[0]));
            before = pair[1];
        }
    }
    let [even, odd] = planes;
    let mut whole = Counts::new();
    whole.merge(&even);
    whole.merge(&odd);
    let (whole_bits, difference_bits) = (whole.bits(), differences.bits());
    let gains = difference_bits < whole_bits - whole_bits / 16;
    let split_bits = even.bits() + odd.bits();
    if gains && difference_bits < split_bits {
        let sampled = differences.measured().1;
        let difference = Transform::Difference(Difference::new(0, 1)?);
        let (transform, difference_bits) =
            picture(data, difference_bits).unwrap_or((difference, difference_bits));
        return Some(match few {
            true => Choice::Transformed(transform, Coding::Literals),
            // What repeats does so in differences, too.
            false if difference_bits < whole_bits / 4 * 3 => {
                let low = difference_bits < LOW_BITS * sampled;
                let coding = if low { Coding::Matches } else { Coding::Literals };
                Choice::Transformed(transform, coding)
            }
            false => Choice::Either(transform, Coding::Matches),
        });
    }
    // Floats of 32 bits have one byte in four that is not random.
    let gain_from = if few { 128 } else { 24 };
    if split_bits >= whole_bits - whole_bits / gain_from {
        return None;
    }
    // Numbers of 16 bits with a random byte each, as bfloat16: those of 32 bits have one in both planes.
    let half = even.measured().1;
    if few && even.bits() >= 7 * half && odd.bits() <= 6 * half {
        let rotated = weighed(&counted::<2>(data, Rows::Rotated), None, 1);
        let plain = weighed(&[even, odd], Some(&counted::<2>(data, Rows::Differences)), 0);
        // Of pixels of 12 bits, each is like the one but one before.
        let four = (data.len() >= PAGES_FROM_BYTES)
            .then(|| [Rows::AsTheyAre, Rows::Differences].map(|rows| counted::<4>(data, rows)))
            .and_then(|[plain, differences]| weighed(&plain, Some(&differences), 0));
        let (_, columns, coding) =
            plain.into_iter().chain(rotated).chain(four).min_by_key(|(bits, ..)| *bits)?;
        return Some(Choice::Transformed(Transform::Columns(columns), coding));
    }
    let (columns, coding) = number_columns(data)?;
    Some(Choice::Either(Transform::Columns(columns), coding))
}

/// Shortest data whose rows are looked for in a hurry: it takes the same time for less data.
const PICTURES_FROM_BYTES: usize = 16 << 10;

/// Places of which the rows of a picture are judged, and bytes counted at each.
const PICTURE_PARTS: usize = 4;
const PICTURE_PART_BYTES: usize = 256;

/// Returns the transform for a picture, and its bits where the differences between neighbours need so many.
/// `None`: the row above says little.
fn picture(data: &[u8], difference_bits: u32) -> Option<(Transform, u32)> {
    if data.len() < PICTURES_FROM_BYTES {
        return None;
    }
    let row_bytes = row::find(data, row::QUICK)?;
    let (mut neighbours, mut both) = (Counts::new(), Counts::new());
    let behind = usize::from(row_bytes) + 1;
    for number in 0..PICTURE_PARTS {
        let from = behind + (data.len() - behind) / PICTURE_PARTS * number;
        let window = |back: usize| &data[from - back..][..PICTURE_PART_BYTES.min(data.len() - from)];
        let above = window(behind - 1).iter().zip(window(behind));
        for ((byte, left), (above, above_left)) in window(0).iter().zip(window(1)).zip(above) {
            let change = byte.wrapping_sub(*left);
            neighbours.add(change);
            both.add(change.wrapping_sub(above.wrapping_sub(*above_left)));
        }
    }
    let (neighbours, both) = (u64::from(neighbours.bits()), u64::from(both.bits()));
    if both >= neighbours - neighbours / 32 {
        return None;
    }
    let bits = u64::from(difference_bits) * both / neighbours;
    Some((Transform::Gradient(Gradient::new(row_bytes)?), bits as u32))
}

/// Parts of data that are counted, at multiples of 8 bytes.
fn parts(data: &[u8], bytes_max: usize) -> impl Iterator<Item = &[u8]> {
    const PARTS: usize = 4;
    let step = (data.len() / PARTS / 8 * 8).max(8);
    let part_bytes = (data.len() / 4).clamp(1024, bytes_max) / PARTS;
    data.chunks(step).take(PARTS).map(move |part| &part[..part.len().min(part_bytes) / 8 * 8])
}

/// A column with fewer bits a byte than this has runs, which matches shorten further.
const LOW_BITS: u32 = 2;

/// Columns are worth trying if they save one bit in so many sampled bytes, at least.
const WORTH_FROM: u32 = 16;

/// Sampled bytes of a column to which its entropy is underestimated by as much as it is.
const FEW_SAMPLES: u32 = 24;

/// Returns the columns of 2, 4 or 8 bytes that make an array of numbers smallest, and how to code them.
fn number_columns(data: &[u8]) -> Option<(Columns, Coding)> {
    if !are_distinct(data) {
        return None;
    }
    let eight = counted::<8>(data, Rows::AsTheyAre);
    let merged = |column: usize, stride: usize| {
        let mut counts = Counts::new();
        (column..8).step_by(stride).for_each(|column| counts.merge(&eight[column]));
        counts
    };
    let four: [Counts; 4] = std::array::from_fn(|column| merged(column, 4));
    let two: [Counts; 2] = std::array::from_fn(|column| merged(column, 2));
    let candidates = [
        weighed(&two, Some(&counted::<2>(data, Rows::Differences)), 0),
        weighed(&counted::<2>(data, Rows::Rotated), None, 1),
        weighed(&four, Some(&counted::<4>(data, Rows::Differences)), 0),
        weighed(&counted::<4>(data, Rows::Rotated), None, 2),
        weighed(&eight, None, 0),
    ];
    let best = candidates.into_iter().flatten().min_by_key(|(bits, ..)| *bits);
    // Random bytes look as if they had a little structure in each sample.
    let sampled: u32 = two.iter().map(|counts| counts.measured().1).sum();
    let worth = 8 * sampled - sampled / WORTH_FROM;
    best.filter(|(bits, ..)| *bits < worth).map(|(_, columns, coding)| (columns, coding))
}

/// Equal pairs of bytes within columns that are as many by chance.
const PAIRS_SOME: u32 = 64;
/// Columns have more of them than mixed ones by one in so many, if they are distinct.
const PAIRS_MORE: u32 = 32;

type Row = [u8; 8];

/// Returns whether columns of eight bytes, or of the differences of numbers, are distinct: whether each has
/// more equal bytes than if its rows had been rotated, each by what follows from its bytes alone. Entropies
/// do not tell that from so few bytes: those of parts are less than that of all, whatever they are. Nor do
/// equal rows, which zstd finds.
fn are_distinct(data: &[u8]) -> bool {
    let mixed = equal_pairs(data, |_, row| {
        // Fibonacci hashing (Knuth, TAOCP 6.4).
        let by = u64::from_le_bytes(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
        u64::from_le_bytes(row).rotate_left(8 * by as u32).to_le_bytes()
    });
    let enough = mixed + mixed / PAIRS_MORE + PAIRS_SOME;
    // Of a signal that fills its range all columns have all values, but numbers are like those before them.
    let changes = |distance: usize| {
        equal_pairs(data, |before, row| {
            std::array::from_fn(|at| match at.checked_sub(distance) {
                Some(earlier) => row[at].wrapping_sub(row[earlier]),
                None => row[at].wrapping_sub(before[8 + at - distance]),
            })
        })
    };
    equal_pairs(data, |_, row| row) > enough || changes(2) > enough || changes(4) > enough
}

/// Counts equal pairs of bytes within columns of eight. `make` makes what is counted of a row and the one
/// before it.
fn equal_pairs(data: &[u8], make: impl Fn(Row, Row) -> Row) -> u32 {
    let mut counts: [Counts; 8] = std::array::from_fn(|_| Counts::new());
    let mut pairs = 0;
    for part in parts(data, COUNTED_MAX) {
        let mut before = Row::default();
        for &row in part.as_chunks::<8>().0 {
            // Rows of one byte say nothing of columns.
            if row != [row[0]; 8] {
                let made = make(before, row);
                pairs += counts
                    .iter_mut()
                    .zip(made)
                    .map(|(counts, byte)| u32::from(counts.add(byte)))
                    .sum::<u32>();
            }
            before = row;
        }
    }
    pairs
}

/// What is counted of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    AsTheyAre,
    /// Each rotated by a bit, as a float with its sign last.
    Rotated,
    /// Differences from the row before.
    Differences,
}

/// Counts the bytes of each column in rows of `STRIDE` bytes.
fn counted<const STRIDE: usize>(data: &[u8], rows: Rows) -> [Counts; STRIDE] {
    let mut counts = std::array::from_fn(|_| Counts::new());
    let mask = if rows == Rows::Differences { u8::MAX } else { 0 };
    for part in parts(data, COUNTED_MAX) {
        let mut before = [0; STRIDE];
        for row in part.as_chunks::<STRIDE>().0 {
            let row = if rows == Rows::Rotated {
                std::array::from_fn(|at| row[at] << 1 | row[(at + STRIDE - 1) % STRIDE] >> 7)
            } else {
                *row
            };
            for column in 0..STRIDE {
                counts[column].add(row[column].wrapping_sub(before[column] & mask));
            }
            before = row;
        }
    }
    counts
}

/// Returns the bits of columns, each with its best change, and how to code them.
fn weighed(
    plain: &[Counts],
    differences: Option<&[Counts]>,
    rotated_log: u8,
) -> Option<(u32, Columns, Coding)> {
    let mut columns = Columns::new(plain.len(), rotated_log)?;
    let (mut sum, mut sampled, mut coding) = (0, 0, Coding::Literals);
    for (column, counts) in plain.iter().enumerate() {
        let (mut bits, total) = counts.measured();
        if let Some(differences) = differences {
            let changed = differences[column].bits();
            if changed < bits - bits / 32 {
                columns.set_change(column, Change::Difference);
                bits = changed;
            }
        }
        if bits < LOW_BITS * total {
            coding = Coding::Matches;
        }
        sum += bits.min(8 * total);
        sampled += total;
    }
    // More columns have fewer bytes each: their entropy is underestimated, and their tables take more.
    Some((sum + sum * plain.len() as u32 * FEW_SAMPLES / sampled.max(1), columns, coding))
}

/// Most candidates of [`thorough`].
const CANDIDATES_MAX: usize = 13;

/// Returns the transforms worth trying on data, without much regard to the time it takes to try them.
pub(super) fn thorough(data: &[u8]) -> impl Iterator<Item = Transform> {
    let mut candidates = [None; CANDIDATES_MAX];
    if !look::is_text(data) {
        let columns = |stride: usize, rotated_log| {
            let rows = CHANGES_BYTES / stride.max(1);
            Columns::new(stride, rotated_log).map(|it| Transform::Columns(it.with_changes(data, rows)))
        };
        let difference = |width_log, distance: usize| {
            Difference::new(width_log, distance as u16).map(Transform::Difference)
        };
        let code = look::code(data, 8 * CODE_ONE_IN).map(|code| match code {
            Code::X86 => Transform::X86,
            Code::Arm64 => Transform::Arm64,
        });
        candidates[..2].copy_from_slice(&[code, difference(0, 1)]);
        let numbers = [(2, 0), (2, 1), (4, 0), (4, 2), (8, 0), (8, 3)];
        for (candidate, (stride, rotated_log)) in candidates[2..8].iter_mut().zip(numbers) {
            *candidate = columns(stride, rotated_log);
        }
        let rows = row::find(data, row::THOROUGH).and_then(Gradient::new);
        candidates[8] = rows.map(Transform::Gradient);
        let (one, two, mean) = stride::find(data, stride::all());
        if one.share > SHARE_MIN && one.share > mean + mean / 8 {
            candidates[9..].copy_from_slice(&[
                columns(one.bytes, 0),
                columns(two.bytes, 0),
                difference(0, one.bytes),
                difference(1, one.bytes),
            ]);
        }
    }
    candidates.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    fn quick(data: &[u8]) -> Choice {
        super::quick(data, crate::detect::rest_is_even(data))
    }

    #[test]
    fn each_kind_gets_its_transform() {
        let rows = |choice: Choice| match choice {
            Choice::Transformed(Transform::Columns(columns), _)
            | Choice::Either(Transform::Columns(columns), _) => (columns.stride(), columns.rotated_log()),
            other => unreachable!("{other:?}"),
        };
        for len in [4096, 32_768] {
            for seed in 0..8 {
                let choices = |make: fn(u64, usize) -> Vec<u8>| quick(&make(seed, len));
                assert_eq!(rows(choices(testdata::bfloat16)), (2, 1), "{len}");
                // The samples of a block hardly show more than that there are columns, and those of a frame
                // not whether rotation helps.
                let (stride, _) = rows(choices(testdata::float32));
                assert!(stride == 4 || len == 4096, "{stride}");
                assert_eq!(rows(choices(testdata::samples16)), (2, 0), "{len}");
                assert_eq!(rows(choices(testdata::records)), (24, 0), "{len}");
                let code = Choice::Transformed(Transform::X86, Coding::Matches);
                assert_eq!(choices(testdata::x86_code), code);
                let one = Difference::new(0, 1).map(Transform::Difference);
                let smooth = choices(testdata::smooth);
                assert!(matches!(smooth, Choice::Transformed(it, _) if Some(it) == one), "{smooth:?}");
                assert_eq!(choices(testdata::random), Choice::Plain);
                let picture = |row: usize| quick(&testdata::picture(seed, row, len));
                let rows = Gradient::new(1000).map(Transform::Gradient);
                let found = picture(1000);
                let is_found = matches!(found, Choice::Transformed(it, _) if Some(it) == rows);
                assert!(is_found || len == 4096, "{found:?}");
            }
        }
    }

    /// Blocks that are random up to some place and zeros behind it, as fio's are: each column has fewer
    /// values than all together, and so a lower entropy as far as a sample shows.
    #[test]
    fn random_bytes_and_zeros_are_no_numbers() {
        for percent in (0..100).step_by(5) {
            for len in [4096, 8192, 32_768] {
                let mut data = testdata::fio_like(percent, 64 * len, percent as u32);
                let chosen = data.chunks(len).filter(|data| quick(data) != Choice::Plain).count();
                assert!(chosen <= 1, "{chosen} of 64 at {percent} %, {len}");
                // Equal rows say nothing, whatever their columns.
                data.chunks_mut(2048).for_each(|piece| piece.copy_within(..1024, 1024));
                let chosen = data.chunks(len).filter(|data| quick(data) != Choice::Plain).count();
                assert!(chosen <= 8, "{chosen} of 64 at {percent} %, {len}, twice");
            }
        }
    }

    /// Signals that fill the range of 16 bits: each byte of a number has all values, and so have the bytes of
    /// rotated rows.
    #[test]
    fn numbers_that_fill_their_range_are_found() {
        let noise = testdata::random(1, 1 << 16);
        let signal = |value: &dyn Fn(f64) -> f64| -> Vec<u8> {
            let values =
                (0..1 << 15).zip(&noise).map(|(at, noise)| value(f64::from(at)) + f64::from(*noise) - 127.5);
            values.flat_map(|value| (value.clamp(0.0, 65535.0) as u16).to_le_bytes()).collect()
        };
        let triangle = signal(&|at| 65535.0 - (at * 60.0 % 131_072.0 - 65535.0).abs());
        let tones = signal(&|at| 32767.0 + 18000.0 * (at * 0.021).sin() + 14000.0 * (at * 0.047).sin());
        for (data, name) in [(triangle, "triangle"), (tones, "tones")] {
            let found = data.chunks(4096).filter(|data| quick(data) != Choice::Plain).count();
            assert!(found >= 14, "{found} of 16, {name}");
        }
    }

    #[test]
    fn numbers_are_found_in_half_a_block() {
        for seed in 0..20 {
            let mut floats = testdata::float32(seed, 4096);
            floats[2048..].fill(0);
            assert_ne!(quick(&floats), Choice::Plain);
        }
    }

    #[test]
    fn short_data_is_looked_at_without_harm() {
        for len in 0..600 {
            for make in [testdata::bfloat16, testdata::records, testdata::x86_code, testdata::random] {
                let data = make(len as u64, len);
                quick(&data);
                thorough(&data).for_each(drop);
            }
        }
    }
}
