//! `pumice`: a drive that compresses what is written to it.

#![deny(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it talks to people")]

mod account;
mod alone;
mod attach;
mod attach_method;
mod bench;
mod capacity;
mod check;
mod colour;
mod completions;
mod config;
mod create;
mod demo;
mod detach;
mod doctor;
mod free_space;
#[cfg(test)]
mod fuzz_config;
mod human;
mod in_use;
mod input;
mod interrupt;
mod joined;
mod list;
mod logging;
mod man;
mod not_a_drive;
mod output;
mod panics;
mod plan;
mod progress;
mod resize;
mod scan;
mod serve;
mod served;
mod set_codec;
mod set_parity;
mod settle;
mod sfx;
mod signatures;
mod size;
mod status;
mod systemd;
mod tco;
mod together;
mod train;
#[cfg(test)]
#[path = "../../host/src/tree.rs"]
mod tree;
mod udev;
mod usage;
mod wipe;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};

/// Transparently compressing block device on a file, partition or disk.
#[derive(Parser)]
#[command(name = "pumice", version)]
#[command(
    after_help = "`pumice COMMAND --help` shows details and examples; `pumice man DIR` writes a manual page for each \
        command; `pumice completions SHELL` prints shell completions."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a drive in a file or on a block device
    Create(create::Args),
    /// Serve drives over NBD until stopped
    Serve(Box<serve::Args>),
    /// Attach a drive as a block device
    Attach(Box<attach::Args>),
    /// Detach a drive from its block device
    Detach(detach::Args),
    /// Process behind an attached drive
    #[command(hide = true)]
    Bridge(attach::BridgeArgs),
    /// Properties of a block device, for the rules of udev
    #[command(hide = true)]
    Udev(udev::Args),
    /// Show drive status: space, compression ratio, wear, errors
    Status(status::Args),
    /// List served and attached drives: path, NBD address, block device, capacity, space in use, ratio, state
    List(list::Args),
    /// Show capacity in one line per drive, for scripts
    Capacity(capacity::Args),
    /// Check all structures of a drive that is not being served (read-only)
    Check(check::Args),
    /// Increase logical capacity
    SetCapacity(resize::CapacityArgs),
    /// Increase physical size
    SetSize(resize::SizeArgs),
    /// Change the codec for future writes
    SetCodec(set_codec::Args),
    /// Change the parity of future writes
    SetParity(set_parity::Args),
    /// Recompress stored data now
    Settle(settle::Args),
    /// Train compression dictionaries now
    Train(train::Args),
    /// Erase all data and statistics (factory reset)
    Wipe(wipe::WipeArgs),
    /// Change the sector size; erases all data
    Format(wipe::FormatArgs),
    /// Estimate how well data compresses on a drive
    Scan(scan::Args),
    /// Calculate the logical capacity that is safe to advertise
    Plan(plan::Args),
    /// Calculate total cost of ownership with the SNIA model
    Tco(tco::Args),
    /// Repeat experiments of published documents with fio
    Bench(Box<bench::Args>),
    /// Check the environment of a drive: disks, file systems, memory, limits, processors
    Doctor(doctor::Args),
    /// Run a one-minute demo on a temporary drive
    Demo(demo::Args),
    /// Write manual pages
    Man(man::Args),
    /// Print shell completions (bash, zsh, fish and others)
    Completions(completions::Args),
    /// Show drives in the form of ScaleFlux's `sfx-status`
    SfxStatus(sfx::status::Args),
    /// Change and list drives by the commands of ScaleFlux's `sfx-nvme`
    SfxNvme(sfx::nvme::Args),
}

fn main() -> ExitCode {
    run(sfx::with_command(std::env::args_os().collect()))
}

/// Runs the program with the given arguments, the first of which is its name.
fn run<A: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = A>) -> ExitCode {
    panics::end_the_process();
    fail_beyond_size_limit();
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage::refuse(&error, &Cli::command(), &arguments),
    };
    let done = match cli.command {
        Command::Create(args) => create::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Attach(args) => attach::run(&args),
        Command::Detach(args) => detach::run(&args),
        Command::Bridge(args) => attach::run_bridge(&args),
        Command::Udev(args) => udev::run(&args),
        Command::Status(args) => status::run(&args),
        Command::List(args) => list::run(&args),
        Command::Capacity(args) => capacity::run(&args),
        Command::Check(args) => check::run(&args),
        Command::SetCapacity(args) => resize::set_capacity(&args),
        Command::SetSize(args) => resize::set_size(&args),
        Command::SetCodec(args) => set_codec::run(&args),
        Command::SetParity(args) => set_parity::run(&args),
        Command::Settle(args) => settle::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Wipe(args) => wipe::wipe(&args),
        Command::Format(args) => wipe::format(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Tco(args) => tco::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::SfxStatus(args) => sfx::status::run(&args),
        Command::SfxNvme(args) => sfx::nvme::run(&args),
    };
    let is_log_written = logging::finish();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let error = not_a_drive::clarify(error);
            if is_log_written {
                usage::complain(&usage::one_line(&error));
            }
            ExitCode::from(usage::exit_code(&error))
        }
    }
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`, `LimitFSIZE=`) fail instead of ending
/// the process. The signal is handled rather than ignored: programs that are started find it as it was.
fn fail_beyond_size_limit() {
    // Without it, the signal ends the process as before.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
}

/// Returns whether an error means that the reader has closed the output (`pumice status | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
