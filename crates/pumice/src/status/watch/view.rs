//! The live view: all drives in a table, and the selected one in detail.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use status::{DriveState, KindReport, RecentEvent, RunState, StatusReport, shown};

use super::columns::{BORDERS, Column, latency, percent, rate, space_style};
use super::history::{History, Rates, Watched};
use crate::human;
use crate::status::names::{names, tail};
use crate::status::times::{ago, time_to_full};

const HELP: &str = " q quits, up and down choose a drive ";
/// Height of the detail view without its charts, in lines.
const FACTS_HEIGHT: u16 = 9;
/// Most lines about servers that do not answer.
const WARNINGS_HEIGHT_MAX: u16 = 3;
/// Height of the latency table with its header, in lines.
const LATENCY_HEIGHT: u16 = 5;

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, history: &History, chosen: usize) {
    let rows = history.drives.len() as u16;
    let warnings_height = (history.warnings.len() as u16).min(WARNINGS_HEIGHT_MAX);
    let [list, detail, warnings, help] = Layout::vertical([
        Constraint::Length(rows.min(frame.area().height / 3) + 3),
        Constraint::Min(0),
        Constraint::Length(warnings_height),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_list(frame, list, history, chosen);
    if let Some(drive) = history.drives.get(chosen) {
        match drive.report.state {
            DriveState::Down => draw_down(frame, detail, &drive.report),
            _ => draw_drive(frame, detail, drive),
        }
    }
    let lines: Vec<Line<'_>> = history.warnings.iter().map(|line| Line::from(line.as_str()).red()).collect();
    frame.render_widget(Paragraph::new(lines), warnings);
    frame.render_widget(Line::styled(HELP, Style::new().add_modifier(Modifier::DIM)), help);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, history: &History, chosen: usize) {
    let columns = Column::fitting(area.width);
    let fixed: u16 = columns.iter().map(|column| column.width() + 1).sum();
    let width = area.width.saturating_sub(fixed + BORDERS);
    let names = names(history.drives.iter().map(|drive| drive.report.path.as_path()), usize::from(width));
    let rows = history.drives.iter().zip(names).map(|(drive, name)| {
        let cells = columns.iter().map(|column| column.cell(drive));
        Row::new(std::iter::once(Cell::from(name)).chain(cells).collect::<Vec<_>>())
    });
    let header = std::iter::once("drive").chain(columns.iter().map(|column| column.name()));
    let header: Vec<&str> = header.collect();
    let widths = std::iter::once(Constraint::Length(width))
        .chain(columns.iter().map(|column| Constraint::Length(column.width())));
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(" Pumice drives "));
    let mut state = TableState::new().with_selected(Some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Draws a drive that could not be opened, of which only the reason is known.
fn draw_down(frame: &mut Frame<'_>, area: Rect, report: &StatusReport) {
    let reason = report.state_reason.clone().unwrap_or_default();
    let text = vec![
        Line::from(format!("not opened: {reason}")),
        Line::from("A reload of the server (SIGHUP) tries again."),
    ];
    let block = Block::bordered()
        .title(format!(" {} ", tail(&report.path, usize::from(area.width.saturating_sub(4)))));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(block), area);
}

fn draw_drive(frame: &mut Frame<'_>, area: Rect, drive: &Watched) {
    let report = &drive.report;
    let block = Block::bordered()
        .title(format!(" {} ", tail(&report.path, usize::from(area.width.saturating_sub(4)))));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [gauge, facts, charts, latencies, events] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(FACTS_HEIGHT),
        Constraint::Min(3),
        Constraint::Length(LATENCY_HEIGHT),
        Constraint::Length(3),
    ])
    .areas(inside);
    let used = Gauge::default()
        .ratio(report.physical_used_ratio.clamp(0.0, 1.0))
        .label(format!("{} of the physical space in use", percent(report)))
        .gauge_style(space_style(report));
    frame.render_widget(used, gauge);
    frame.render_widget(Paragraph::new(lines(drive)), facts);
    let [written, read] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
    draw_chart(frame, written, "written", drive, |rates| rates.written_bytes);
    draw_chart(frame, read, "read", drive, |rates| rates.read_bytes);
    draw_latencies(frame, latencies, report);
    let recent = report.server.iter().flat_map(|server| server.events.recent.iter().rev());
    let lines: Vec<Line<'_>> = recent.take(3).map(event_line).collect();
    frame.render_widget(Paragraph::new(lines), events);
}

/// Returns the line of an event: how long ago, and what.
fn event_line(event: &RecentEvent) -> Line<'_> {
    let since = Span::styled(ago(event.unix_seconds), Style::new().add_modifier(Modifier::DIM));
    Line::from(vec![since, Span::raw("  "), Span::raw(event.message.as_str())])
}

/// What is known of a ratio with too little data.
const UNKNOWN_RATIO: &str = "an unknown ratio";

