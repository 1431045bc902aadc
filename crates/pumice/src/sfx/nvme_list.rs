//! `sfx-nvme list`: the table of `nvme list` (nvme-cli).

use std::io::Write;

use anyhow::Result;

use super::card::{self, Card};

/// Names and widths of the columns.
const COLUMNS: [(&str, usize); 7] =
    [("Node", 21), ("SN", 20), ("Model", 40), ("Namespace", 9), ("Usage", 26), ("Format", 16), ("FW Rev", 8)];
/// The only namespace of a drive.
const NAMESPACE: &str = "1";

pub(super) fn run() -> Result<()> {
    let mut out = crate::output::stdout();
    writeln!(out, "{}", line(COLUMNS.map(|(name, _)| name.to_string())))?;
    writeln!(out, "{}", line(COLUMNS.map(|(_, width)| "-".repeat(width))))?;
    // Nothing is known of the others.
    for card in card::all().iter().filter(|card| card.unknown().is_none()) {
        writeln!(out, "{}", line(cells(card)))?;
    }
    Ok(())
}

fn line(cells: [String; 7]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:<width$}")).collect();
    padded.join(" ").trim_end().to_string()
}

fn cells(card: &Card) -> [String; 7] {
    let drive = &card.drive;
    let format = match drive.sector_bytes {
        bytes if bytes >= 1024 => format!("{:>3} KiB +  0 B", bytes / 1024),
        bytes => format!("{bytes:>3}   B +  0 B"),
    };
    [
        card.name(),
        drive.serial.clone(),
        drive.model.clone(),
        NAMESPACE.to_string(),
        format!("{} / {}", decimal(drive.logical_used_bytes), decimal(drive.logical_capacity_bytes)),
        format,
        drive.program_version.clone(),
    ]
}

/// Formats bytes in powers of 1000, as `  3.20 TB`.
fn decimal(bytes: u64) -> String {
    const UNITS: [&str; 5] = [" B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    // A value that would be rounded to 1000.00 uses the next unit.
    while value >= 999.995 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:>6.2} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::StatusReport;

    #[test]
    fn columns_are_aligned() {
        let drive = StatusReport {
            serial: "0123456789abcdef".into(),
            model: "Pumice".into(),
            sector_bytes: 4096,
            logical_used_bytes: 999_999_999,
            logical_capacity_bytes: 3_200_631_791_616,
            program_version: "0.2.0".into(),
            ..StatusReport::default()
        };
        let text = line(cells(&Card { number: Some(3), drive, attachment: None }));
        let header = line(COLUMNS.map(|(name, _)| name.to_string()));
        for (name, value) in [
            ("Node", "/dev/sfdv3n1"),
            ("SN", "0123456789abcdef"),
            ("Model", "Pumice"),
            ("Namespace", "1"),
            ("Usage", "  1.00 GB /   3.20 TB"),
            ("Format", "  4 KiB +  0 B"),
            ("FW Rev", "0.2.0"),
        ] {
            let at = header.find(name).expect(name);
            assert!(text[at..].starts_with(value), "{name}: {text}");
        }
        assert_eq!(decimal(512), "512.00  B");
    }
}
