//! A scan report as one HTML file with charts.

use ::scan::Interval;
use ::scan::report::{Part, Report};
use report::{Bar, BarChart, Page};

use super::sections::{PARTS_SHOWN, Topic, head, layout_name, ratio, sections};

/// Larger ratios are drawn as this value, so that a part full of zeros does not flatten all other bars.
const RATIO_DRAWN_MAX: f64 = 20.0;

/// A chart of ratios.
fn ratios(title: &str) -> BarChart {
    BarChart::new(title, "logical / stored bytes").drawn_up_to(RATIO_DRAWN_MAX).shown(ratio)
}

/// The bar of a ratio. A ratio of 0 stands for none: nothing is stored.
fn bar(interval: &Interval) -> Bar {
    match interval.estimate {
        0.0 => Bar::Unknown,
        value => Bar::within(value, interval.low, interval.high),
    }
}

/// Renders the page. `date` is the time of the scan.
pub(super) fn render(found: &Report, date: &str) -> String {
    let mut page = Page::new(&format!("How compressible is {}?", found.sources.join(" ")))
        .made(date, &format!("pumice {}", found.program_version))
        .list(head(found));
    if let Some(drive) = &found.predicted_drive {
        page = page.paragraph(&summary(found, drive));
    }
    for section in sections(found) {
        page = page.heading(&section.title);
        if !section.text.is_empty() {
            page = page.paragraph(&section.text);
        }
        page = page.table(&section.table);
        page = match section.topic {
            Topic::Codecs => page.chart(&codecs(found).draw()).chart(&speeds(found).draw()),
            Topic::Layouts => page.chart(&layouts(found).draw()),
            Topic::Types => page.chart(&parts("Stored bytes by type", &found.by_type).draw()),
            Topic::Directories => page.chart(&parts("Stored bytes by directory", &found.by_directory).draw()),
            Topic::Other => page,
        };
    }
    page.heading("How this was measured").list(method(found)).to_html()
}

/// Returns a summary in one sentence.
fn summary(found: &Report, drive: &::scan::PredictedDrive) -> String {
    let interval = if drive.ratio.low == drive.ratio.high {
        String::new()
    } else {
        format!(" (between {} and {})", ratio(drive.ratio.low), ratio(drive.ratio.high))
    };
    let zeros = found.blocks.zero.estimate * 100.0;
    format!(
        "A Pumice drive stores this data at {}{interval}, record headers and map counted. {zeros:.1} % of the blocks \
         are zeros, which take next to nothing; {:.1} % do not compress.",
        ratio(drive.ratio.estimate),
        found.blocks.incompressible.estimate * 100.0,
    )
}

fn codecs(found: &Report) -> BarChart {
    let chart = ratios("Ratio by codec, 4 KiB blocks packed to the byte");
    found.codecs.iter().fold(chart, |chart, row| chart.group(&row.codec, [bar(&row.ratio)]))
}

fn speeds(found: &Report) -> BarChart {
    let chart = BarChart::new("Speed of one core of this machine", "MB/s").series(["compress", "decompress"]);
    let speed = |rate: Option<f64>| rate.map_or(Bar::Unknown, Bar::from);
    found.codecs.iter().fold(chart, |chart, row| {
        chart.group(&row.codec, [speed(row.compress_mb_per_second), speed(row.decompress_mb_per_second)])
    })
}

fn layouts(found: &Report) -> BarChart {
    let chart = ratios("Pumice and other layouts");
    let chart = match &found.predicted_drive {
        Some(drive) => chart.group(&format!("Pumice, {}", drive.codec), [bar(&drive.ratio)]),
        None => chart,
    };
    found.layouts.iter().fold(chart, |chart, row| {
        chart.group(&format!("{}, {}", layout_name(row), row.codec), [bar(&row.ratio)])
    })
}

fn parts(title: &str, parts: &[Part]) -> BarChart {
    let shown = || parts.iter().take(PARTS_SHOWN);
    // The largest unit in which the largest value is at least one.
    let largest = shown().map(|part| part.data_bytes).max().unwrap_or(0);
    let (unit, bytes) = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)]
        .into_iter()
        .find(|(_, bytes)| largest >= *bytes)
        .unwrap_or(("KiB", 1 << 10));
    let chart = BarChart::new(title, unit).series(["stored", "saved"]).stacked();
    let scaled = |value: u64| value as f64 / bytes as f64;
    shown().fold(chart, |chart, part| {
        let saved = part.data_bytes.saturating_sub(part.stored_bytes);
        chart.group(&part.name, [scaled(part.stored_bytes), scaled(saved)])
    })
}

fn method(found: &Report) -> Vec<String> {
    vec![
        "Blocks of 4 KiB were drawn uniformly over all data, so that large files count as much as they weigh; an \
         interval holds the truth with the stated probability, by Hoeffding's inequality or an empirical Bernstein \
         bound, whichever is narrower. Where everything was read there is no interval."
            .to_string(),
        "On a Pumice drive, adjacent blocks of a write are compressed together, up to 32 KiB. Stored bytes include \
         record headers and rounding. Rival layouts are models: units compressed as one and rounded up to 4 KiB \
         sectors; for VDO, blocks compressed by LZ4 and packed into bins of at most 14."
            .to_string(),
        format!("The seed was {}.", found.seed),
    ]
}
