//! A file, device or NBD export of the user. It is not made empty between scenes.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use super::{Store, Workshop};
use crate::error::{BenchError, Result};
use crate::fio::Place;
use crate::process;

/// Longest wait for a server to say how large its export is.
const ASK: Duration = Duration::from_secs(30);

/// What is there, and how much of it jobs use.
pub(crate) struct Kept {
    place: Place,
    capacity_bytes: u64,
    pids: Vec<u32>,
    /// Keeps others from claiming a block device.
    _claim: Option<File>,
}

impl Kept {
    pub(crate) fn path(workshop: &Workshop<'_>, path: &Path, pids: &[u32]) -> Result<Kept> {
        let (file, size) = claim(path).map_err(BenchError::io(path))?;
        let place = Place::File(path.to_path_buf());
        let kept = Kept::new(workshop, place, &path.display().to_string(), size, pids)?;
        Ok(Kept { _claim: Some(file), ..kept })
    }

    pub(crate) fn nbd(workshop: &Workshop<'_>, uri: &str, pids: &[u32]) -> Result<Kept> {
        let program = process::need("nbdinfo", "libnbd-bin")?;
        let ended = process::run(&program, &["--size", uri], workshop.folder, ASK, workshop.stop)?;
        let size = ended.output.trim().parse();
        let size = size.map_err(|_| BenchError::target(uri, "the server does not say how large it is"))?;
        Kept::new(workshop, Place::Nbd(uri.to_string()), uri, size, pids)
    }

    /// An image of at least the size of stores: fio says so if it is smaller.
    pub(crate) fn rbd(workshop: &Workshop<'_>, pool: &str, image: &str, pids: &[u32]) -> Kept {
        let place = Place::Rbd { pool: pool.to_string(), image: image.to_string() };
        Kept { place, capacity_bytes: workshop.size_bytes, pids: pids.to_vec(), _claim: None }
    }

    fn new(workshop: &Workshop<'_>, place: Place, name: &str, size: u64, pids: &[u32]) -> Result<Kept> {
        /// Least that jobs can use.
        const SMALLEST_BYTES: u64 = 16 << 20;
        if size < SMALLEST_BYTES {
            return Err(BenchError::target(
                name,
                format!("has {size} bytes, expected at least {SMALLEST_BYTES}"),
            ));
        }
        let capacity_bytes = size.min(workshop.size_bytes);
        Ok(Kept { place, capacity_bytes, pids: pids.to_vec(), _claim: None })
    }
}

/// Opens a file or block device, and returns its size. A device is opened with `O_EXCL`, which fails while it or one of its
/// partitions is mounted, swap, or part of another device (`open(2)`).
fn claim(path: &Path) -> std::io::Result<(File, u64)> {
    let mut options = File::options();
    options.read(true);
    if path.metadata()?.file_type().is_block_device() {
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    let mut file = options.open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    Ok((file, size))
}

impl Store for Kept {
    fn place(&self) -> &Place {
        &self.place
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn servers(&self) -> Vec<u32> {
        self.pids.clone()
    }
}
