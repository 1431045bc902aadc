//! Making dictionaries from samples, and judging them.

use std::ffi::{CStr, c_void};

use zstd_safe::zstd_sys::{
    ZDICT_fastCover_params_t, ZDICT_getErrorName, ZDICT_isError, ZDICT_optimizeTrainFromBuffer_fastCover,
    ZDICT_params_t,
};

use crate::{
    CodecId, DICTIONARY_BYTES_MAX, Dictionary, Policy, UNIT_BYTES, choose, fill_word, looks_incompressible,
    with_compressor,
};

/// Why samples gave no dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// zstd refused them: too few or too short, or nothing in them repeats.
    #[error("{samples} samples of {bytes} bytes together make no dictionary: {reason}")]
    Samples {
        /// How many there were.
        samples: usize,
        /// Their length together.
        bytes: usize,
        /// zstd's own words.
        reason: &'static str,
    },
    /// There is no use in one so small.
    #[error("a dictionary of at most {0} bytes was asked for: it takes {TRAINED_BYTES_MIN} at least")]
    Room(usize),
}

/// zstd makes none smaller (`ZDICT_DICTSIZE_MIN`).
const TRAINED_BYTES_MIN: usize = 256;

/// Samples looked at, in bytes: zstd counts them in 32 bits, and more only takes longer.
const SAMPLES_BYTES_MAX: usize = 256 << 20;

/// Trains a dictionary of at most `max_bytes` (cut to [`DICTIONARY_BYTES_MAX`]) by zstd's fastCover on samples:
/// blocks, drawn evenly from everything the dictionary is for. `level` is the one it will be used with.
///
/// Samples that repeat one word or look incompressible are left out. The same samples in the same order give the same bytes. A hundred times the dictionary's length is a good
/// amount of samples; what lies beyond 256 MiB is left out.
///
/// # Errors
/// [`TrainError`] if the samples are too few or too much alike, or `max_bytes` too small. Nothing is lost:
/// compress without one.
pub fn train(samples: &[&[u8]], max_bytes: usize, level: i8) -> Result<Vec<u8>, TrainError> {
    let max_bytes = max_bytes.min(DICTIONARY_BYTES_MAX);
    if max_bytes < TRAINED_BYTES_MIN {
        return Err(TrainError::Room(max_bytes));
    }
    let (mut joined, mut lengths) = (Vec::new(), Vec::with_capacity(samples.len()));
    for sample in samples.iter().filter(|sample| fit(sample)) {
        if joined.len() + sample.len() > SAMPLES_BYTES_MAX {
            break;
        }
        joined.extend_from_slice(sample);
        lengths.push(sample.len());
    }
    let refused = |reason| TrainError::Samples { samples: lengths.len(), bytes: joined.len(), reason };
    if joined.is_empty() {
        return Err(refused("nothing to train on"));
    }
    let mut parameters = ZDICT_fastCover_params_t {
        // Segments as long as `steps` tries from 50 to 2000 bytes find best, by substrings of 8 bytes.
        k: 0,
        d: 8,
        f: 20,
        steps: 4,
        // This thread: more would give the same bytes, but spoil a simulation.
        nbThreads: 1,
        splitPoint: 0.75,
        accel: 1,
        shrinkDict: 0,
        shrinkDictMaxRegression: 0,
        zParams: ZDICT_params_t {
            compressionLevel: Policy::Zstd(level).zstd_level().into(),
            notificationLevel: 0,
            dictID: 0,
        },
    };
    let mut dictionary = vec![0_u8; max_bytes];
    // SAFETY: the buffers are live and passed with their own lengths; `lengths` are those of the samples that
    // `joined` consists of, so their sum is its length; `parameters` is written to and not kept.
    let bytes = unsafe {
        ZDICT_optimizeTrainFromBuffer_fastCover(
            dictionary.as_mut_ptr().cast::<c_void>(),
            dictionary.len(),
            joined.as_ptr().cast::<c_void>(),
            lengths.as_ptr(),
            lengths.len() as u32,
            &raw mut parameters,
        )
    };
    // SAFETY: takes a number.
    if unsafe { ZDICT_isError(bytes) } != 0 {
        // SAFETY: takes a number and returns one of zstd's constant strings.
        let reason = unsafe { CStr::from_ptr(ZDICT_getErrorName(bytes)) };
        return Err(refused(reason.to_str().unwrap_or("unknown error")));
    }
    dictionary.truncate(bytes);
    Ok(dictionary)
}

/// Whether a sample says anything: blocks that no dictionary has a part in would crowd out the others.
pub(crate) fn fit(sample: &[u8]) -> bool {
    fill_word(sample).is_none() && !looks_incompressible(sample)
}

/// How much longer `samples` get at a zstd level if they are compressed without the dictionary: 1.05 is 5 per
/// cent of ratio gained, 1.0 or less is nothing. Each sample counts as it is stored, in whole units, and the
/// dictionary's own bytes do not count.
///
/// Only samples that it was not trained on say something.
pub fn gain(dictionary: &Dictionary, samples: &[&[u8]], level: i8) -> f64 {
    gain_by(samples, level, |_| Some(dictionary))
}

/// As [`gain`], of several dictionaries: each sample gets the one that [`choose`](crate::choose) finds, if any.
pub fn gain_of_several(dictionaries: &[Dictionary], samples: &[&[u8]], level: i8) -> f64 {
    gain_by(samples, level, |sample| choose(dictionaries, sample))
}

fn gain_by<'a>(samples: &[&[u8]], level: i8, of: impl Fn(&[u8]) -> Option<&'a Dictionary>) -> f64 {
    let stored = |with: bool| -> usize {
        with_compressor(Policy::Zstd(level), |compressor, out| {
            samples
                .iter()
                .map(|sample| {
                    out.clear();
                    let dictionary = if with { of(sample) } else { None };
                    match compressor.compress(sample, dictionary, out) {
                        CodecId::Raw => sample.len(),
                        _ => out.len().next_multiple_of(UNIT_BYTES),
                    }
                })
                .sum()
        })
    };
    let (without, with) = (stored(false), stored(true));
    if with == 0 { 1.0 } else { without as f64 / with as f64 }
}
