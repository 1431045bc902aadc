//! Training dictionaries on a sample of written data, and keeping those that help.

use std::sync::Arc;

use codec::{Dictionary, Policy};
use futures::channel::oneshot;
use layout::CatalogEntry;
use layout::catalog::DICTIONARY_BYTES_MAX;
use media::Media;

use crate::error::Error;
use crate::shared::{Drive, Shared};
use crate::state::sample::Random;

/// One of so many blocks of the sample is kept from training, to judge the result.
const HOLD_OUT: usize = 4;
/// Most dictionaries in use at a time. As many again can be retired and still needed, nearly twice.
pub(crate) const DICTIONARIES_MAX: usize = 6;
/// Several dictionaries must be better than one by this factor.
const SEVERAL_FROM: f64 = 1.005;
/// Fewer blocks are not enough to train.
const SAMPLE_BLOCKS_MIN: usize = 16;
/// Nothing is trained that promises less than this part of the least gain: a promise is an estimate.
const PROMISE_PART: f64 = 3.0;
/// Level for training and judging: that of the foreground.
const LEVEL: i8 = 1;

/// Result of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The new dictionaries, used for new records from now on; none: nothing was kept.
    pub ids: Vec<u16>,
    /// Compression ratio of the held-out sample with them, relative to none: 1.05 is a gain of 5 %. 0 if
    /// nothing was trained: too few blocks, or too little in common.
    pub gain: f64,
    /// The same for the dictionaries in use before; 1 if there were none.
    pub gain_before: f64,
    /// Compressible blocks of the sample, of which a quarter was held out.
    pub sample_blocks: usize,
    /// The sample was read back from stored data, because too little was written.
    pub sample_read: bool,
    /// Summary for people.
    pub outcome: String,
}

impl<M: Media> Drive<M> {
    /// Returns whether enough was written since the last training, or before this opening if there was none.
    pub fn training_is_due(&self) -> bool {
        let seen = self.0.sampler.seen_blocks();
        let core = self.0.core();
        core.mode.writable().is_ok()
            && self.0.uses_dictionaries()
            && (core.schedule.untrained || seen >= core.schedule.due_blocks && seen > 0)
    }

    /// Returns whether the drive compresses with dictionaries, and got none by training yet.
    pub fn is_untrained(&self) -> bool {
        self.0.uses_dictionaries() && self.0.dictionaries.catalog().adopted_at == 0
    }

    /// Trains a dictionary on a sample of data written since the drive was opened, or since the last
    /// training, and uses it for new records if it helps. If that sample is not full, one is read from places
    /// all over the drive instead, if that gives more.
    ///
    /// # Errors
    ///
    /// Errors of the medium; nothing was changed then.
    pub async fn train(&self) -> Result<Trained, Error> {
        let shared = &self.0;
        shared.core().mode.writable()?;
        let mut sample = shared.sampler.blocks();
        let mut read = false;
        if sample.len() < shared.sampler.size() {
            let mut random = Random(shared.run.entropy ^ shared.core().log.sequence());
            let live = shared.live_sample(shared.sampler.size(), &mut random).await;
            if live.len() > sample.len() {
                (sample, read) = (live, true);
            }
        }
        let active = shared.dictionaries.active();
        let gain_min = shared.dictionary_gain_min;
        let made = shared.compute(move || attempt(&sample, &active, gain_min));
        let (mut trained, bytes) = made.await.map_err(|_| Error::Io("training was given up".into()))?;
        trained.sample_read = read;
        let mut keep_sample = false;
        if !bytes.is_empty() {
            let adopted = async {
                shared.forget_dictionaries(None).await?;
                shared.replace_dictionaries(bytes).await
            };
            let adopted = match adopted.await {
                // Settling makes room without them, and must not wait for them.
                Err(Error::NoSpace | Error::BackingFull) => None,
                ids => Some(ids?),
            };
            let Some(ids) = adopted else {
                trained.outcome = "there is no room for new dictionaries".into();
                shared.core().schedule.next(true);
                return Ok(trained);
            };
            trained.ids = ids;
            if trained.ids.is_empty() {
                trained.outcome =
                    "all places for dictionaries are taken by those that old records need; in the background they \
                     will be made free"
                        .into();
                keep_sample = true;
                shared.core().dictionaries.places_wanted = true;
            }
        }
        if !keep_sample {
            shared.sampler.start_over();
        }
        shared.core().schedule.next(trained.gain > 0.0);
        Ok(trained)
    }

    /// Forgets retired dictionaries that no record needs any more. Returns how many. Also done before each
    /// training.
    ///
    /// # Errors
    ///
    /// Errors of the medium, or [`Error::NoSpace`].
    pub async fn forget_dictionaries(&self) -> Result<usize, Error> {
        self.0.core().mode.writable()?;
        self.0.forget_dictionaries(None).await
    }