/// Returns the facts of a drive, one per line.
fn lines(drive: &Watched) -> Vec<Line<'static>> {
    let (report, now) = (&drive.report, drive.now());
    let fact = |name: &str, text: String| {
        Line::from(vec![Span::from(format!("{name:<13}")).bold(), Span::from(text)])
    };
    let space = format!(
        "{} used, {} reclaimable, {} free of {}",
        human::bytes(report.physical_used_bytes),
        human::bytes(report.physical_reclaimable_bytes),
        human::bytes(report.physical_free_bytes),
        human::bytes(report.physical_limit_bytes),
    );
    let (at_least, writable_bytes) = match report.backing_full {
        true => ("", 0),
        false if report.logical_available_is_known() => ("", report.logical_available_bytes),
        false => ("at least ", report.logical_available_bytes),
    };
    let expected =
        report.expected_compression_ratio.map_or(UNKNOWN_RATIO.to_string(), |it| format!("{it:.2}:1"));
    let logical = format!(
        "{} of {}, {at_least}{} can be written at {expected}",
        human::bytes(report.logical_used_bytes),
        human::bytes(report.logical_capacity_bytes),
        human::bytes(writable_bytes),
    );
    let hosts = format!(
        "{} written in {:.0} requests, {} read in {:.0}, each second",
        rate(now.written_bytes),
        now.writes,
        rate(now.read_bytes),
        now.reads,
    );
    let amplification = match now.written_bytes {
        0.0 => format!("{:.2} over its life", report.waf),
        written => {
            format!("{:.2} now, {:.2} over its life", now.physical_written_bytes / written, report.waf)
        }
    };
    let mut warnings = match report.critical_warning.bits {
        0 => "none".to_string(),
        bits => format!("{bits:#x} {}", report.critical_warning),
    };
    if let Some(copy) = report.copies.first() {
        warnings = format!("{warnings}; a copy (same id) is served: {}", shown(&copy.path));
    }
    vec![
        fact("space", space),
        fact("logical", logical),
        fact("time to full", format!(" {}", time_to_full(report))),
        fact("hosts", hosts),
        fact("WAF", amplification),
        fact("settling", settling(report)),
        fact("dictionaries", dictionaries(report)),
        fact("warnings", warnings),
    ]
}

/// Describes settling: state, space gained, and space still to gain.
fn settling(report: &StatusReport) -> String {
    let compression = &report.compression;
    let to_gain = compression.to_gain_bytes.map_or("unknown".to_string(), human::bytes);
    let left = format!("{} not settled, to gain: {to_gain}", human::bytes(compression.unsettled_bytes));
    let Some(server) = &report.server else { return left };
    let settling = &server.settling;
    let gained = settling.before_bytes.saturating_sub(settling.after_bytes);
    let run = settling.run.as_ref().filter(|run| run.state == RunState::Running);
    let mut state = run.map_or(settling.state.to_string(), |run| {
        format!("asked, at {:.0} %", run.position_bytes as f64 * 100.0 / run.total_bytes.max(1) as f64)
    });
    if let Some(left) = settling.seconds_left {
        state = format!("{state}, {} left", human::duration(left));
    }
    format!(
        "{state}; {} settled, {} gained; {left}",
        human::bytes(settling.settled_bytes),
        human::bytes(gained)
    )
}

/// Describes the dictionaries: their number, and the result of the last training.
fn dictionaries(report: &StatusReport) -> String {
    let all = &report.compression.dictionaries;
    let in_use = all.iter().filter(|dictionary| dictionary.in_use).count();
    let there = format!("{in_use} for new data, {} for old", all.len() - in_use);
    match report.server.as_ref().and_then(|server| server.training.as_ref()) {
        Some(training) => format!("{there}; trained {}: {}", ago(training.unix_seconds), training.outcome),
        None => there,
    }
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, name: &str, drive: &Watched, of: fn(&Rates) -> f64) {
    let values: Vec<u64> = drive.rates.iter().map(|rates| of(rates) as u64).collect();
    let shown = &values[values.len().saturating_sub(usize::from(area.width))..];
    let highest = shown.iter().max().copied().unwrap_or(0);
    let title = format!("{name}, up to {}/s", human::bytes(highest));
    let chart = Sparkline::default()
        .data(shown)
        .max(highest.max(1))
        .style(Style::new().fg(Color::Cyan))
        .block(Block::new().title(title));
    frame.render_widget(chart, area);
}

