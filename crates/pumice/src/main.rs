//! `pumice`: a drive that compresses what is written to it.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it talks to people")]

mod alone;
mod capacity;
mod check;
mod completions;
mod config;
mod create;
mod demo;
mod doctor;
mod human;
mod logging;
mod man;
mod panics;
mod plan;
mod resize;
mod scan;
mod serve;
mod set_codec;
mod settle;
mod signatures;
mod size;
mod status;
mod tco;
mod train;
mod usage;
mod wipe;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A drive that compresses what is written to it: a file, partition or disk as a larger block device.
#[derive(Parser)]
#[command(name = "pumice", version, disable_help_subcommand = true)]
#[command(
    after_help = "`pumice COMMAND --help` tells more, with examples; `pumice man DIR` writes a manual page of each command, \
    `pumice completions SHELL` prints completions."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a new drive in a file or on a block device
    Create(create::Args),
    /// Serve drives to NBD clients until told to stop
    Serve(serve::Args),
    /// Tell how drives are: space, ratio, wear, errors
    Status(status::Args),
    /// Tell the space of drives in one line each, for scripts
    Capacity(capacity::Args),
    /// Check every structure of a drive that is not being served; nothing is written
    Check(check::Args),
    /// Let hosts see more
    SetCapacity(resize::CapacityArgs),
    /// Let a drive use more of its backing
    SetSize(resize::SizeArgs),
    /// Change how a drive compresses what is written from now on
    SetCodec(set_codec::Args),
    /// Compress what lies on a drive again, as well as it can, now
    Settle(settle::Args),
    /// Learn a dictionary from what was written to a drive, now
    Train(train::Args),
    /// Reset a drive to how it was made: all data and statistics go
    Wipe(wipe::WipeArgs),
    /// Change a drive's sector size, which wipes it
    Format(wipe::FormatArgs),
    /// Tell how compressible data is, and what a drive would make of it
    Scan(scan::Args),
    /// Tell what capacity may be advertised safely
    Plan(plan::Args),
    /// Tell what storage costs over its life, by the SNIA storage TCO model
    Tco(tco::Args),
    /// Look at a drive's surroundings: disks, filesystems, memory, limits, processors; with advice
    Doctor(doctor::Args),
    /// All of it in a minute, on a temporary drive
    Demo(demo::Args),
    /// Write a manual page of each command
    Man(man::Args),
    /// Print completions for a shell: bash, zsh, fish and others
    Completions(completions::Args),
}

fn main() -> ExitCode {
    run(std::env::args_os())
}

/// The whole program, with the name it was called by and its arguments.
fn run<A: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = A>) -> ExitCode {
    panics::end_the_process();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage::refuse(&error),
    };
    let done = match cli.command {
        Command::Create(args) => create::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Capacity(args) => capacity::run(&args),
        Command::Check(args) => check::run(&args),
        Command::SetCapacity(args) => resize::set_capacity(&args),
        Command::SetSize(args) => resize::set_size(&args),
        Command::SetCodec(args) => set_codec::run(&args),
        Command::Settle(args) => settle::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Wipe(args) => wipe::wipe(&args),
        Command::Format(args) => wipe::format(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Tco(args) => tco::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            usage::complain(&usage::one_line(&error));
            if error.is::<usage::WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Whoever reads the output has seen enough (`pumice status | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
