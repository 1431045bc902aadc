//! `sfx-nvme`: the commands that the document uses of ScaleFlux's version of nvme-cli.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use attach::client;
use clap::Subcommand;
use drive::WipeOptions;
use service::{IoChoice, run_here};

use super::card::{self, Card};
use super::units::{Gigabytes, gigabytes};
use super::{erase, nvme_list};
use crate::output::report_result;
use crate::resize::too_much;
use crate::usage;

const BLOCK: u64 = layout::BLOCK_BYTES as u64;
/// Time for the block device to show a new capacity.
const GROWTH: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// Sector sizes, in the order of the formats of `format --lbaf`.
const SECTORS: [u32; 2] = [512, 4096];

/// Feature: writes are atomic.
const ATOMIC_WRITES: u32 = 0x1;
/// Feature: reset of the drive. Its name is that of the hardware.
const CLEAR_CARD: u32 = 0xdc;

#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(
    after_help = "A link of the name sfx-nvme to this program does the same: ln -s \"$(command -v pumice)\" \
        /usr/local/sbin/sfx-nvme\n\
    Drives are named by number, /dev/sfdvNn1, /dev/sfxvN (whether or not these exist in /dev), block device or \
    path.\n\n\
    Example: pumice sfx-nvme list"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Nvme,
}

#[derive(Subcommand)]
enum Nvme {
    /// List drives that are served or attached
    List(ListArgs),
    /// Change the sector size; erases all data
    Format(FormatArgs),
    /// Commands of ScaleFlux's drives
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sfx(SfxArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice sfx-nvme list")]
struct ListArgs {}

#[derive(clap::Args)]
struct SfxArgs {
    #[command(subcommand)]
    command: Sfx,
}

#[derive(Subcommand)]
enum Sfx {
    /// Change the logical capacity
    ChangeCap(ChangeCapArgs),
    /// Erase all data and statistics, or turn atomic writes on
    SetFeature(SetFeatureArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice sfx-nvme sfx change-cap /dev/sfdv0n1 -c 9600\n\
    A larger capacity keeps all data; the block device shows it at once. A smaller one is only possible while nothing \
    is stored: erase the drive first (pumice sfx-nvme sfx set-feature -f 0xdc).")]
struct ChangeCapArgs {
    /// Drive
    drive: PathBuf,
    /// Capacity in GB, as disk makers count
    #[arg(short, long, value_name = "GB", required_unless_present = "cap_byte", conflicts_with = "cap_byte")]
    cap: Option<Gigabytes>,
    /// Capacity in bytes
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = bytes)]
    cap_byte: Option<u64>,
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice sfx-nvme sfx set-feature -f 0xdc /dev/sfxv0\n\
    Features: 1: atomic writes, which are always on here; 0xdc: erase all data and statistics. A drive that is \
    attached is detached for that and attached again. Refused while the device is in use.")]
struct SetFeatureArgs {
    /// Drive
    drive: PathBuf,
    /// Feature
    #[arg(short, long, value_name = "ID", value_parser = number)]
    feature_id: u32,
    /// Value
    #[arg(short = 'v', long, short_alias = 'V', value_name = "VALUE", value_parser = number)]
    value: Option<u32>,
    /// Do not ask for confirmation
    #[arg(short = 's', long)]
    force: bool,
}

fn lbaf(text: &str) -> anyhow::Result<u8> {
    let number = text.parse().ok().filter(|number| usize::from(*number) < SECTORS.len());
    number.context("expected 0 (sectors of 512 bytes) or 1 (4096 bytes)")
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice sfx-nvme format /dev/sfdv0n1 -l 1\n\
    A drive that is attached is detached for that and attached again. Refused while the device is in use.")]
struct FormatArgs {
    /// Drive
    drive: PathBuf,
    /// Sectors: 0: 512 bytes, 1: 4096 bytes
    #[arg(short, long, value_name = "FORMAT", value_parser = lbaf)]
    lbaf: u8,
    /// Do not ask for confirmation
    #[arg(short, long)]
    force: bool,
}

/// Parses a number as nvme-cli does: decimal, or hexadecimal with `0x`.
fn bytes(text: &str) -> Result<u64> {
    text.parse().context("expected a number of bytes, without a unit")
}

fn number(text: &str) -> Result<u32> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.context("expected a number, or 0x and hexadecimal digits")
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Nvme::List(_) => nvme_list::run(),
        Nvme::Format(args) => format(args),
        Nvme::Sfx(args) => match &args.command {
            Sfx::ChangeCap(args) => change_cap(args),
            Sfx::SetFeature(args) => set_feature(args),
        },
    }
}

fn format(args: &FormatArgs) -> Result<()> {
    let options = WipeOptions { sector_bytes: Some(SECTORS[usize::from(args.lbaf)]), ..WipeOptions::any() };
    erase::erase(&card::find_patiently(&args.drive)?, options, args.force)
}

fn set_feature(args: &SetFeatureArgs) -> Result<()> {
    let card = card::find_patiently(&args.drive)?;
    match (args.feature_id, args.value) {
        (CLEAR_CARD, _) => erase::erase(&card, WipeOptions::any(), args.force),
        (ATOMIC_WRITES, Some(1)) => {
            let kib = card.drive.atomic_write_bytes >> 10;
            Ok(writeln!(
                crate::output::stdout(),
                "{}: atomic writes are on, for up to {kib} KiB",
                card.name()
            )?)
        }
        (ATOMIC_WRITES, Some(0)) => {
            // No host can tell the difference.
            usage::complain(&format!(
                "warning: {}: atomic writes are always on; nothing is changed",
                card.name()
            ));
            Ok(())
        }
        (ATOMIC_WRITES, _) => bail!("{}: feature 1 needs a value: -v 1 or -v 0", card.name()),
        (other, _) => bail!("{}: feature {other:#x} does not exist here: only 1 and 0xdc do", card.name()),
    }
}

fn change_cap(args: &ChangeCapArgs) -> Result<()> {
    let card = card::find_patiently(&args.drive)?;
    let bytes = args.cap.map(Gigabytes::bytes).or(args.cap_byte).unwrap_or_default() / BLOCK * BLOCK;
    let path = &card.drive.path;
    let drive = if bytes < card.drive.logical_capacity_bytes && card.unknown().is_none() {
        erase::shrink(&card, bytes)?;
        card::find_patiently(path)?.drive
    } else {
        let drive = run_here(IoChoice::Auto, |spawner| service::set_capacity(path, bytes, spawner))??;
        wait_for_device(&card, path, drive.logical_capacity_bytes);
        drive
    };
    report_result(&format!("{}: changed", card.name()), || {
        let (logical, physical) =
            (gigabytes(drive.logical_capacity_bytes), gigabytes(drive.physical_limit_bytes));
        Ok(writeln!(crate::output::stdout(), "{}: {logical} on {physical}", card.name())?)
    });
    if let Some(warning) = too_much(&drive) {
        usage::complain(&format!("warning: {warning}"));
    }
    Ok(())
}

/// Waits until the block device of a drive shows its new capacity, because the next command may be one that
/// grows a file system.
fn wait_for_device(card: &Card, path: &Path, bytes: u64) {
    let since = Instant::now();
    let is_shown = || client::find(path).is_none_or(|attachment| attachment.status.size_bytes >= bytes);
    while card.attachment.is_some() && !is_shown() {
        if since.elapsed() >= GROWTH {
            usage::complain(&format!(
                "warning: {}: its block device does not show the capacity yet",
                card.name()
            ));
            return;
        }
        std::thread::sleep(POLL);
    }
}
