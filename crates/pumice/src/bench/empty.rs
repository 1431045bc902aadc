//! Refusal to write to targets that hold data.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ::bench::{Kind, Target};
use anyhow::{Context, Result, bail};
use nbd::client::{Connection, ExportUri};

use crate::in_use;
use crate::signatures::{self, HEAD_BYTES, TAIL_BYTES};

/// Fails if a target holds data, or is in use.
pub(super) fn check(target: &Target) -> Result<()> {
    match &target.kind {
        Kind::Pumice { path: Some(path), .. } if path.exists() => drive(path),
        Kind::Path(path) => {
            in_use::refuse(path)?;
            refuse(&path.display().to_string(), file(path).with_context(|| path.display().to_string())?)
        }
        Kind::Nbd(uri) => refuse(uri, export(uri).with_context(|| uri.clone())?),
        Kind::Rbd { pool, image } => {
            bail!("rbd:{pool}/{image}: may hold data, which is not looked for; overwrite it with --destroy")
        }
        _ => Ok(()),
    }
}

/// A drive may be served only by this run, and must be empty.
fn drive(path: &Path) -> Result<()> {
    for found in crate::status::find(Some(path))? {
        if found.server.is_some() {
            bail!(
                "{}: is being served; stop its server, or use its NBD address as the target",
                path.display()
            );
        }
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

fn file(path: &Path) -> io::Result<Option<&'static str>> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    ends(size, |offset, bytes| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    })
}

fn export(uri: &str) -> Result<Option<&'static str>> {
    let mut connection = Connection::open(&ExportUri::parse(uri)?, None)?;
    let size = connection.size_bytes();
    Ok(ends(size, |mut offset, mut bytes| {
        while !bytes.is_empty() {
            let read = connection.read_at(offset, bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += read as u64;
            bytes = &mut bytes[read..];
        }
        Ok(())
    })?)
}

/// Looks at both ends of something of `size` bytes.
fn ends(
    size: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Option<&'static str>> {
    let mut part = |offset: u64, length: u64| {
        let mut bytes = vec![0; length as usize];
        read(offset, &mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let head = part(0, HEAD_BYTES.min(size))?;
    let tail = part(size - TAIL_BYTES.min(size), TAIL_BYTES.min(size))?;
    Ok(signatures::in_bytes(&head, &tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_data_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let target: Target = path.display().to_string().parse().expect("a target");
        std::fs::write(&path, vec![0; 3 << 20]).expect("written");
        check(&target).expect("blank");
        let mut bytes = vec![0; 3 << 20];
        *bytes.last_mut().expect("bytes") = 1;
        std::fs::write(&path, &bytes).expect("written");
        let error = check(&target).expect_err("data at the end").to_string();
        assert!(error.ends_with("holds data; choose another, or overwrite it with --destroy"), "{error}");
        assert!(check(&"raw".parse().expect("a target")).is_ok());
    }
}
