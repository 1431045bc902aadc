//! `pumice udev`: what the rules of udev ask about a block device.

use std::io::Write;

use anyhow::Result;

/// Arguments of the program that a rule calls.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the device, such as ublkb0
    name: String,
}

/// Prints the properties of an attached drive's device, and nothing for another device. Waits for nobody:
/// udev handles no other event of the device meanwhile.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(uuid) = attach::node::drive_of(&args.name) {
        writeln!(crate::output::stdout(), "PUMICE_UUID={uuid}")?;
    }
    Ok(())
}