    /// Returns the dictionaries of the drive, in the order of their places.
    pub fn dictionaries(&self) -> Vec<DictionaryStatus> {
        let catalog = self.0.dictionaries.catalog();
        let of = |entry: &CatalogEntry| DictionaryStatus {
            id: entry.id,
            bytes: entry.len_bytes.into(),
            in_use: entry.retired_at == 0,
            memory_bytes: self.0.dictionaries.of(entry.id).ok().flatten().map(|d| d.memory_bytes() as u64),
        };
        catalog.slots.iter().flatten().map(of).collect()
    }
}

/// A dictionary of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryStatus {
    /// Id that records use.
    pub id: u16,
    /// Its length.
    pub bytes: u64,
    /// New records are compressed with it; otherwise only old ones need it.
    pub in_use: bool,
    /// Memory of the dictionary and its tables; `None`: it cannot be read.
    pub memory_bytes: Option<u64>,
}

impl<M: Media> Shared<M> {
    fn uses_dictionaries(&self) -> bool {
        matches!(self.codec(), Policy::Auto | Policy::Zstd(_)) && !self.dictionaries.is_lost()
    }
}

/// Trains and judges. Returns the dictionaries' bytes if they are worth keeping: a sample on which they were
/// not trained must become smaller by the factor `gain_min`, relative to none and to those in use.
fn attempt(sample: &[Arc<[u8]>], active: &[Dictionary], gain_min: f64) -> (Trained, Vec<Vec<u8>>) {
    let useful = |block: &&[u8]| codec::fill_word(block).is_none() && !codec::looks_incompressible(block);
    let blocks: Vec<&[u8]> = sample.iter().map(|block| &block[..]).filter(useful).collect();
    let nothing = |outcome: String, gain_before: f64| {
        let sample_blocks = blocks.len();
        let (gain, sample_read) = (0.0, false);
        (Trained { ids: Vec::new(), gain, gain_before, sample_blocks, sample_read, outcome }, Vec::new())
    };
    let percent = |gain: f64| (gain - 1.0) * 100.0;
    if blocks.len() < SAMPLE_BLOCKS_MIN {
        return nothing(format!("too few compressible blocks to learn from: {}", blocks.len()), 1.0);
    }
    let numbered = || blocks.iter().enumerate();
    let held: Vec<&[u8]> = numbered().filter(|(i, _)| i % HOLD_OUT == 0).map(|(_, block)| *block).collect();
    let seen: Vec<&[u8]> = numbered().filter(|(i, _)| i % HOLD_OUT != 0).map(|(_, block)| *block).collect();
    let gain_of = |dictionaries: &[Dictionary]| codec::gain_of_several(dictionaries, &held, LEVEL);
    let gain_before = if active.is_empty() { 1.0 } else { gain_of(active) };
    // Training takes ten times as long.
    let promise = codec::promise(&seen, &held, LEVEL);
    if promise - 1.0 < (gain_min - 1.0) / PROMISE_PART {
        let outcome = format!(
            "not trained: blocks have too little in common, about {:.1} % of what they take",
            percent(promise)
        );
        return nothing(outcome, gain_before);
    }
    let most = DICTIONARY_BYTES_MAX.min(codec::DICTIONARY_BYTES_MAX);
    let made = |bytes: Vec<Vec<u8>>| -> Vec<Dictionary> {
        (1..).zip(bytes).filter_map(|(id, bytes)| Dictionary::new(id, bytes).ok()).collect()
    };
    let one = match codec::train(&seen, most, LEVEL) {
        Ok(bytes) => made(vec![bytes]),
        Err(error) => return nothing(error.to_string(), gain_before),
    };
    let several =
        codec::train_several(&seen, DICTIONARIES_MAX, most, LEVEL).map_or_else(|_| Vec::new(), made);
    // Several take more memory, and each needs its share of the samples: they must be worth it.
    let (gain_one, gain_several) = (gain_of(&one), gain_of(&several));
    let (dictionaries, gain) =
        if gain_several > gain_one * SEVERAL_FROM { (several, gain_several) } else { (one, gain_one) };
    let keep = gain >= gain_min && gain >= gain_before * gain_min;
    let outcome = match keep {
        true => format!("ratio of a sample held out: {:+.1} %", percent(gain)),
        false => format!(
            "not kept: ratio of a sample held out {:+.1} %, with what is in use {:+.1} %",
            percent(gain),
            percent(gain_before)
        ),
    };
    let (sample_blocks, sample_read) = (blocks.len(), false);
    let trained = Trained { ids: Vec::new(), gain, gain_before, sample_blocks, sample_read, outcome };
    let bytes = dictionaries.iter().filter(|_| keep).map(|dictionary| dictionary.bytes().to_vec()).collect();
    (trained, bytes)
}

impl<M: Media> Shared<M> {
    /// Runs something that keeps a processor busy where it disturbs nobody.
    pub(crate) fn compute<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        (self.compute)(Box::new(move || {
            // The requester may be gone.
            let _ = send.send(work());
        }));
        receive
    }
}
