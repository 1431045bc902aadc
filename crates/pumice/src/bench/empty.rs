//! Refusal to write to targets that are in use or hold data.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ::bench::{Kind, Stop, Target};
use anyhow::{Context, Result, bail, ensure};
use nbd::client::{Connection, ExportUri};
use rustix::fs::SeekFrom as Place;
use rustix::io::Errno;
use status::DriveState;

use crate::in_use;
use crate::signatures::{self, HEAD_BYTES, TAIL_BYTES};

/// Most bytes that are read to see whether all are zeros.
const READ_BYTES_MAX: u64 = 16 << 30;
/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Fails if a target is in use, or holds data and `destroy` does not allow to overwrite it. A target that is to be connected
/// is looked at when it is. `stop` ends the search for data in files and devices, with an error.
pub(super) fn check(target: &Target, destroy: bool, stop: &Stop) -> Result<()> {
    free(target)?;
    if destroy { Ok(()) } else { blank(target, stop) }
}

/// Fails if a target is in use. Nothing allows to overwrite such a target.
pub(super) fn free(target: &Target) -> Result<()> {
    match &target.kind {
        Kind::Pumice { path: Some(path), .. } if path.exists() => {
            in_use::refuse(path)?;
            let found = crate::status::find(Some(path));
            // A drive that cannot be read is not served.
            if found.unwrap_or_default().iter().any(|drive| drive.server.is_some()) {
                bail!(
                    "{}: is being served; stop its server, or use its NBD address as the target",
                    path.display()
                );
            }
            Ok(())
        }
        _ => target.device_path().map_or(Ok(()), in_use::refuse),
    }
}

/// Fails if a target holds data.
fn blank(target: &Target, stop: &Stop) -> Result<()> {
    match &target.kind {
        Kind::Pumice { path: Some(path), .. } if path.exists() => drive(path),
        Kind::Path(path) | Kind::NvmeTcp { device: Some(path), .. } => {
            let name = path.display().to_string();
            refuse(&name, file(path, stop).with_context(|| name.clone())?)
        }
        Kind::Nbd(uri) => refuse(uri, export(uri).with_context(|| uri.clone())?),
        Kind::Rbd { pool, images, .. } => {
            let images = images.join(",");
            bail!("rbd:{pool}/{images}: may hold data, which is not looked for; overwrite it with --destroy")
        }
        _ => Ok(()),
    }
}

/// A drive must be empty. A damaged one has only a partial status, which may hide data.
fn drive(path: &Path) -> Result<()> {
    for found in crate::status::find(Some(path))? {
        ensure!(
            found.state == DriveState::Idle,
            "{}: is {}, so what it holds is not known; run `pumice check`, or overwrite it with --destroy",
            path.display(),
            found.state
        );
        refuse(&path.display().to_string(), (found.logical_used_bytes > 0).then_some("data"))?;
    }
    Ok(())
}

fn refuse(name: &str, found: Option<&str>) -> Result<()> {
    match found {
        Some(what) => bail!("{name}: holds {what}; choose another, or overwrite it with --destroy"),
        None => Ok(()),
    }
}

fn file(path: &Path, stop: &Stop) -> Result<Option<&'static str>> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    let ranges = data_ranges(&file, size)?;
    contents(size, ranges, |offset, bytes| {
        if stop.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    })
}

/// Ranges of a file that are no holes; all of a device.
fn data_ranges(file: &File, size: u64) -> io::Result<Vec<std::ops::Range<u64>>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size {
        let from = match rustix::fs::seek(file, Place::Data(at)) {
            Ok(from) => from,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            // Devices, and file systems that know no holes.
            Err(_) => at,
        };
        at = rustix::fs::seek(file, Place::Hole(from)).unwrap_or(size).max(from + 1);
        ranges.push(from..at.min(size));
    }
    Ok(ranges)
}

fn export(uri: &str) -> Result<Option<&'static str>> {
    let mut connection = Connection::open(&ExportUri::parse(uri)?, None)?;
    let size = connection.size_bytes();
    let ranges = connection.data_ranges()?;
    contents(size, ranges, |mut offset, mut bytes| {
        while !bytes.is_empty() {
            let read = connection.read_at(offset, bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += read as u64;
            bytes = &mut bytes[read..];
        }
        Ok(())
    })
}

/// Looks for known formats at both ends of something of `size` bytes, then for any byte in `ranges`.
fn contents(
    size: u64,
    ranges: Vec<std::ops::Range<u64>>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Option<&'static str>> {
    let mut part = |offset: u64, length: u64| {
        let mut bytes = vec![0; length as usize];
        read(offset, &mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let head = part(0, HEAD_BYTES.min(size))?;
    let tail = part(size - TAIL_BYTES.min(size), TAIL_BYTES.min(size))?;
    if let Some(found) = signatures::in_bytes(&head, &tail) {
        return Ok(Some(found));
    }
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    ensure!(
        total <= READ_BYTES_MAX,
        "{total} bytes are allocated, more than the {READ_BYTES_MAX} that are read to look for data; discard them \
         (`blkdiscard`), or overwrite it with --destroy"
    );
    let mut piece = vec![0; PIECE_BYTES];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let length = PIECE_BYTES.min((range.end - at) as usize);
            let Some(bytes) = piece.get_mut(..length) else { break };
            read(at, bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(Some("data"));
            }
            at += length as u64;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &Path) -> Target {
        path.display().to_string().parse().expect("a target")
    }

    #[test]
    fn files_with_data_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let target = target(&path);
        std::fs::write(&path, vec![0; 3 << 20]).expect("written");
        check(&target, false, &Stop::default()).expect("blank");
        // At the end, and where neither end shows it.
        for at in [(3 << 20) - 1, 2 << 20] {
            let mut bytes = vec![0; 3 << 20];
            bytes[at] = 1;
            std::fs::write(&path, &bytes).expect("written");
            let error = check(&target, false, &Stop::default()).expect_err("data").to_string();
            assert!(error.ends_with("holds data; choose another, or overwrite it with --destroy"), "{error}");
            check(&target, true, &Stop::default()).expect("may be overwritten");
        }
        let stop = Stop::default();
        stop.set();
        let error = check(&target, false, &stop).expect_err("interrupted");
        assert!(crate::usage::one_line(&error).contains("interrupted"), "{error:?}");
        assert!(check(&"raw".parse().expect("a target"), false, &Stop::default()).is_ok());
    }

    #[test]
    fn holes_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        File::create(&path).and_then(|file| file.set_len(READ_BYTES_MAX * 4)).expect("a file of holes");
        check(&target(&path), false, &Stop::default()).expect("blank");
        let error = contents(1 << 20, vec![0..READ_BYTES_MAX, 0..1], |_, _| Ok(())).expect_err("too much");
        assert!(error.to_string().contains("blkdiscard"), "{error}");
    }

    #[test]
    fn files_in_use_are_refused_whatever_the_options() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = File::create(&path).expect("a file");
        file.set_len(1 << 20).expect("a size");
        file.lock().expect("locked");
        let error = check(&target(&path), true, &Stop::default()).expect_err("in use").to_string();
        assert!(error.contains("in use: locked by process"), "{error}");
        drop(file);
        check(&target(&path), true, &Stop::default()).expect("free");
    }
}
