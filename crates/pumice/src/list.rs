//! `pumice list`: one line per drive of the servers on this machine.

use std::io::Write;

use anyhow::Result;
use report::Table;
use serde_json::{Value, json};
use service::find_drives;
use status::{DriveState, StatusReport, path_text, shown};

use crate::human;
use crate::output::print_json;
use crate::status::out_of_space;

/// Placeholder for an unknown value.
const NONE: &str = "-";
const COLUMNS: [&str; 6] = ["PATH", "NBD", "CAPACITY", "USED", "RATIO", "STATE"];

#[derive(clap::Args)]
#[command(
    after_help = "Columns: PATH of the backing; NBD: URI for clients, +N: and N more; CAPACITY: logical capacity; USED: \
    physical space in use, of what data may use; RATIO: compression ratio; STATE: online, read-only, poisoned, closed, or down: \
    its server could not open it. `pumice status PATH` shows more of a drive.\n\n\
    Example: pumice list --json | jq -r '.drives[].nbd_uris[]'"
)]
pub(crate) struct Args {
    /// Omit the header line
    #[arg(long, conflicts_with = "json")]
    no_header: bool,
    /// Print JSON: {"drives": [{"path": ..., "state": ..., "nbd_uris": [...], ...}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut drives = find_drives(None);
    drives.sort_by(|a, b| a.path.cmp(&b.path));
    if args.json {
        return print_json(&json!({ "drives": drives.iter().map(document).collect::<Vec<Value>>() }));
    }
    if drives.is_empty() {
        crate::usage::complain("no drive is being served");
        return Ok(());
    }
    write!(std::io::stdout(), "{}", render(&drives, !args.no_header))?;
    Ok(())
}

fn render(drives: &[StatusReport], header: bool) -> String {
    let mut table = Table::new::<String>([]);
    if header {
        table.row(COLUMNS);
    }
    for drive in drives {
        table.row(cells(drive));
    }
    table.to_indented_text(0)
}

/// Returns the JSON of a drive. Its keys are those of `pumice status --json`. Of a drive that is down nothing is known.
fn document(drive: &StatusReport) -> Value {
    let is_known = drive.state != DriveState::Down;
    let bytes = |bytes: u64| is_known.then_some(bytes);
    let share = |share: f64| is_known.then_some(share);
    json!({
        "path": path_text(&drive.path),
        "state": drive.state,
        "state_reason": drive.state_reason,
        "nbd_uris": nbd_uris(drive),
        "logical_capacity_bytes": bytes(drive.logical_capacity_bytes),
        "physical_used_bytes": bytes(drive.physical_used_bytes),
        "physical_used_ratio": share(drive.physical_used_ratio),
        "compression_ratio": share(drive.compression_ratio),
        "out_of_space": is_known.then_some(drive.out_of_space),
        "backing_full": is_known.then_some(drive.backing_full),
    })
}

fn nbd_uris(drive: &StatusReport) -> &[String] {
    drive.server.as_ref().map(|server| server.nbd_uris.as_slice()).unwrap_or_default()
}

fn cells(drive: &StatusReport) -> [String; 6] {
    let path = shown(&drive.path).to_string();
    if drive.state == DriveState::Down {
        let none = || NONE.to_string();
        return [path, none(), none(), none(), none(), drive.state.to_string()];
    }
    let nbd = match nbd_uris(drive) {
        [] => NONE.to_string(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} +{}", more.len()),
    };
    let ratio = match drive.compression_ratio {
        0.0 => NONE.to_string(),
        ratio => format!("{ratio:.2}:1"),
    };
    let full = out_of_space(drive);
    [
        path,
        nbd,
        human::bytes(drive.logical_capacity_bytes),
        format!("{:.1} %", 100.0 * drive.physical_used_ratio),
        ratio,
        format!("{}{full}", drive.state),
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
        let text = render(&drives, true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "PATH NBD CAPACITY USED RATIO STATE");
        assert_eq!(words(lines[1]), "/srv/a nbd+unix:///?socket=/srv/a.nbd 3.00 GiB 12.5 % 2.50:1 online");
        assert_eq!(words(lines[2]), "/srv/longer nbd://h:1/x +1 3.00 GiB 12.5 % 2.50:1 read-only");
        assert_eq!(words(lines[3]), "/srv/down - - - - down");
        for (line, state) in lines.iter().zip(["STATE", "online", "read-only", "down"]) {
            assert_eq!(line.rfind(state), lines[0].find("STATE"), "{text}");
        }
        assert_eq!(render(&drives, false).lines().count(), 3);
    }
}
