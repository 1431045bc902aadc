//! What a drive tells of how it compresses, and of what it does to compress better. Bytes unless the name says otherwise.

use drive::{Composition, DictionaryStatus, Share, Survey, Trained, Written};
use serde::{Deserialize, Serialize};

use crate::watch::states::{LiveKind, RunState, SampleSource, SettlingState};

/// How what a drive holds is compressed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct CompressionReport {
    pub dictionaries: Vec<DictionaryReport>,
    /// Live data by how it is stored, kind by kind.
    pub live: Vec<LiveReport>,
    /// What was written since the drive was opened, by hosts and by settling, by how it was compressed.
    pub written: Vec<WrittenReport>,
    /// What data takes that compresses and is not settled.
    pub unsettled_bytes: u64,
    /// About how much of it settling would give back, by what it has given back so far; none if nothing was settled yet.
    pub to_gain_bytes: Option<u64>,
}

/// What was written in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct WrittenReport {
    /// `raw`, `lz4`, `zstd` or `deflate`.
    pub codec: String,
    /// None for codecs that have none.
    pub level: Option<i8>,
    /// Id of the dictionary, 0: without; none: one of several that are not told apart any more.
    pub dictionary: Option<u16>,
    /// By settling; otherwise by hosts.
    pub settled: bool,
    pub logical_bytes: u64,
    /// With headers.
    pub physical_bytes: u64,
}

/// What live data needs to be read, estimated from records drawn at random. What is stored as it came is not among it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct SurveyReport {
    pub unix_seconds: u64,
    /// Records that were read for it.
    pub records_count: u64,
    pub live: Vec<SurveyedReport>,
}

/// About how much live data is compressed in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct SurveyedReport {
    /// `lz4`, `zstd` or `deflate`.
    pub codec: String,
    /// Id of the dictionary, 0: without.
    pub dictionary: u16,
    pub settled: bool,
    pub logical_bytes: u64,
    /// With headers.
    pub physical_bytes: u64,
}

impl SurveyReport {
    pub(crate) fn new(survey: &Survey, unix_seconds: u64) -> SurveyReport {
        let live = survey.live.iter().map(|it| SurveyedReport {
            codec: it.codec.to_string(),
            dictionary: it.dictionary,
            settled: it.settled,
            logical_bytes: it.share.logical_bytes,
            physical_bytes: it.share.physical_bytes,
        });
        SurveyReport { unix_seconds, records_count: survey.records_count, live: live.collect() }
    }
}

/// Live data of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct LiveReport {
    pub kind: LiveKind,
    /// Blocks of a record: 1, 2, 4 or 8.
    pub frame_blocks: u64,
    pub logical_bytes: u64,
    /// With headers.
    pub physical_bytes: u64,
}

impl CompressionReport {
    pub(crate) fn new(
        dictionaries: &[DictionaryStatus],
        composition: &Composition,
        written: &[Written],
    ) -> CompressionReport {
        let written = written.iter().map(|it| WrittenReport {
            codec: it.codec.to_string(),
            level: it.level,
            dictionary: it.dictionary,
            settled: it.settled,
            logical_bytes: it.share.logical_bytes,
            physical_bytes: it.share.physical_bytes,
        });
        let Composition { raw, fresh, settled } = composition;
        let live = |kind: LiveKind, class: usize, share: &Share| LiveReport {
            kind,
            frame_blocks: 1 << class,
            logical_bytes: share.logical_bytes,
            physical_bytes: share.physical_bytes,
        };
        let classes = |kind, shares: &[Share; 4]| -> Vec<LiveReport> {
            shares.iter().enumerate().map(|(class, share)| live(kind, class, share)).collect()
        };
        let sum = |shares: &[Share; 4], of: fn(&Share) -> u64| shares.iter().map(of).sum::<u64>();
        let (fresh_logical, fresh_physical) =
            (sum(fresh, |share| share.logical_bytes), sum(fresh, |share| share.physical_bytes));
        let (settled_logical, settled_physical) =
            (sum(settled, |share| share.logical_bytes), sum(settled, |share| share.physical_bytes));
        // At the ratio of what is settled. A server that has settled something knows better.
        let reached =
            |logical: u64| (logical as f64 * settled_physical as f64 / settled_logical as f64) as u64;
        CompressionReport {
            dictionaries: dictionaries.iter().map(DictionaryReport::from).collect(),
            live: [
                vec![live(LiveKind::Raw, 0, raw)],
                classes(LiveKind::Fresh, fresh),
                classes(LiveKind::Settled, settled),
            ]
            .concat(),
            written: written.collect(),
            unsettled_bytes: fresh_physical,
            to_gain_bytes: (settled_logical > 0)
                .then(|| fresh_physical.saturating_sub(reached(fresh_logical))),
        }
    }

