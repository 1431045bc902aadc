//! The first file system on an attached drive.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::signatures::{HEAD_BYTES, TAIL_BYTES, in_bytes};

/// Kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filesystem {
    Ext4,
    Xfs,
}

impl std::str::FromStr for Filesystem {
    type Err = String;

    fn from_str(text: &str) -> Result<Filesystem, String> {
        match text {
            "ext4" => Ok(Filesystem::Ext4),
            "xfs" => Ok(Filesystem::Xfs),
            _ => Err("expected ext4 or xfs".to_string()),
        }
    }
}

impl Filesystem {
    /// Makes the file system on a device that holds nothing: of its drive, `used_bytes` are in use.
    pub(super) fn make(self, device: &Path, used_bytes: u64) -> Result<()> {
        if let Some(contents) =
            contents(device).with_context(|| format!("{}: cannot read it", device.display()))?
        {
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

/// Returns what a device probably holds; `None` if both ends are blank.
fn contents(device: &Path) -> std::io::Result<Option<&'static str>> {
    let mut file = File::open(device)?;
    let size = file.seek(SeekFrom::End(0))?;
    let mut read = |offset: u64, length: u64| -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let head = read(0, HEAD_BYTES.min(size))?;
    let tail = read(size - TAIL_BYTES.min(size), TAIL_BYTES.min(size))?;
    Ok(in_bytes(&head, &tail))
}