fn draw_latencies(frame: &mut Frame<'_>, area: Rect, report: &StatusReport) {
    let Some(server) = &report.server else { return };
    let row = |(name, kind): (&'static str, &KindReport)| {
        let percentiles =
            [kind.p50_seconds, kind.p90_seconds, kind.p99_seconds, kind.p999_seconds, kind.max_seconds];
        let mut cells = vec![name.to_string(), kind.count.to_string()];
        cells.extend(percentiles.map(latency));
        Row::new(cells)
    };
    let window = human::duration(server.latency_recent.window_seconds);
    let header = [format!("last {window}"), "requests".into()]
        .into_iter()
        .chain(["p50", "p90", "p99", "p99.9", "max"].map(String::from));
    let widths = [Constraint::Length(14)].into_iter().chain([Constraint::Length(9); 6]);
    let table = Table::new(server.latency_recent.kinds().map(row), widths)
        .header(Row::new(header.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use status::{EventsReport, LatencyReport, RecentEvent, ServerReport, TimeToFull};

    fn report(path: &str, seconds: u32, used: f64) -> StatusReport {
        let writes = KindReport { count: 5, p99_seconds: Some(0.0012), ..KindReport::default() };
        let hour_ago = status::unix_seconds_now() - 3600;
        let event = RecentEvent {
            unix_seconds: hour_ago,
            message: "space is getting low".into(),
            ..RecentEvent::default()
        };
        StatusReport {
            path: path.into(),
            state: DriveState::Online,
            physical_used_ratio: used,
            compression_ratio: 2.5,
            host_written_bytes: u64::from(seconds) << 20,
            time_to_full: TimeToFull {
                seconds: Some(7200.0),
                soonest_seconds: Some(3600.0),
                latest_seconds: None,
                ..TimeToFull::default()
            },
            server: Some(ServerReport {
                uptime_seconds: seconds.into(),
                latency_recent: LatencyReport {
                    window_seconds: 60.0,
                    write: writes,
                    ..LatencyReport::default()
                },
                events: EventsReport { recent: vec![event], ..EventsReport::default() },
                ..ServerReport::default()
            }),
            ..StatusReport::default()
        }
    }

    /// Returns the contents of a terminal of this size as text.
    fn screen(width: u16, height: u16, history: &History, chosen: usize) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, history, chosen)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    fn history() -> History {
        let mut history = History::default();
        for second in 1..=5 {
            history.update(vec![report("/srv/a", second, 0.3), report("/srv/b", second * 3, 0.97)]);
        }
        history
    }

    #[test]
    fn all_drives_and_the_chosen_one_in_detail() {
        let text = screen(110, 40, &history(), 1);
        for wanted in [
            "/srv/a",
            "97.0 %",
            "2.50:1",
            "1.00 MiB",
            "1.2 ms",
            "97.0 % of the physical space in use",
            "2 h (1 h to never)",
            "written, up to 1.00 MiB/s",
            "last 1 min",
            "1 h ago  space is getting low",
            "q quits",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
    }

    #[test]
    fn without_room_below_the_drive_nothing_can_be_written() {
        let mut full = report("/srv/a", 1, 0.3);
        (full.backing_full, full.logical_available_bytes) = (true, 1 << 30);
        let mut history = History::default();
        history.update(vec![full]);
        let text = screen(130, 40, &history, 0);
        for wanted in
            [" 0 B can be written", "none: the file system or volume under the drive is full", " full "]
        {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
        assert!(!text.contains("2 h"), "{text}");
    }

    #[test]
    fn at_80_columns_every_drive_can_be_told_by_its_name() {
        let mut history = History::default();
        let paths = [
            "/var/lib/pumice/pools/first/databases",
            "/var/lib/pumice/pools/first/archive",
            "/var/lib/pumice/pools/second/archive",
        ];
        history.update(paths.iter().map(|path| report(path, 1, 0.3)).collect());
        let text = screen(80, 24, &history, 0);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("online")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        for (row, end) in rows.iter().zip(["first/archive", "first/databases", "second/archive"]) {
            let name = row.trim_start_matches('\u{2502}').split_whitespace().next().unwrap_or_default();
            assert!(name.ends_with(end), "{end} in\n{text}");
            assert!(row.contains("30.0 %"), "{text}");
        }
        assert!(text.contains(" /var/lib/pumice/pools/first/archive "), "the title of the detail\n{text}");
        assert!(screen(120, 40, &history, 0).contains("write p99"));
    }

    #[test]
    fn servers_that_do_not_answer_are_named() {
        let mut history = history();
        history.warnings = (0..5).map(|number| format!("warning: server {number}")).collect();
        let text = screen(80, 24, &history, 0);
        assert!(text.contains("warning: server 2") && !text.contains("warning: server 3"), "{text}");
        assert!(text.contains("q quits"), "{text}");
    }

    #[test]
    fn no_terminal_is_too_small_nor_history_too_short() {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            screen(width, height, &history(), 0);
            screen(width, height, &History::default(), 0);
            screen(width, height, &history(), 99);
        }
        let mut gone = history();
        gone.update(Vec::new());
        assert!(screen(110, 40, &gone, 0).contains("not served"));
    }
}
