//! Columns of the drive table: selection by width, and contents.

use ratatui::style::{Color, Style};
use ratatui::widgets::Cell;
use status::{DriveState, StatusReport};

use super::history::Watched;
use crate::human;

/// Width of the borders.
pub(super) const BORDERS: u16 = 2;
/// Smallest width left for names.
const NAME_MIN_WIDTH: u16 = 24;

/// A column of the drive table, in addition to the name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Column {
    State,
    Used,
    Ratio,
    Written,
    Read,
    WriteLatency,
    Full,
}

impl Column {
    const ALL: [Column; 7] = [
        Column::State,
        Column::Used,
        Column::Ratio,
        Column::Written,
        Column::Read,
        Column::WriteLatency,
        Column::Full,
    ];

    /// Returns the columns that leave enough width for names. On a narrow terminal, columns whose values are
    /// also in the detail view are omitted.
    pub(super) fn fitting(width: u16) -> Vec<Column> {
        let mut columns = Column::ALL.to_vec();
        for dispensable in [Column::WriteLatency, Column::Ratio, Column::Full] {
            let fixed: u16 = columns.iter().map(|column| column.width() + 1).sum();
            if fixed + BORDERS + NAME_MIN_WIDTH > width {
                columns.retain(|column| *column != dispensable);
            }
        }
        columns
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Column::State => "state",
            Column::Used => "used",
            Column::Ratio => "ratio",
            Column::Written => "written/s",
            Column::Read => "read/s",
            Column::WriteLatency => "write p99",
            Column::Full => "full in",
        }
    }

    pub(super) fn width(self) -> u16 {
        match self {
            Column::Used => 7,
            Column::Ratio => 8,
            Column::WriteLatency => 9,
            Column::State | Column::Full => 10,
            Column::Written | Column::Read => 11,
        }
    }

    pub(super) fn cell(self, drive: &Watched) -> Cell<'static> {
        let (report, now) = (&drive.report, drive.now());
        if report.state == DriveState::Down && self != Column::State {
            return Cell::from("-");
        }
        match self {
            Column::State => Cell::from(state(drive)).style(state_style(drive)),
            Column::Used => Cell::from(percent(report)).style(space_style(report)),
            Column::Ratio => Cell::from(ratio(report)),
            Column::Written => Cell::from(rate(now.written_bytes)),
            Column::Read => Cell::from(rate(now.read_bytes)),
            Column::WriteLatency => {
                let writes = report.server.as_ref().map(|server| &server.latency_recent.write);
                Cell::from(latency(writes.and_then(|writes| writes.p99_seconds)))
            }
            Column::Full if report.backing_full => Cell::from("full"),
            Column::Full => Cell::from(report.time_to_full.seconds.map_or("-".to_string(), human::duration)),
        }
    }
}

fn state(drive: &Watched) -> String {
    if drive.gone { "not served".to_string() } else { drive.report.state.to_string() }
}

fn state_style(drive: &Watched) -> Style {
    let healthy = if drive.report.critical_warning.bits == 0 { Color::Green } else { Color::Yellow };
    Style::new().fg(match drive.report.state {
        _ if drive.gone => Color::DarkGray,
        DriveState::Poisoned | DriveState::Damaged | DriveState::Down => Color::Red,
        DriveState::Online
        | DriveState::ReadOnly
        | DriveState::Closed
        | DriveState::Idle
        | DriveState::Unknown => healthy,
    })
}

/// Returns the colour for the used space by the warning levels: red from the highest level on.
pub(super) fn space_style(report: &StatusReport) -> Style {
    let levels =
        report.server.as_ref().map(|server| server.events.warn_at_percent.as_slice()).unwrap_or_default();
    let reached = |level: Option<&u8>| {
        level.is_some_and(|level| 100.0 * report.physical_used_ratio >= f64::from(*level))
    };
    Style::new().fg(if reached(levels.last()) {
        Color::Red
    } else if reached(levels.first()) {
        Color::Yellow
    } else {
        Color::Green
    })
}

pub(super) fn percent(report: &StatusReport) -> String {
    format!("{:.1} %", 100.0 * report.physical_used_ratio)
}

pub(super) fn ratio(report: &StatusReport) -> String {
    match report.compression_ratio {
        0.0 => "-".to_string(),
        ratio => format!("{ratio:.2}:1"),
    }
}

pub(super) fn rate(bytes: f64) -> String {
    human::bytes(bytes as u64)
}

pub(super) fn latency(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_string(), human::latency)
}
