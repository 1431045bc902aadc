//! `pumice list`: one line per drive that is served or attached on this machine.

mod columns;

use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use attach::bridge::AttachmentState;
use attach::client::{self, Attachment};
use host::Root;
use host::block::numbers_above;
use host::file::device_number;
use host::mounts::{Mount, mounts};
use report::Table;
use serde_json::{Value, json};
use status::{BackingPlace, DriveState, StatusReport, path_text, shown};

use crate::colour::{Mood, paint};
use crate::human;
use crate::joined::joined;
use crate::output::print_json;
use crate::status::out_of_space;
use crate::usage::printable;

/// Placeholder for an unknown value.
const NONE: &str = "-";
/// State of an attached drive whose device has a server that no admin socket has reported: a warning names it
/// if it hangs.
const NO_ANSWER: &str = "no answer";
/// As the reason in JSON.
const NO_ANSWER_REASON: &str = "its device has a server, which has not reported its state";
const COLUMNS: [&str; columns::COUNT] =
    ["PATH", "NBD", "DEVICE", "CAPACITY", "USED", "RATIO", "MOUNTED", "STATE"];

/// Least width that lines are shortened to.
const WIDTH_MIN: u16 = 80;

/// A drive that is served, attached, or both.
struct Row {
    /// As if it were down, if it is attached and no server has reported it.
    drive: StatusReport,
    /// A server has reported it.
    is_reported: bool,
    attachment: Option<Attachment>,
    /// Where its device is mounted.
    mounted: Vec<PathBuf>,
}

impl Row {
    /// Whether its device has a server, and no server has reported it.
    fn is_without_answer(&self) -> bool {
        let is_attached =
            self.attachment.as_ref().is_some_and(|it| it.status.state == AttachmentState::Attached);
        !self.is_reported && is_attached
    }
}

#[derive(clap::Args)]
#[command(
    after_help = "Columns: PATH: path of the backing; NBD: URI for clients, and how many more (+N); DEVICE: block \
    device node and its kernel interface; CAPACITY: logical capacity; USED: physical space in use, as a share of \
    what data may use; RATIO: compression ratio; MOUNTED: mount point of the device or of a partition; STATE: see \
    below. `pumice status PATH` shows more.\n\n\
    States: online; read-only; poisoned (refuses changes until it is opened again); closed; down (its server could not \
    open it); no answer (from its server); waiting for the server, or failed, with the reason (attached, no server); \
    waiting for `pumice attach` (attached, no bridge). A backing that was deleted or moved is marked.\n\n\
    Example: pumice list --json | jq -r '.drives[].nbd_uris[]'"
)]
pub(crate) struct Args {
    /// Omit the header line
    #[arg(long, conflicts_with = "json")]
    no_header: bool,
    /// Print whole paths and states; without it, lines on a terminal are shortened to fit
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    /// Print JSON: {"drives": [{"path": ..., "state": ..., "nbd_uris": [...], ...}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (drives, is_all) = crate::served::drives();
    let rows = rows(drives, client::all());
    if args.json {
        return print_json(&json!({ "drives": rows.iter().map(document).collect::<Vec<Value>>() }));
    }
    if rows.is_empty() {
        if is_all {
            crate::usage::complain(&crate::served::none());
        }
        return Ok(());
    }
    // What is read by a program gets everything.
    let width = (!args.wide && std::io::stdout().is_terminal()).then(terminal_width);
    write!(crate::output::coloured_stdout(), "{}", render(&rows, !args.no_header, width))?;
    Ok(())
}

/// Width of the terminal, in characters. One that does not know its width is taken to have the usual 80.
fn terminal_width() -> usize {
    ratatui::crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width.max(WIDTH_MIN)))
}

/// Joins drives with their attachments, in the order of their paths.
fn rows(drives: Vec<StatusReport>, attachments: Vec<Attachment>) -> Vec<Row> {
    let (drives, attachments) = joined(drives, attachments);
    let served = |(drive, attachment)| Row { drive, is_reported: true, attachment, mounted: Vec::new() };
    let mut rows: Vec<Row> = drives.into_iter().map(served).collect();
    for attachment in attachments {
        let (path, state) = (attachment.record.path.clone(), DriveState::Down);
        let state_reason = match attachment.status.state {
            AttachmentState::Attached => Some(NO_ANSWER_REASON.to_string()),
            _ => attachment.status.reason.clone(),
        };
        let drive = StatusReport { path, state, state_reason, ..StatusReport::default() };
        rows.push(Row { drive, is_reported: false, attachment: Some(attachment), mounted: Vec::new() });
    }
    for row in &mut rows {
        row.mounted = row.attachment.as_ref().map(mounted).unwrap_or_default();
    }
    rows.sort_by(|a, b| a.drive.path.cmp(&b.drive.path));
    rows
}

