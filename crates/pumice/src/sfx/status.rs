//! `sfx-status`: the status listing of ScaleFlux's CSD 2000 (figure 6 of the document), with the same lines
//! in the same order.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use host::Root;
use report::Table;
use status::{StatusReport, shown};

use super::card::{self, Card};
use super::hardware::{self, Hardware};
use super::units::{gibibytes, gigabytes};
use crate::status::listing::{critical_warning, device_status, drive_type, free_space};
use crate::usage;

/// Value of a line if there is none.
const NONE: &str = "-";

#[derive(clap::Args)]
#[command(
    after_help = "A link of the name sfx-status to this program does the same: ln -s \"$(command -v pumice)\" \
        /usr/local/sbin/sfx-status\n\
    Formatted Capacity is the logical capacity, Provisioned Capacity the physical space for data. GB are those of disk \
    makers.\n\n\
    Example: pumice sfx-status 0"
)]
pub(crate) struct Args {
    /// Number of a drive, /dev/sfdvNn1, its block device or its path [default: all that are served or
    /// attached]
    #[arg(value_name = "DRIVE")]
    drives: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let cards = match args.drives.as_slice() {
        [] => card::all(),
        names => names.iter().map(|name| card::find(name)).collect::<Result<_>>()?,
    };
    if cards.is_empty() {
        usage::complain(&format!("no drive is being served or attached{}", crate::served::as_this_user()));
        return Ok(());
    }
    let root = Root::machine();
    let mut out = crate::output::stdout();
    for (index, card) in cards.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        write!(out, "{gap}{}", render(card, &hardware::under(&root, &card.drive)))?;
    }
    Ok(())
}

fn render(card: &Card, hardware: &Hardware) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "SFX card: {}", card.name());
    let mut lines = match card.unknown() {
        Some(reason) => vec![("PCIe Device Status", reason)],
        None => lines(&card.drive, card.device_state(), hardware),
    };
    lines.push(("Pumice Drive", shown(&card.drive.path).to_string()));
    let device = card.device().map_or(NONE.to_string(), |device| shown(device).to_string());
    lines.push(("Block Device", device));
    let mut table = Table::new::<String>([]);
    for (label, value) in lines {
        table.row([format!("{label}:"), value]);
    }
    text + &table.to_indented_text(0)
}

