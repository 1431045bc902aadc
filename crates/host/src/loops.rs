//! Loop devices: block devices whose bytes are those of a file or another device.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the path of the backing file of a loop device, by its directory in sysfs. `None` if it is no loop
/// device, or has no file. The path is the one that a process of the mount namespace sees in which the device
/// was set up, with ` (deleted)` behind it if the file has no name any more.
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn backing_file(device: &Path) -> io::Result<Option<PathBuf>> {
    let mut name = match std::fs::read(device.join("loop/backing_file")) {
        Ok(name) => name,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    name.truncate(name.strip_suffix(b"\n").unwrap_or(&name).len());
    Ok((!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&name))))
}
