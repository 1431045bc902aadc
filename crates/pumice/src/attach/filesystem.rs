//! The first file system on an attached drive.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::signatures::{self, Contents};

/// Kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filesystem {
    Ext4,
    Xfs,
}

impl std::str::FromStr for Filesystem {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Filesystem> {
        match text {
            "ext4" => Ok(Filesystem::Ext4),
            "xfs" => Ok(Filesystem::Xfs),
            _ => bail!("expected ext4 or xfs"),
        }
    }
}

impl Filesystem {
    /// Makes the file system on a device that holds nothing: of its drive, `used_bytes` are in use.
    pub(super) fn make(self, device: &Path, used_bytes: u64) -> Result<()> {
        let found = File::open(device).and_then(|file| signatures::find(&file, device));
        let found = found.with_context(|| format!("{}: cannot read it", device.display()))?;
        if let Some(contents) = Contents::new(found) {
            bail!("{}: it holds {contents}; attach it without --mkfs", device.display());
        }
        if used_bytes > 0 {
            bail!("{}: it holds data; attach it without --mkfs", device.display());
        }
        let (program, arguments): (_, &[&str]) = match self {
            // A block of the file system is a block of the drive, however small the drive is.
            Filesystem::Ext4 => ("mkfs.ext4", &["-q", "-b", "4096"]),
            Filesystem::Xfs => ("mkfs.xfs", &["-q"]),
        };
        let made = Command::new(program).args(arguments).arg(device).stdin(Stdio::null()).output();
        let made = made.with_context(|| format!("cannot run {program}"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            bail!(
                "{program} failed: {}",
                said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given")
            );
        }
        Ok(())
    }
}
