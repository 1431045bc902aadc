//! Training of dictionaries from samples, and evaluation of them.

use std::ffi::{CStr, c_void};

use zstd_safe::zstd_sys::{
    ZDICT_fastCover_params_t, ZDICT_finalizeDictionary, ZDICT_getErrorName, ZDICT_isError,
    ZDICT_optimizeTrainFromBuffer_fastCover, ZDICT_params_t,
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

/// Room for tables (mostly some 500 bytes) and the content that has to come with them.
const TABLES_BYTES_MAX: usize = 4096;

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
    let joined = Joined::new(samples)?;
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
        zParams: for_level(level),
    };
    let mut dictionary = vec![0_u8; max_bytes];
    // SAFETY: the buffers are live and passed with their own lengths; the lengths of the samples sum up to
    // that of their bytes; `parameters` is written to and not kept.
    let length = unsafe {
        ZDICT_optimizeTrainFromBuffer_fastCover(
            dictionary.as_mut_ptr().cast::<c_void>(),
            dictionary.len(),
            joined.bytes.as_ptr().cast::<c_void>(),
            joined.lengths.as_ptr(),
            joined.lengths.len() as u32,
            &raw mut parameters,
        )
    };
    joined.made(dictionary, length)
}

/// As [`train`], but only of zstd's entropy tables, and hardly any content: what a dictionary gives to
/// samples that have no strings in common. Takes a small part of the time.
pub(crate) fn tables(samples: &[&[u8]], level: i8) -> Result<Vec<u8>, TrainError> {
    let joined = Joined::new(samples)?;
    let content = &joined.bytes[..joined.bytes.len().min(TRAINED_BYTES_MIN)];
    let mut dictionary = vec![0_u8; TABLES_BYTES_MAX];
    // SAFETY: the buffers are live and passed with their own lengths; the lengths of the samples sum up to
    // that of their bytes.
    let length = unsafe {
        ZDICT_finalizeDictionary(
            dictionary.as_mut_ptr().cast::<c_void>(),
            dictionary.len(),
            content.as_ptr().cast::<c_void>(),
            content.len(),
            joined.bytes.as_ptr().cast::<c_void>(),
            joined.lengths.as_ptr(),
            joined.lengths.len() as u32,
            for_level(level),
        )
    };
    joined.made(dictionary, length)
}

fn for_level(level: i8) -> ZDICT_params_t {
    ZDICT_params_t {
        compressionLevel: Policy::Zstd(level).zstd_level().into(),
        notificationLevel: 0,
        dictID: 0,
    }
}

/// Samples that are fit for training, one after the other.
struct Joined {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Joined {
    fn new(samples: &[&[u8]]) -> Result<Joined, TrainError> {
        let mut joined = Joined { bytes: Vec::new(), lengths: Vec::with_capacity(samples.len()) };
        for sample in samples.iter().filter(|sample| fit(sample)) {
            if joined.bytes.len() + sample.len() > SAMPLES_BYTES_MAX {
                break;
            }
            joined.bytes.extend_from_slice(sample);
            joined.lengths.push(sample.len());
        }
        if joined.bytes.is_empty() {
            return Err(joined.refused("nothing to train on"));
        }
        Ok(joined)
    }

    fn refused(&self, reason: &'static str) -> TrainError {
        TrainError::Samples { samples: self.lengths.len(), bytes: self.bytes.len(), reason }
    }

    /// Returns what zstd made of them: `result` is the length of the dictionary, or an error.
    fn made(&self, mut dictionary: Vec<u8>, result: usize) -> Result<Vec<u8>, TrainError> {
        // SAFETY: takes a number.
        if unsafe { ZDICT_isError(result) } != 0 {
            // SAFETY: takes a number and returns one of zstd's constant strings.
            let reason = unsafe { CStr::from_ptr(ZDICT_getErrorName(result)) };
            return Err(self.refused(reason.to_str().unwrap_or("unknown error")));
        }
        dictionary.truncate(result);
        Ok(dictionary)
    }
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
    let (without, with) = (stored_bytes(samples, level, |_| None), stored_bytes(samples, level, of));
    if with == 0 { 1.0 } else { without as f64 / with as f64 }
}

/// Returns what samples take as they are stored, in whole units.
pub(crate) fn stored_bytes<'a>(
    samples: &[&[u8]],
    level: i8,
    of: impl Fn(&[u8]) -> Option<&'a Dictionary>,
) -> usize {
    with_compressor(Policy::Zstd(level), |compressor, out| {
        let mut stored = |sample: &&[u8]| {
            out.clear();
            match compressor.compress(sample, of(sample), out) {
                CodecId::Raw => sample.len(),
                _ => out.len().next_multiple_of(UNIT_BYTES),
            }
        };
        samples.iter().map(&mut stored).sum()
    })
}
