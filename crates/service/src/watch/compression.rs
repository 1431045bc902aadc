//! Reports of how a drive compresses, made from what the engine reports.

use drive::{Composition, DictionaryStatus, Share, Survey, Trained, Written};
use status::{
    CompressionReport, DictionaryReport, LiveKind, LiveReport, SampleSource, SurveyReport, SurveyedReport,
    TrainingReport, WrittenReport,
};

/// Reports how the data of a drive is compressed.
pub(crate) fn compression_report(
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
    // By the ratio of settled data. A server that has settled something has a better estimate.
    let reached = |logical: u64| (logical as f64 * settled_physical as f64 / settled_logical as f64) as u64;
    CompressionReport {
        dictionaries: dictionaries.iter().map(dictionary_report).collect(),
        live: [
            vec![live(LiveKind::Raw, 0, raw)],
            classes(LiveKind::Fresh, fresh),
            classes(LiveKind::Settled, settled),
        ]
        .concat(),
        written: written.collect(),
        unsettled_bytes: fresh_physical,
        to_gain_bytes: (settled_logical > 0).then(|| fresh_physical.saturating_sub(reached(fresh_logical))),
    }
}

/// Reports a survey.
pub(crate) fn survey_report(survey: &Survey, unix_seconds: u64) -> SurveyReport {
    let live = survey.live.iter().map(|it| SurveyedReport {
        codec: it.codec.to_string(),
        dictionary: it.dictionary,
        settled: it.settled,
        logical_bytes: it.share.logical_bytes,
        physical_bytes: it.share.physical_bytes,
    });
    SurveyReport { unix_seconds, records_count: survey.records_count, live: live.collect() }
}

/// Reports a training. `asked`: by a user.
pub(crate) fn training_report(trained: &Trained, asked: bool, unix_seconds: u64) -> TrainingReport {
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

fn dictionary_report(status: &DictionaryStatus) -> DictionaryReport {
    DictionaryReport {
        id: status.id,
        bytes: status.bytes,
        in_use: status.in_use,
        memory_bytes: status.memory_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::{SettlingReport, SettlingState};

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
        let mut report = compression_report(&[], &composition(), &[]);
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
        assert_eq!(compression_report(&[], &Composition::default(), &[]).to_gain_bytes, None);
    }

    #[test]
    fn the_time_left_is_that_of_fresh_data_at_the_rate_of_settling() {
        let compression = compression_report(&[], &composition(), &[]);
        let mut settling = SettlingReport {
            state: SettlingState::Working,
            bytes_per_second: Some(4000.0),
            ..SettlingReport::default()
        };
        settling.estimate_by(&compression);
        assert_eq!(settling.seconds_left, Some(10.0));
        settling.state = SettlingState::Resting;
        settling.estimate_by(&compression);
        assert_eq!(settling.seconds_left, None);
    }

    #[test]
    fn every_kind_has_its_line() {
        let report = compression_report(&[], &composition(), &[]);
        let lines: Vec<(LiveKind, u64, u64)> =
            report.live.iter().map(|it| (it.kind, it.frame_blocks, it.physical_bytes)).collect();
        assert_eq!(lines.len(), 9);
        assert_eq!(
            (lines[0], lines[4], lines[5]),
            ((LiveKind::Raw, 1, 4112), (LiveKind::Fresh, 8, 12_000), (LiveKind::Settled, 1, 400))
        );
    }
}
