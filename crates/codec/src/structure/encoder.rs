//! Writing of payloads.

use crate::detect::rest_is_even;
use crate::{Dictionary, UNIT_BYTES, zstd};

use super::choice::{self, Choice, Coding};
use super::effort::Effort;
use super::header;
use super::transform::Transform;

/// Compressed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    /// It is a payload of codec 4, not of zstd.
    pub(crate) transformed: bool,
    /// Reading it requires the dictionary.
    pub(crate) dictionary: bool,
}

/// Compression state.
#[derive(Default)]
pub(crate) struct Encoder {
    /// The data, transformed.
    transformed: Vec<u8>,
    /// The same of what is before a part that is tried.
    rows: Vec<u8>,
    /// The smallest payload so far, if another one is tried.
    best: Vec<u8>,
    /// For [`Coding::Literals`].
    literals: Option<zstd::Encoder>,
    /// For candidates, when settling.
    probe: Option<zstd::Encoder>,
}

/// Length from which parts of the data decide whether it is transformed. Shorter data is compressed both
/// ways.
const TRIED_FROM_BYTES: usize = 16 << 10;
/// These parts have to gain one byte in this many if they are records: the rest of the data may be of another
/// kind.
const RECORDS_GAIN_FROM: usize = 10;
/// The same for arrays of numbers, which are alike from the beginning to the end.
const NUMBERS_GAIN_FROM: usize = 64;
/// Level at which candidates are compared.
const PROBE_LEVEL: i8 = 1;
/// Candidates that are compressed at the wanted level.
const FINALISTS: usize = 2;
/// A candidate is compressed at the wanted level if it is not larger than the data without a transform by
/// more than one byte in this many.
const PLAUSIBLE_TO: usize = 64;
/// The second candidate, too, if it is not larger than the first by more than one byte in this many.
const CLOSE_TO: usize = 50;
/// Bytes on which candidates are tried.
const PROBED_BYTES: usize = 8192;
/// zstd's shortest block.
const BLOCK_BYTES_MIN: usize = 1024;

impl Encoder {
    /// Compresses `input` to the beginning of `out`, by `zstd` alone or after a transform. `None`: it does
    /// not fit.
    pub(crate) fn compress(
        &mut self,
        zstd: &mut zstd::Encoder,
        input: &[u8],
        dictionary: Option<&Dictionary>,
        effort: Effort,
        out: &mut [u8],
    ) -> Option<Written> {
        let is_even = rest_is_even(input);
        let plain = |zstd: &mut zstd::Encoder, out: &mut [u8]| {
            let bytes = zstd.compress_known(input, is_even, dictionary, out)?;
            Some(Written { bytes, transformed: false, dictionary: dictionary.is_some() })
        };
        match effort {
            Effort::Foreground => match choice::quick(input, is_even) {
                Choice::Plain => plain(zstd, out),
                Choice::Transformed(transform, coding) => {
                    self.transform(&transform, input);
                    let written = self.code(zstd, &transform, coding, dictionary, out);
                    written.or_else(|| plain(zstd, out))
                }
                Choice::Either(transform, coding) if input.len() < TRIED_FROM_BYTES => {
                    let first = plain(zstd, out);
                    self.transform(&transform, input);
                    self.improve(first, zstd, &transform, &[coding], dictionary, out)
                }
                Choice::Either(transform, coding) => {
                    // An array of numbers is alike everywhere, and its columns need some length. A frame of
                    // pages may have several kinds of them.
                    let len = input.len();
                    let (starts, part_bytes, gain_from) = match column_bytes(&transform, len) {
                        Some(_) => (&[len / 8 * 3][..], len / 4, NUMBERS_GAIN_FROM),
                        None => (&[len / 8, len / 8 * 5][..], len / 16, RECORDS_GAIN_FROM),
                    };
                    let (mut without, mut with) = (0, 0);
                    for start in starts {
                        let part = &input[*start..start + part_bytes];
                        without += zstd.compress(part, dictionary, out).unwrap_or(part.len());
                        self.transform(&transform, part);
                        let coded = self.code(zstd, &transform, coding, dictionary, out);
                        with += coded.map_or(part.len(), |coded| coded.bytes);
                    }
                    if with >= without - without / gain_from {
                        return plain(zstd, out);
                    }
                    self.transform(&transform, input);
                    let written = self.code(zstd, &transform, coding, dictionary, out);
                    // Longer data has more matches. A smaller gain than this is no gain for certain.
                    let certain = without * (len / part_bytes / starts.len()) / 4 * 3;
                    match written {
                        Some(written) if written.bytes <= certain => Some(written),
                        _ => {
                            let first = plain(zstd, out);
                            self.improve(first, zstd, &transform, &[coding], dictionary, out)
                        }
                    }
                }
            },
            // Of all transforms, only those of numbers gain where bytes are even, and a look at samples finds
            // these. To try all takes six times as long as compression.
            Effort::Settling if is_even && choice::quick(input, is_even) == Choice::Plain => plain(zstd, out),
            Effort::Settling => {
                let mut best = plain(zstd, out);
                for (transform, codings) in self.finalists(input).into_iter().flatten() {
                    self.transform(&transform, input);
                    best = self.improve(best, zstd, &transform, codings, dictionary, out);
                }
                best
            }
        }
    }

