//! Report of how a drive compresses.

use serde::{Deserialize, Serialize};

use crate::states::{LiveKind, RunState, SampleSource, SettlingState};

/// Compression of the data of a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CompressionReport {
    pub dictionaries: Vec<DictionaryReport>,
    /// Live data by kind and size of record.
    pub live: Vec<LiveReport>,
    /// Records written since the drive was opened, by hosts and by settling, grouped by how they were
    /// compressed.
    pub written: Vec<WrittenReport>,
    /// Physical space of data that compresses and is not settled.
    pub unsettled_bytes: u64,
    /// Estimate of how much of it settling would free; `None` if nothing is settled.
    pub to_gain_bytes: Option<u64>,
}

/// Records written in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct WrittenReport {
    /// `raw`, `lz4`, `zstd` or `deflate`.
    pub codec: String,
    /// `None` if the codec has no levels, or a device chose it.
    pub level: Option<i8>,
    /// Id of the dictionary; 0: none; `None`: one of several that are not distinguished any more.
    pub dictionary: Option<u16>,
    /// Written by settling; otherwise by hosts.
    pub settled: bool,
    pub logical_bytes: u64,
    /// With headers.
    pub physical_bytes: u64,
}

/// Codecs and dictionaries of live data, estimated from records drawn at random. Excludes data stored
/// uncompressed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SurveyReport {
    pub unix_seconds: u64,
    /// Number of records drawn.
    pub records_count: u64,
    pub live: Vec<SurveyedReport>,
}

/// Estimate of the live data that is compressed in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SurveyedReport {
    /// `lz4`, `zstd` or `deflate`.
    pub codec: String,
    /// Id of the dictionary; 0: none.
    pub dictionary: u16,
    pub settled: bool,
    pub logical_bytes: u64,
    /// With headers.
    pub physical_bytes: u64,
}

/// Live data of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LiveReport {
    pub kind: LiveKind,
    /// Blocks per record: 1, 2, 4 or 8.
    pub frame_blocks: u64,
    pub logical_bytes: u64,
    /// With headers.
    pub physical_bytes: u64,
}

/// A dictionary that the drive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DictionaryReport {
    /// Id that records use.
    pub id: u16,
    pub bytes: u64,
    /// Used for new records; otherwise only old records need it.
    pub in_use: bool,
    /// With its tables; `None` if it cannot be read.
    pub memory_bytes: Option<u64>,
}

/// The last training of a dictionary since the drive was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TrainingReport {
    pub unix_seconds: u64,
    /// Requested by a user; otherwise started by the drive itself.
    pub asked: bool,
    /// Ids of the new dictionaries; empty if none was kept.
    pub dictionary_ids: Vec<u16>,
    /// Compression ratio of a held-out sample with them, relative to none: 1.05 is a gain of 5 %. 0 if
    /// nothing was trained.
    pub gain: f64,
    /// Compression ratio of that sample with the dictionaries that were in use before, relative to none; 1 if
    /// there were none.
    pub gain_before: f64,
    /// Compressible blocks of the sample.
    pub sample_blocks_count: u64,
    pub sample: SampleSource,
    /// One line for people.
    pub outcome: String,
}

/// Settling: recompression of cold data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SettlingReport {
    pub state: SettlingState,
    /// Share of one processor that it may use.
    pub background_cpu_percent: f64,
    /// Processor time used, including training, since the drive was opened.
    pub cpu_seconds: f64,
    /// Completed passes over the drive.
    pub passes_count: u64,
    /// Logical position of the current pass.
    pub position_bytes: u64,
    /// Logical bytes recompressed since the drive was opened, including users' runs.
    pub settled_bytes: u64,
    /// Physical bytes that they took before.
    pub before_bytes: u64,
    /// Physical bytes that they took afterwards.
    pub after_bytes: u64,
    /// Part of the settled bytes: settled before, with other dictionaries or none.
    pub again_bytes: u64,
    /// Logical bytes of frames cut into single blocks, since the drive was opened, because they are read at
    /// random often. Not part of the settled bytes.
    pub cut_bytes: u64,
    /// Physical bytes that they took before.
    pub cut_before_bytes: u64,
    /// Physical bytes that they took afterwards.
    pub cut_after_bytes: u64,
    /// Logical bytes recompressed per second, over the last five minutes or since settling began; `None` if
    /// nothing was.
    pub bytes_per_second: Option<f64>,
    /// Estimate of the time until all data is settled, at this rate; `None` while nothing is being settled.
    pub seconds_left: Option<f64>,
    /// The running or last run started by a user.
    pub run: Option<SettleRunReport>,
}

/// A settling run started by a user: to the end, at full speed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SettleRunReport {
    pub state: RunState,
    /// Why it failed.
    pub reason: Option<String>,
    pub started_unix_seconds: u64,
    pub finished_unix_seconds: Option<u64>,
    /// Logical position.
    pub position_bytes: u64,
    /// Logical capacity.
    pub total_bytes: u64,
    /// Logical bytes recompressed.
    pub settled_bytes: u64,
    /// Physical bytes that they took before.
    pub before_bytes: u64,
    /// Physical bytes that they took afterwards.
    pub after_bytes: u64,
}

impl SettlingReport {
    /// Estimates how long it will take to settle what is left.
    pub fn estimate_by(&mut self, compression: &CompressionReport) {
        let fresh = compression.live.iter().filter(|it| it.kind == LiveKind::Fresh);
        let left: u64 = fresh.map(|it| it.logical_bytes).sum();
        let works = matches!(self.state, SettlingState::Working | SettlingState::Asked);
        self.seconds_left = self.bytes_per_second.filter(|_| works).map(|rate| left as f64 / rate);
    }
}

impl CompressionReport {
    /// Replaces the estimate of what is to gain by what settling has gained since the drive was opened, if
    /// anything.
    pub fn estimate_by(&mut self, settling: &SettlingReport) {
        if settling.before_bytes > 0 {
            let left = settling.after_bytes as f64 / settling.before_bytes as f64;
            self.to_gain_bytes = Some((self.unsettled_bytes as f64 * (1.0 - left).max(0.0)) as u64);
        }
    }
}