/// Returns where the device of an attachment is mounted, one of its partitions, or a volume on one of these.
fn mounted(attachment: &Attachment) -> Vec<PathBuf> {
    let numbers = attachment.record.node.as_deref().map(numbers_above).unwrap_or_default();
    if numbers.is_empty() {
        return Vec::new();
    }
    // btrfs has device numbers of its own. Its source is a device.
    let is_its = |mount: &Mount| {
        let source = || number_of(Path::new(&mount.source));
        numbers.contains(&mount.device) || source().is_some_and(|number| numbers.contains(&number))
    };
    mounts(&Root::machine()).into_iter().filter(is_its).map(|mount| mount.point).collect()
}

/// Returns the number of the block device at a path, `MAJOR:MINOR`.
fn number_of(path: &Path) -> Option<String> {
    let number = std::fs::metadata(path).ok()?.rdev();
    (number != 0).then(|| device_number(number))
}

/// Returns a line for each drive, at most `width` characters long if there is one.
fn render(rows: &[Row], header: bool, width: Option<usize>) -> String {
    let mut lines: Vec<[String; columns::COUNT]> = rows.iter().map(cells).collect();
    if let Some(width) = width {
        columns::fit(&mut lines, COLUMNS, width);
    }
    if header {
        lines.insert(0, COLUMNS.map(str::to_string));
    }
    let mut table = Table::new::<String>([]);
    for cells in &lines {
        table.row(cells);
    }
    let text = table.to_indented_text(0);
    let moods = rows.iter().map(|row| Some(mood(row)));
    let moods = header.then_some(None).into_iter().chain(moods);
    let painted = text.lines().zip(moods).zip(&lines).map(|((line, mood), [.., state])| {
        match mood.zip(line.strip_suffix(state.trim_end())) {
            Some((mood, before)) => format!("{before}{}\n", paint(mood, state.trim_end())),
            None => format!("{line}\n"),
        }
    });
    painted.collect()
}

/// Returns whether a drive, with its device, is as it should be.
fn mood(row: &Row) -> Mood {
    let Row { drive, attachment, .. } = row;
    let device = attachment.as_ref().map(|attachment| attachment.status.state);
    let is_lost = attachment.as_ref().is_some_and(|attachment| attachment.lost.is_some());
    let is_bad = matches!(drive.state, DriveState::Down | DriveState::Poisoned)
        && !matches!(
            device,
            Some(AttachmentState::Waiting | AttachmentState::Unattended | AttachmentState::Changing)
        );
    let is_placed = matches!(drive.backing.place, BackingPlace::InPlace | BackingPlace::Unknown);
    if is_bad
        || is_lost
        || drive.out_of_space
        || drive.backing_full
        || device == Some(AttachmentState::Failed)
    {
        Mood::Bad
    } else if is_placed
        && drive.state != DriveState::Down
        && matches!(device, None | Some(AttachmentState::Attached))
    {
        Mood::Good
    } else {
        Mood::Warning
    }
}

/// Returns the JSON of a drive. Its keys are those of `pumice status --json`. Of a drive that is down nothing
/// is known.
fn document(row: &Row) -> Value {
    let drive = &row.drive;
    let is_known = drive.state != DriveState::Down;
    let bytes = |bytes: u64| is_known.then_some(bytes);
    let share = |share: f64| is_known.then_some(share);
    json!({
        "path": path_text(&drive.path),
        "state": drive.state,
        "state_reason": drive.state_reason,
        // The state is `down` then: those that read it know no other.
        "no_answer": row.is_without_answer(),
        "nbd_uris": nbd_uris(drive),
        "logical_capacity_bytes": bytes(drive.logical_capacity_bytes),
        "physical_used_bytes": bytes(drive.physical_used_bytes),
        "physical_used_ratio": share(drive.physical_used_ratio),
        "compression_ratio": share(drive.compression_ratio),
        "out_of_space": is_known.then_some(drive.out_of_space),
        "backing_full": is_known.then_some(drive.backing_full),
        "backing_place": is_known.then_some(drive.backing.place),
        "attachment": row.attachment.as_ref().map(|attachment| json!({
            "device": attachment.record.node.as_deref().map(path_text),
            "by": attachment.record.way,
            "size_bytes": attachment.status.size_bytes,
            "state": attachment.status.state,
            "state_reason": attachment.status.reason,
            "mounted": row.mounted.iter().map(|point| path_text(point)).collect::<Vec<_>>(),
        })),
    })
}

fn nbd_uris(drive: &StatusReport) -> &[String] {
    drive.server.as_ref().map(|server| server.nbd_uris.as_slice()).unwrap_or_default()
}

/// Returns the device and how it is made.
fn device(attachment: Option<&Attachment>) -> String {
    let record = attachment.map(|attachment| &attachment.record);
    match record.map(|record| (&record.node, record.way)) {
        Some((Some(node), Some(way))) => format!("{} ({way})", shown(node)),
        _ => NONE.to_string(),
    }
}

