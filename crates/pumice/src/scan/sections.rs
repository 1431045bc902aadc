//! A scan report as sections of tables, used for the terminal and for HTML.

use ::scan::report::{Mode, Part, Report};
use ::scan::{Bound, Interval};
use report::Table;

use crate::human;

/// Number of rows shown of each breakdown. `--json` shows all.
pub(super) const PARTS_SHOWN: usize = 10;
/// Number of problem files shown.
const TROUBLES_SHOWN: usize = 5;

/// Subject of a section. Those with a name have charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Codecs,
    Layouts,
    Types,
    Directories,
    Other,
}

/// A title, an optional sentence, and a table.
pub(super) struct Section {
    pub(super) topic: Topic,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) table: Table,
}

/// Formats a ratio as `2.13:1`, with fewer digits if it is large.
pub(crate) fn ratio(ratio: f64) -> String {
    match ratio {
        0.0 => "-".to_string(),
        ratio if ratio >= 1000.0 => "over 1000:1".to_string(),
        ratio if ratio >= 100.0 => format!("{ratio:.0}:1"),
        ratio => format!("{ratio:.2}:1"),
    }
}

/// Formats a ratio with its interval as `2.13:1 (2.08 to 2.18)`; an exact value without interval.
pub(crate) fn ratio_interval(interval: &Interval) -> String {
    if interval.low == interval.high {
        return ratio(interval.estimate);
    }
    let end = |value| ratio(value).trim_end_matches(":1").to_string();
    format!("{} ({} to {})", ratio(interval.estimate), end(interval.low), end(interval.high))
}

fn share(interval: &Interval) -> String {
    let [estimate, low, high] = [interval.estimate, interval.low, interval.high].map(|share| share * 100.0);
    if interval.low == interval.high {
        return format!("{estimate:.1} %");
    }
    format!("{estimate:.1} % ({low:.1} to {high:.1})")
}

fn bytes_interval(interval: &Interval) -> String {
    let bytes = |value: f64| human::bytes(value as u64);
    if interval.low == interval.high {
        return bytes(interval.estimate);
    }
    format!("{} ({} to {})", bytes(interval.estimate), bytes(interval.low), bytes(interval.high))
}

fn bound(bound: Bound) -> &'static str {
    match bound {
        Bound::Exact => "all read",
        Bound::Hoeffding => "Hoeffding",
        Bound::EmpiricalBernstein => "Bernstein",
    }
}

/// Returns lines that describe the data and the scan.
pub(super) fn head(report: &Report) -> Vec<String> {
    let (data, read) = (&report.data, &report.read);
    let files = data.files_count.max(1);
    let mut lines = vec![format!(
        "{} of data in {files} {}",
        human::bytes(data.data_bytes),
        if files == 1 { "file" } else { "files" }
    )];
    let confidence = (report.confidence * 1e6).round() / 1e4;
    lines.push(match report.mode {
        Mode::Full => format!("all of it read, {} in {:.1} s", human::bytes(read.bytes), read.seconds),
        Mode::Sample => format!(
            "{} random blocks of 4 KiB with their neighbours up to 32 KiB and {} units of up to 128 KiB, {} in {:.1} \
             s; each interval holds with {confidence} %",
            read.blocks_count,
            read.units_count,
            human::bytes(read.bytes),
            read.seconds
        ),
    });
    if data.hole_bytes > 0 {
        lines.push(format!("{} of holes, not counted in what follows", human::bytes(data.hole_bytes)));
    }
    if data.data_bytes == 0 {
        lines.push("nothing to measure".to_string());
    }
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines
}

/// Returns all sections with tables.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let mut sections = Vec::new();
    if report.data.data_bytes > 0 {
        sections.extend(drive(report));
        sections.extend([blocks(report), codecs(report)]);
        sections.extend(layouts(report));
        sections.extend(parts(Topic::Types, "By type", "type", &report.by_type, 1));
        sections.extend(parts(Topic::Directories, "By directory", "directory", &report.by_directory, 2));
        sections.extend(parts(Topic::Other, "Of the largest files", "file", &report.largest_files, 2));
    }
    sections.extend(left_out(report));
    sections.extend(troubles(report));
    sections
}

fn drive(report: &Report) -> Option<Section> {
    let drive = report.predicted_drive.as_ref()?;
    let mut table = Table::new(["the drive", "estimate"]);
    let mut row = |name: &str, value: String| {
        table.row([name.to_string(), value]);
    };
    row("compression ratio", ratio_interval(&drive.ratio));
    if let Some(ratio) = &drive.ratio_without_fills {
        row("  without zeros and fills", ratio_interval(ratio));
    }
    if let Some(ratio) = &drive.ratio_of_random_writes {
        row("  written in random 4 KiB", ratio_interval(ratio));
    }
    if let Some(ratio) = &drive.ratio_settled {
        row("  cold, compressed again", ratio_interval(ratio));
    }
    row("logical used", human::bytes(drive.logical_used_bytes));
    row("physical used", bytes_interval(&drive.physical_used_bytes));
    row("  of it map", bytes_interval(&drive.map_bytes));
    row("smallest drive", bytes_interval(&drive.physical_size_bytes));
    if drive.physical_parity_bytes > 0 {
        row("  of it parity", human::bytes(drive.physical_parity_bytes));
    }
    row("  of it reserve", human::bytes(drive.physical_reserve_bytes));
    row("  of it fixed", human::bytes(drive.physical_fixed_bytes));
    row("ratio of that drive", ratio_interval(&drive.ratio_of_size));
    Some(Section {
        topic: Topic::Other,
        title: format!("On a Pumice drive, codec {}", drive.codec),
        text: "Written in large pieces, neighbours compressed together; record headers and map counted."
            .to_string(),
        table,
    })
}

