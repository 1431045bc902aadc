//! What a drive tells of how it compresses, and of what it does to compress better. Bytes unless the name says otherwise.

use drive::{DictionaryStatus, Trained};
use serde::{Deserialize, Serialize};

/// How what a drive holds is compressed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct CompressionReport {
    pub dictionaries: Vec<DictionaryReport>,
}

/// A dictionary that the drive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct DictionaryReport {
    /// What records call it.
    pub id: u16,
    pub bytes: u64,
    /// For new records; otherwise only old ones need it.
    pub in_use: bool,
    /// With its tables; none if it cannot be read.
    pub memory_bytes: Option<u64>,
}

impl From<&DictionaryStatus> for DictionaryReport {
    fn from(status: &DictionaryStatus) -> DictionaryReport {
        DictionaryReport {
            id: status.id,
            bytes: status.bytes,
            in_use: status.in_use,
            memory_bytes: status.memory_bytes,
        }
    }
}

/// The last training of a dictionary since the drive was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct TrainingReport {
    pub unix_seconds: u64,
    /// By a user, not by the drive itself.
    pub asked: bool,
    /// Of the new dictionary; none if it was not kept.
    pub dictionary_id: Option<u16>,
    /// Ratio of a sample held out with it, against none: 1.05 is 5 % gained. 0 if nothing could be trained.
    pub gain: f64,
    /// The same of the dictionary that was in use before; 1 if there was none.
    pub gain_before: f64,
    /// Blocks of the sample that compress.
    pub sample_blocks_count: u64,
    /// One line for people.
    pub outcome: String,
}

impl TrainingReport {
    pub(crate) fn new(trained: &Trained, asked: bool, unix_seconds: u64) -> TrainingReport {
        TrainingReport {
            unix_seconds,
            asked,
            dictionary_id: trained.id,
            gain: trained.gain,
            gain_before: trained.gain_before,
            sample_blocks_count: trained.sample_blocks as u64,
            outcome: trained.outcome.clone(),
        }
    }
}

/// Settling: what lies cold is compressed again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct SettlingReport {
    /// `off`, `resting` (all that may be settled is), `working`, `waiting` (for space: cleaning and writers come first) or
    /// `asked` (a user's run is under way).
    pub state: String,
    /// Share of a processor it may take, in percent.
    pub background_cpu_percent: f64,
    /// Processor time taken, by training too, since the drive was opened.
    pub cpu_seconds: f64,
    /// Passes over the drive that came to their end.
    pub passes_count: u64,
    /// How far the pass at hand is, in logical bytes.
    pub position_bytes: u64,
    /// Logical bytes compressed again since the drive was opened, users' runs in; what they took before and took then.
    pub settled_bytes: u64,
    pub before_bytes: u64,
    pub after_bytes: u64,
    /// The last run that a user asked for since the drive was opened, or the one under way.
    pub run: Option<SettleRunReport>,
}

/// A run of settling that a user asked for: to the end, at full speed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct SettleRunReport {
    /// `running`, `finished`, `stopped` or `failed`.
    pub state: String,
    /// Why it failed.
    pub reason: Option<String>,
    pub started_unix_seconds: u64,
    pub finished_unix_seconds: Option<u64>,
    /// How far it is, in logical bytes, of so many.
    pub position_bytes: u64,
    pub total_bytes: u64,
    /// Logical bytes compressed again; what they took before and took then.
    pub settled_bytes: u64,
    pub before_bytes: u64,
    pub after_bytes: u64,
}
