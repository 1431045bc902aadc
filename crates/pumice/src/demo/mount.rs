//! The file system of a block device, mounted. The tests of clients use it, too.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use super::tools::{run, run_always};

/// Time limit of mounting and unmounting.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the file system of a device is mounted, if it is. Its owner unmounts it before the device is lost.
#[derive(Default)]
pub(crate) struct Mount(Option<PathBuf>);

impl Mount {
    /// Mounts the file system of `device`. Makes the directory if there is none.
    pub(crate) fn mount(&mut self, device: &str, point: &Path) -> Result<()> {
        fs::create_dir_all(point)?;
        run("mount", &[OsStr::new(device), point.as_os_str()], LIMIT)?;
        self.0 = Some(point.to_path_buf());
        Ok(())
    }

    /// Unmounts the file system, which writes its data to the drive. Does nothing if none is mounted.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        let Some(point) = self.0.take() else { return Ok(()) };
        const TRIES: u32 = 20;
        for _ in 0..TRIES {
            // A process that examines new mounts may still be using it.
            if run_always("umount", &[&point], LIMIT).is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        run_always("umount", &[OsStr::new("-l"), point.as_os_str()], LIMIT)?;
        Ok(())
    }
}
