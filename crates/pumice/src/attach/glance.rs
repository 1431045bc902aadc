//! A look at what is to be attached, before anything is started.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use layout::superblock::{SUPERBLOCK_COPIES, Superblock};
use layout::{DecodeError, Geometry, PAGE_BYTES};
use service::ServiceError;
use status::shown;

/// Checks that there is a drive at `path`. Takes no lock and does not open the drive: a server may be about
/// to do so. What else is wrong with it, the server says that is started for it.
///
/// # Errors
/// If there is no such file or device, or if it holds no drive.
pub(super) fn is_drive(path: &Path) -> Result<()> {
    let cannot = |what: &str| format!("{}: cannot {what} it", shown(path));
    let kind = std::fs::metadata(path).with_context(|| cannot("find"))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        bail!("{}: not a regular file or block device", shown(path));
    }
    let file = File::open(path).with_context(|| cannot("open"))?;
    let mut page = [0; PAGE_BYTES];
    let size = (&file).seek(SeekFrom::End(0)).with_context(|| cannot("read"))?;
    let mut holds = |place: u64, is_drive: &dyn Fn(&[u8]) -> bool| match file.read_exact_at(&mut page, place)
    {
        Ok(()) => is_drive(&page),
        // A place that cannot be read may hold one.
        Err(error) => error.kind() != std::io::ErrorKind::UnexpectedEof,
    };
    let is_near = |page: &[u8]| !matches!(Superblock::decode(page), Err(DecodeError::Magic(_)));
    let is_blank = !(0..SUPERBLOCK_COPIES).any(|copy| holds(Geometry::superblock_offset(copy), &is_near))
        // The start may be lost.
        && !Geometry::far_candidates(size).any(|far| {
            holds(Geometry::far_superblock_offset(far), &|page| Superblock::is_far(page, far))
        });
    if is_blank {
        return Err(ServiceError::Drive { path: path.to_path_buf(), source: drive::Error::NotADrive }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_another_process_has_is_recognized() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drive");
        let refused = |why: &str| {
            let error = format!("{:#}", is_drive(&path).expect_err(why));
            assert!(error.contains(why), "{error}");
        };
        refused("No such file");
        std::fs::create_dir(&path).expect("made");
        refused("not a regular file");
        std::fs::remove_dir(&path).expect("removed");
        std::fs::write(&path, vec![0; 1 << 20]).expect("written");
        refused("no Pumice drive");
        std::fs::write(&path, "short").expect("written");
        refused("no Pumice drive");
        // One copy is damaged.
        let mut damaged = vec![0; 1 << 20];
        damaged[64 << 10..][..8].copy_from_slice(&layout::superblock::MAGIC);
        std::fs::write(&path, damaged).expect("written");
        let locked = File::open(&path).expect("opened");
        rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        is_drive(&path).expect("it may be a drive");
    }
}