fn blocks(report: &Report) -> Section {
    let mut table = Table::new(["blocks", "share"]);
    for (name, interval) in [
        ("zeros", &report.blocks.zero),
        ("other fills (a word repeated)", &report.blocks.fill),
        ("incompressible", &report.blocks.incompressible),
    ] {
        table.row([name.to_string(), share(interval)]);
    }
    Section { topic: Topic::Other, title: "Blocks".to_string(), text: String::new(), table }
}

fn codecs(report: &Report) -> Section {
    let head = ["codec", "ratio", "stored", "bound", "compress MB/s", "decompress MB/s"];
    let mut table = Table::new(head).right_from(4);
    let rate = |rate: Option<f64>| rate.map_or("-".to_string(), |rate| format!("{rate:.0}"));
    for (i, row) in report.codecs.iter().enumerate() {
        let name = if i == 0 { format!("{} (the drive's)", row.codec) } else { row.codec.clone() };
        table.row([
            name,
            ratio_interval(&row.ratio),
            share(&row.stored),
            bound(row.bound).to_string(),
            rate(row.compress_mb_per_second),
            rate(row.decompress_mb_per_second),
        ]);
    }
    Section {
        topic: Topic::Codecs,
        title: "By codec".to_string(),
        text: "Each block of 4 KiB by itself, packed to 16 bytes; MB/s of one core of this machine."
            .to_string(),
        table,
    }
}

/// Returns the name of a rival layout.
pub(super) fn layout_name(row: &::scan::report::LayoutResult) -> String {
    match row.layout.as_str() {
        "vdo" => "4 KiB, bins of at most 14".to_string(),
        _ => format!("{} KiB, rounded to 4 KiB", row.unit_bytes >> 10),
    }
}

fn layouts(report: &Report) -> Option<Section> {
    if report.layouts.is_empty() {
        return None;
    }
    let mut table = Table::new(["units", "codec", "ratio", "as in"]);
    for row in &report.layouts {
        table.row([layout_name(row), row.codec.clone(), ratio_interval(&row.ratio), row.like.clone()]);
    }
    let text =
        "What other ways to lay out the same data make of it; their metadata is not counted.".to_string();
    Some(Section { topic: Topic::Layouts, title: "By rival layout".to_string(), text, table })
}

fn parts(topic: Topic, title: &str, column: &str, parts: &[Part], least: usize) -> Option<Section> {
    if parts.len() < least {
        return None;
    }
    let mut table = Table::new([column, "ratio", "data", "stored"]).right_from(2);
    for part in parts.iter().take(PARTS_SHOWN) {
        table.row([
            part.name.clone(),
            ratio_interval(&part.ratio),
            human::bytes(part.data_bytes),
            human::bytes(part.stored_bytes),
        ]);
    }
    let more = parts.len().saturating_sub(PARTS_SHOWN);
    let rest = if more > 0 { format!(" {more} more are in --json.") } else { String::new() };
    let text = format!("Most stored bytes first, by the drive's codec.{rest}");
    Some(Section { topic, title: title.to_string(), text, table })
}

fn left_out(report: &Report) -> Option<Section> {
    let skipped = &report.skipped;
    let mut table = Table::new(["left out", "count"]).right_from(1);
    for (count, what) in [
        (skipped.symlinks_count, "symbolic links"),
        (skipped.special_files_count, "special files"),
        (skipped.other_filesystems_count, "other file systems (see --cross-filesystems)"),
        (skipped.hard_links_count, "further names of files counted"),
        (skipped.empty_files_count, "empty files"),
    ] {
        if count > 0 {
            table.row([what.to_string(), count.to_string()]);
        }
    }
    let section = Section { topic: Topic::Other, title: "Left out".to_string(), text: String::new(), table };
    (!section.table.is_empty()).then_some(section)
}

fn troubles(report: &Report) -> Vec<Section> {
    let lists = [
        (report.unreadable_count, &report.unreadable, "Could not be read"),
        (report.changed_count, &report.changed, "Changed during the scan"),
    ];
    let section = |(count, list, title): (u64, &Vec<::scan::source::Trouble>, &str)| {
        let mut table = Table::new(["name", "why"]);
        for trouble in list.iter().take(TROUBLES_SHOWN) {
            table.row([trouble.name.clone(), trouble.why.clone()]);
        }
        let more = count.saturating_sub(TROUBLES_SHOWN as u64);
        let text = if more > 0 { format!("{more} more are in --json.") } else { String::new() };
        Section { topic: Topic::Other, title: format!("{title}: {count}"), text, table }
    };
    lists.into_iter().filter(|(count, ..)| *count > 0).map(section).collect()
}

/// Formats the report for the terminal.
pub(super) fn text(report: &Report) -> String {
    let mut out = format!("{}\n", report.sources.join(" "));
    head(report).iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    for section in sections(report) {
        let gap = if section.text.is_empty() { "" } else { ". " };
        out.push_str(&format!("\n{}{gap}{}\n", section.title, section.text));
        out.push_str(&section.table.to_indented_text(3));
    }
    out
}