    fn transform(&mut self, transform: &Transform, input: &[u8]) {
        self.transformed.resize(input.len(), 0);
        transform.apply(input, &mut self.transformed);
    }

    /// Codes the transformed data. If that saves a unit compared with `best`, which is in `out`, it replaces
    /// it.
    fn improve(
        &mut self,
        mut best: Option<Written>,
        zstd: &mut zstd::Encoder,
        transform: &Transform,
        codings: &[Coding],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Option<Written> {
        for coding in codings {
            let limit = best.map_or(out.len(), |best| best.bytes.saturating_sub(UNIT_BYTES));
            let mut other = std::mem::take(&mut self.best);
            if other.len() < limit {
                other.resize(limit, 0);
            }
            if let Some(written) = self.code(zstd, transform, *coding, dictionary, &mut other[..limit]) {
                out[..written.bytes].copy_from_slice(&other[..written.bytes]);
                best = Some(written);
            }
            self.best = other;
        }
        best
    }

    /// Codes the transformed data.
    fn code(
        &mut self,
        zstd: &mut zstd::Encoder,
        transform: &Transform,
        coding: Coding,
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Option<Written> {
        let header_bytes = header::encode(transform, out)?;
        // A dictionary holds pieces of data as it is, which no transform leaves but that of branches.
        let dictionary = dictionary.filter(|_| matches!(transform, Transform::X86 | Transform::Arm64));
        let len = self.transformed.len();
        let block_bytes = column_bytes(transform, len).unwrap_or_else(|| zstd.block_bytes_for(len));
        let zstd = match coding {
            Coding::Matches => zstd,
            Coding::Literals => self.literals.get_or_insert_with(zstd::Encoder::literals),
        };
        let bytes =
            zstd.compress_in_blocks(&self.transformed, block_bytes, dictionary, &mut out[header_bytes..]);
        Some(Written { bytes: header_bytes + bytes?, transformed: true, dictionary: dictionary.is_some() })
    }

    /// Returns the transforms that make a part of `input` smallest at the level of the probe, and the codings
    /// to try.
    fn finalists(&mut self, input: &[u8]) -> [Option<(Transform, &'static [Coding])>; FINALISTS] {
        let mut finalists: [Option<Finalist>; FINALISTS] = [None; FINALISTS];
        let mut bound = usize::MAX;
        let mut candidates = choice::thorough(input).peekable();
        if candidates.peek().is_none() {
            return [None; FINALISTS];
        }
        let part = &input[input.len() / 2 - input.len().min(PROBED_BYTES) / 2..];
        let part = &part[..part.len().min(PROBED_BYTES)];
        let room = part.len() + 1024;
        if self.best.len() < room {
            self.best.resize(room, 0);
        }
        self.transformed.resize(part.len(), 0);
        let probe = self.probe.get_or_insert_with(|| zstd::Encoder::new(PROBE_LEVEL, true));
        let literals = self.literals.get_or_insert_with(zstd::Encoder::literals);
        if let Some(plain) = probe.compress(part, None, &mut self.best) {
            bound = plain + plain / PLAUSIBLE_TO;
        }
        for transform in candidates {
            if let Transform::Gradient(gradient) = transform {
                // Most of the part may be its first row.
                let end = input.len() / 2 - part.len() / 2 + part.len();
                self.rows.resize(end, 0);
                gradient.apply(&input[..end], &mut self.rows);
                self.transformed.copy_from_slice(&self.rows[end - part.len()..]);
            } else {
                transform.apply(part, &mut self.transformed);
            }
            let block_bytes = column_bytes(&transform, part.len()).unwrap_or(usize::MAX);
            let mut bytes = |zstd: &mut zstd::Encoder| {
                zstd.compress_in_blocks(&self.transformed, block_bytes, None, &mut self.best)
                    .unwrap_or(usize::MAX)
            };
            let (with, without) = (bytes(probe), bytes(literals));
            let mut candidate =
                Some(Finalist { bytes: with.min(without), transform, literals: without < with });
            if with.min(without) >= bound {
                continue;
            }
            for place in &mut finalists {
                if candidate.is_some_and(|one| place.is_none_or(|other| one.bytes < other.bytes)) {
                    std::mem::swap(place, &mut candidate);
                }
            }
        }
        let least = finalists[0].map_or(0, |first| first.bytes);
        finalists.map(|finalist| {
            let finalist = finalist.filter(|finalist| finalist.bytes <= least + least / CLOSE_TO)?;
            let codings: &[Coding] = if finalist.literals { &[Coding::Literals] } else { &[Coding::Matches] };
            Some((finalist.transform, codings))
        })
    }
}

/// A transform that was tried on a part of the data.
#[derive(Clone, Copy)]
struct Finalist {
    bytes: usize,
    transform: Transform,
    /// Literals alone were smaller.
    literals: bool,
}

/// Returns the length of zstd blocks that gives each column of a number tables of its own, or none at all if
/// it is incompressible. `None`: the usual length.
fn column_bytes(transform: &Transform, len: usize) -> Option<usize> {
    match transform {
        Transform::Columns(columns) if columns.stride() <= 8 => {
            Some((len / columns.stride()).max(BLOCK_BYTES_MIN))
        }
        _ => None,
    }
}