    /// Takes for the estimate what settling has made of the data that it has met.
    pub(crate) fn estimate_by(&mut self, settling: &SettlingReport) {
        if settling.before_bytes > 0 {
            let left = settling.after_bytes as f64 / settling.before_bytes as f64;
            self.to_gain_bytes = Some((self.unsettled_bytes as f64 * (1.0 - left).max(0.0)) as u64);
        }
    }
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
    /// Of the new dictionaries; empty if none was kept.
    pub dictionary_ids: Vec<u16>,
    /// Ratio of a sample held out with them, against none: 1.05 is 5 % gained. 0 if nothing could be trained.
    pub gain: f64,
    /// The same of those that were in use before; 1 if there were none.
    pub gain_before: f64,
    /// Blocks of the sample that compress.
    pub sample_blocks_count: u64,
    pub sample: SampleSource,
    /// One line for people.
    pub outcome: String,
}

impl TrainingReport {
    pub(crate) fn new(trained: &Trained, asked: bool, unix_seconds: u64) -> TrainingReport {
        TrainingReport {
            unix_seconds,
            asked,
            dictionary_ids: trained.ids.clone(),
            gain: trained.gain,
            gain_before: trained.gain_before,
            sample_blocks_count: trained.sample_blocks as u64,
            sample: if trained.sample_read { SampleSource::Live } else { SampleSource::Written },
            outcome: trained.outcome.clone(),
        }
    }
}

/// Settling: what lies cold is compressed again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct SettlingReport {
    pub state: SettlingState,
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
    /// Of these, what was settled before, with other dictionaries or none.
    pub again_bytes: u64,
    /// The last run that a user asked for since the drive was opened, or the one under way.
    pub run: Option<SettleRunReport>,
}

/// A run of settling that a user asked for: to the end, at full speed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct SettleRunReport {
    pub state: RunState,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn composition() -> Composition {
        let share = |logical_bytes, physical_bytes| Share { logical_bytes, physical_bytes };
        Composition {
            raw: share(4096, 4112),
            fresh: [share(8000, 4000), Share::default(), Share::default(), share(32_000, 12_000)],
            settled: [share(1000, 400), Share::default(), Share::default(), share(9000, 1600)],
        }
    }

    #[test]
    fn what_is_still_to_gain_goes_by_what_was_reached() {
        let mut report = CompressionReport::new(&[], &composition(), &[]);
        assert_eq!(report.unsettled_bytes, 16_000);
        // 40000 at 5:1.
        assert_eq!(report.to_gain_bytes, Some(8000));
        report.estimate_by(&SettlingReport::default());
        assert_eq!(report.to_gain_bytes, Some(8000));
        report.estimate_by(&SettlingReport {
            before_bytes: 100,
            after_bytes: 75,
            ..SettlingReport::default()
        });
        assert_eq!(report.to_gain_bytes, Some(4000));
        assert_eq!(CompressionReport::new(&[], &Composition::default(), &[]).to_gain_bytes, None);
    }

    #[test]
    fn every_kind_has_its_line() {
        let report = CompressionReport::new(&[], &composition(), &[]);
        let lines: Vec<(LiveKind, u64, u64)> =
            report.live.iter().map(|it| (it.kind, it.frame_blocks, it.physical_bytes)).collect();
        assert_eq!(lines.len(), 9);
        assert_eq!(
            (lines[0], lines[4], lines[5]),
            ((LiveKind::Raw, 1, 4112), (LiveKind::Fresh, 8, 12_000), (LiveKind::Settled, 1, 400))
        );
    }
}