/// Returns labels and values, in the order of the document.
fn lines(
    drive: &StatusReport,
    device_state: Option<String>,
    hardware: &Hardware,
) -> Vec<(&'static str, String)> {
    let known = |value: &Option<String>| value.clone().unwrap_or(NONE.to_string());
    let number =
        |value: Option<f64>, unit: &str| value.map_or(NONE.to_string(), |it| format!("{it:.0}{unit}"));
    let (backing, errors) = (&drive.backing, &drive.errors);
    let ratio = (drive.compression_ratio > 0.0).then_some(100.0 * drive.compression_ratio);
    vec![
        ("PCIe Vendor ID", known(&hardware.vendor_id)),
        ("PCIe Subsystem Vendor ID", known(&hardware.subsystem_vendor_id)),
        ("Manufacturer", known(&hardware.manufacturer)),
        ("Model", drive.model.clone()),
        ("Serial Number", drive.serial.clone()),
        ("OPN", known(&hardware.part_number)),
        ("FPGA BitStream", known(&hardware.firmware)),
        ("Drive Type", drive_type(drive)),
        ("Software Revision", drive.program_version.clone()),
        ("Temperature", number(backing.temperature_celsius, " C")),
        ("Power Consumption", number(backing.power_watts, " W")),
        ("Atomic Write mode", "ON".to_string()),
        ("Percentage Used", number(drive.wear.percentage_used, "%")),
        ("Data Read", gibibytes(drive.host_read_bytes)),
        ("Data Written", gibibytes(drive.host_written_bytes)),
        ("Correctable Error Cnt", errors.corrected_reads_count.to_string()),
        ("Uncorrectable Error Cnt", (errors.corrupt_records_count + errors.read_errors_count).to_string()),
        ("PCIe Link Status", known(&hardware.link)),
        ("PCIe Device Status", device_state.unwrap_or_else(|| device_status(drive))),
        ("Formatted Capacity", gigabytes(drive.logical_capacity_bytes)),
        ("Provisioned Capacity", gigabytes(drive.physical_limit_bytes)),
        ("Compression Ratio", number(ratio, "%")),
        ("Physical Used Ratio", format!("{:.2}%", 100.0 * drive.physical_used_ratio)),
        ("Free Physical Space", free_space(drive, gigabytes)),
        ("Critical Warning", critical_warning(drive)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::{BackingReport, DriveState, WearReport};

    #[test]
    fn the_listing_of_the_document() {
        let hardware = Hardware {
            vendor_id: Some("0xcc53".into()),
            subsystem_vendor_id: Some("0xcc53".into()),
            manufacturer: Some("ScaleFlux".into()),
            part_number: Some("CSDU3RF080B0".into()),
            firmware: Some("4886".into()),
            link: Some("Speed 8GT/s, Width x4".into()),
        };
        let gb = |gb: &str| gb.parse::<super::super::units::Gigabytes>().expect("a number").bytes();
        let drive = StatusReport {
            path: "/srv/drive".into(),
            state: DriveState::Online,
            model: "CSDU3RF080B0".into(),
            serial: "UC2017A0102H".into(),
            program_version: "3.2.6.2-54800".into(),
            logical_capacity_bytes: gb("9600"),
            physical_limit_bytes: gb("6400"),
            physical_available_bytes: gb("6398"),
            physical_used_ratio: 0.000_3,
            host_read_bytes: 48_890 << 30,
            host_written_bytes: 101_261 << 30,
            compression_ratio: 8.0,
            wear: WearReport { percentage_used: Some(8.0), ..WearReport::default() },
            backing: BackingReport {
                kind: status::BackingKind::BlockDevice,
                temperature_celsius: Some(38.0),
                power_watts: Some(12.0),
                ..BackingReport::default()
            },
            ..StatusReport::default()
        };
        let card = Card { number: Some(0), drive, attachment: None };
        let text = render(&card, &hardware);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = "SFX card: /dev/sfdv0n1
            PCIe Vendor ID: 0xcc53
            PCIe Subsystem Vendor ID: 0xcc53
            Manufacturer: ScaleFlux
            Model: CSDU3RF080B0
            Serial Number: UC2017A0102H
            OPN: CSDU3RF080B0
            FPGA BitStream: 4886
            Drive Type: block device
            Software Revision: 3.2.6.2-54800
            Temperature: 38 C
            Power Consumption: 12 W
            Atomic Write mode: ON
            Percentage Used: 8%
            Data Read: 48890 GiB
            Data Written: 101261 GiB
            Correctable Error Cnt: 0
            Uncorrectable Error Cnt: 0
            PCIe Link Status: Speed 8GT/s, Width x4
            PCIe Device Status: Good
            Formatted Capacity: 9600 GB
            Provisioned Capacity: 6400 GB
            Compression Ratio: 800%
            Physical Used Ratio: 0.03%
            Free Physical Space: 6398 GB
            Critical Warning: 0
            Pumice Drive: /srv/drive
            Block Device: -";
        let expected: Vec<&str> = expected.lines().map(str::trim).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn without_room_below_the_drive_there_is_no_free_space() {
        let drive = StatusReport {
            physical_available_bytes: 3_000_000_000_000,
            backing_full: true,
            ..StatusReport::default()
        };
        let free = |drive: &StatusReport| {
            let mut lines = lines(drive, None, &Hardware::default()).into_iter();
            lines.find_map(|(name, value)| (name == "Free Physical Space").then_some(value))
        };
        let full = "the file system or volume under the drive is full";
        let none = gigabytes(0);
        assert!(none.starts_with('0'), "{none}");
        assert_eq!(free(&drive), Some(format!("{none} ({full}; 2999 GB unused on the drive)")));
        assert_eq!(free(&StatusReport { backing_full: false, ..drive }).as_deref(), Some("2999 GB"));
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let lines = lines(&StatusReport::default(), None, &Hardware::default());
        for label in
            ["PCIe Vendor ID", "Manufacturer", "OPN", "PCIe Link Status", "Temperature", "Compression Ratio"]
        {
            assert!(lines.iter().any(|(name, value)| *name == label && value == NONE), "{label}");
        }
    }
}
