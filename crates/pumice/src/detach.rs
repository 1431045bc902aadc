//! `pumice detach`

use std::path::PathBuf;

use anyhow::{Result, bail};
use attach::client;
use status::shown;

use crate::attach::detach_all;
use crate::in_use;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice detach /dev/loop0\n\
    Flushes the drive, removes its node, and ends the bridge; and the server, if `pumice attach` started it. Refused while the \
    device is mounted or in use otherwise.")]
pub(crate) struct Args {
    /// Device node, or drive
    #[arg(required_unless_present = "configured")]
    path: Option<PathBuf>,
    /// Detach all drives that `pumice attach --configured` has attached
    #[arg(long, conflicts_with = "path")]
    configured: bool,
    /// Detach although the server is gone; what is not flushed is lost
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("detaching a drive needs root");
    }
    let Some(path) = &args.path else { return detach_all(args.force) };
    let Some(found) = client::find(path) else {
        bail!("{}: not attached; `pumice list` shows what is", shown(path));
    };
    if let Some(node) = &found.record.node {
        in_use::refuse(node)?;
    }
    Ok(found.detach(args.force)?)
}