fn cells(row: &Row) -> [String; columns::COUNT] {
    let Row { drive, attachment, mounted, .. } = row;
    let path = shown(&drive.path).to_string();
    let device = device(attachment.as_ref());
    let mounted: Vec<String> = mounted.iter().map(|point| shown(point).to_string()).collect();
    let mounted = if mounted.is_empty() { NONE.to_string() } else { mounted.join(",") };
    let none = || NONE.to_string();
    if drive.state == DriveState::Down {
        let status = attachment.as_ref().map(|attachment| &attachment.status);
        let reason = status.and_then(|status| status.reason.as_ref()).map(|reason| format!(": {reason}"));
        let reason = printable(&reason.unwrap_or_default());
        let state = match status.map(|status| status.state) {
            Some(AttachmentState::Waiting) => format!("waiting for the server{reason}"),
            Some(AttachmentState::Unattended) => "waiting for `pumice attach`".to_string(),
            Some(AttachmentState::Failed) => format!("failed{reason}"),
            Some(AttachmentState::Changing) => format!("down{reason}"),
            Some(AttachmentState::Attached) if row.is_without_answer() => NO_ANSWER.to_string(),
            Some(AttachmentState::Attached) | None => drive.state.to_string(),
        };
        return [path, none(), device, none(), none(), none(), mounted, state];
    }
    let nbd = match nbd_uris(drive) {
        [] => none(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} +{}", more.len()),
    };
    let ratio = match drive.compression_ratio {
        0.0 => none(),
        ratio => format!("{ratio:.2}:1"),
    };
    let status = attachment.as_ref().map(|attachment| &attachment.status);
    let lost = attachment.as_ref().and_then(|attachment| attachment.lost.as_ref());
    let is_silent = attachment.as_ref().is_some_and(Attachment::is_silent);
    let is_unprotected = status.is_some_and(|status| status.is_unprotected);
    let device_state = match (lost, status.map(|status| (status.state, status.reason.is_some()))) {
        (_, Some((AttachmentState::Changing, _))) => ", its device is being attached or detached".to_string(),
        (Some((_, why)), _) => printable(&format!(", its device is gone: {why}")),
        (None, Some((AttachmentState::Failed, _))) if is_silent => ", its bridge does not answer".to_string(),
        (None, Some((AttachmentState::Failed, _))) => ", its device failed".to_string(),
        (None, Some((AttachmentState::Unattended, _))) => {
            ", its device waits for `pumice attach`".to_string()
        }
        (None, Some((AttachmentState::Waiting, _))) => ", its device is waiting for the server".to_string(),
        (None, Some((AttachmentState::Attached, _))) if is_unprotected => {
            ", a kill of its server loses writes".to_string()
        }
        (None, Some((AttachmentState::Attached, true))) => ", its device does not grow".to_string(),
        _ => String::new(),
    };
    let full = out_of_space(drive);
    let place = match drive.backing.place {
        BackingPlace::Deleted => ", its backing was deleted",
        BackingPlace::Moved => ", its backing has moved",
        BackingPlace::Replaced => ", its path leads to another file",
        BackingPlace::InPlace | BackingPlace::Unknown => "",
    };
    [
        path,
        nbd,
        device,
        human::bytes(drive.logical_capacity_bytes),
        format!("{:.1} %", 100.0 * drive.physical_used_ratio),
        ratio,
        mounted,
        format!("{}{full}{place}{device_state}", drive.state),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::ServerReport;

    #[test]
    fn an_aligned_line_for_each_drive() {
        let served = |path: &str, uris: &[&str], state| StatusReport {
            path: path.into(),
            state,
            logical_capacity_bytes: 3 << 30,
            physical_used_ratio: 0.125,
            compression_ratio: 2.5,
            server: Some(ServerReport {
                nbd_uris: uris.iter().map(ToString::to_string).collect(),
                ..ServerReport::default()
            }),
            ..StatusReport::default()
        };
        let drives = [
            served("/srv/a", &["nbd+unix:///?socket=/srv/a.nbd"], DriveState::Online),
            served("/srv/longer", &["nbd://h:1/x", "nbd://h:2/x"], DriveState::ReadOnly),
            served("/srv/down", &[], DriveState::Down),
        ];
        let drives = rows(drives.to_vec(), Vec::new());
        let painted = render(&drives, true, None);
        let text = anstream::adapter::strip_str(&painted).to_string();
        assert!(
            painted.contains(&paint(Mood::Good, "online")) && painted.contains(&paint(Mood::Bad, "down"))
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "PATH NBD DEVICE CAPACITY USED RATIO MOUNTED STATE");
        assert_eq!(
            words(lines[1]),
            "/srv/a nbd+unix:///?socket=/srv/a.nbd - 3.00 GiB 12.5 % 2.50:1 - online"
        );
        assert_eq!(words(lines[2]), "/srv/down - - - - - - down");
        assert_eq!(words(lines[3]), "/srv/longer nbd://h:1/x +1 - 3.00 GiB 12.5 % 2.50:1 - read-only");
        for (line, state) in lines.iter().zip(["STATE", "online", "down", "read-only"]) {
            assert_eq!(line.rfind(state), lines[0].find("STATE"), "{text}");
        }
        assert_eq!(render(&drives, false, None).lines().count(), 3);
        let narrow = anstream::adapter::strip_str(&render(&drives, true, Some(80))).to_string();
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    }
}
