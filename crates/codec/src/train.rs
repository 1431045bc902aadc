//! Training of dictionaries from samples, and evaluation of them.

use std::ffi::{CStr, c_void};

use zstd_safe::zstd_sys::{
    ZDICT_fastCover_params_t, ZDICT_getErrorName, ZDICT_isError, ZDICT_optimizeTrainFromBuffer_fastCover,
    ZDICT_params_t,
};

use crate::{
    CodecId, DICTIONARY_BYTES_MAX, Dictionary, Policy, UNIT_BYTES, choose, fill_word, looks_incompressible,
    with_compressor,
};

/// Reason why samples gave no dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// zstd refused them: they are too few or too short, or nothing in them repeats.
    #[error("{samples} samples of {bytes} bytes together make no dictionary: {reason}")]
    Samples {
        /// Number of samples.
        samples: usize,
        /// Total length of the samples in bytes.
        bytes: usize,
        /// zstd's own message.
        reason: &'static str,
    },
    /// The requested length is below the smallest useful one.
    #[error("a dictionary of at most {0} bytes was asked for: it takes {TRAINED_BYTES_MIN} at least")]
    Room(usize),
}

/// zstd makes no smaller ones (`ZDICT_DICTSIZE_MIN`).
const TRAINED_BYTES_MIN: usize = 256;

/// Most sample bytes used: zstd counts them in 32 bits, and more only takes longer.
const SAMPLES_BYTES_MAX: usize = 256 << 20;

/// Trains a dictionary of at most `max_bytes` (limited to [`DICTIONARY_BYTES_MAX`]) with zstd's fastCover.
/// The samples are blocks, drawn evenly from all data that the dictionary is for. `level` is the level that
/// it will be used with.
///
/// Samples that repeat one word or look incompressible are left out. The same samples in the same order give
/// the same bytes. A good amount of samples is a hundred times the dictionary's length; samples beyond 256
/// MiB are left out.
///
/// # Errors
/// [`TrainError`] if the samples are too few or too much alike, or `max_bytes` is too small. Compress without
/// a dictionary then.
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
        // 0: zstd tries `steps` segment lengths from 50 to 2000 bytes and takes the best. Substrings have 8
        // bytes (`d`).
        k: 0,
        d: 8,
        f: 20,
        steps: 4,
        // Only the calling thread: more threads would give the same bytes, but make a simulation
        // nondeterministic.
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

/// Returns whether a sample is useful. Blocks that cannot profit from a dictionary would displace others.
pub(crate) fn fit(sample: &[u8]) -> bool {
    fill_word(sample).is_none() && !looks_incompressible(sample)
}

/// Returns the size of `samples` compressed without the dictionary divided by their size with it, at a zstd
/// level: 1.05 is a gain of 5 per cent in ratio, 1.0 or less is none. Each sample counts as it is stored, in
/// whole units. The dictionary's own bytes do not count.
///
/// The result is meaningful only for samples that the dictionary was not trained on.
pub fn gain(dictionary: &Dictionary, samples: &[&[u8]], level: i8) -> f64 {
    gain_by(samples, level, |_| Some(dictionary))
}

/// As [`gain`], for several dictionaries: each sample uses the one that [`choose`] returns, if
/// any.
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
