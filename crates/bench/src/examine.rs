//! Looks whether targets are what they are said to be, before anything is made for a run.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::objects::Access;
use crate::process::Stop;
use crate::target::{Kind, SMALLEST_BYTES, Target};

/// Reason why a file, device or folder cannot be a target, or of use for one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It is too small for jobs.
    #[error("has {bytes} bytes, expected at least {SMALLEST_BYTES}")]
    TooSmall {
        /// Its size.
        bytes: u64,
    },
    /// It is neither a regular file nor a block device.
    #[error("{} is {kind}: expected a file or block device", path.display())]
    Kind {
        /// Its path.
        path: PathBuf,
        /// Its kind, with an article.
        kind: &'static str,
    },
    /// It is not a regular file.
    #[error("{}: not a file", path.display())]
    NotFile {
        /// Its path.
        path: PathBuf,
    },
    /// There is no directory for the drive.
    #[error("{}: no such directory", path.display())]
    NoFolder {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

impl Target {
    /// Looks whether there is something to measure: a file or device that is large enough, a place for a
    /// drive to make, a gateway that knows the keys. Exports, and what is connected for the run, are looked
    /// at by those who connect.
    ///
    /// # Errors
    /// Fails if there is not, and after ten seconds if a gateway does not answer.
    pub fn examine(&self, stop: &Stop) -> Result<(), BenchError> {
        let wrong = |problem: Unusable| BenchError::target(&self.name, problem);
        match &self.kind {
            Kind::Path(path) => large_enough(device_or_file(path).map_err(wrong)?).map_err(wrong),
            // A link that leads nowhere is one of those that are there.
            Kind::Pumice { path: Some(path), .. } if path.symlink_metadata().is_ok() => {
                device_or_file(path).map(drop).map_err(wrong)
            }
            Kind::Pumice { path: Some(path), .. } => match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                    Err(wrong(Unusable::NoFolder { path: folder.to_path_buf() }))
                }
                _ => Ok(()),
            },
            Kind::Rbd { conf: Some(conf), .. } => readable(conf).map_err(wrong),
            Kind::S3(address) => {
                address.conf.as_deref().map_or(Ok(()), readable).map_err(wrong)?;
                let found = Access::to(address, String::new(), stop).and_then(|access| access.is_there());
                found.map(drop).map_err(|error| match error {
                    // Its own name is that of the bucket.
                    BenchError::Target { problem, .. } => BenchError::target(&self.name, problem),
                    error => error,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Refuses what jobs cannot use for its size.
///
/// # Errors
/// Fails if it is smaller than jobs need.
pub fn large_enough(bytes: u64) -> Result<(), Unusable> {
    match bytes >= SMALLEST_BYTES {
        true => Ok(()),
        false => Err(Unusable::TooSmall { bytes }),
    }
}

/// Returns the size of a regular file or a block device. Nothing else is opened: a pipe would wait for its
/// other end.
fn device_or_file(path: &Path) -> Result<u64, Unusable> {
    let wrong = |source| Unusable::Io { path: path.to_path_buf(), source };
    let kind = path.metadata().map_err(wrong)?.file_type();
    let kind = match () {
        () if kind.is_file() || kind.is_block_device() => {
            return File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).map_err(wrong);
        }
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_char_device() => "a character device",
        () => "a socket",
    };
    Err(Unusable::Kind { path: path.to_path_buf(), kind })
}

fn readable(path: &Path) -> Result<(), Unusable> {
    let wrong = |source| Unusable::Io { path: path.to_path_buf(), source };
    match path.metadata().map_err(wrong)?.is_file() {
        true => File::open(path).map(drop).map_err(wrong),
        false => Err(Unusable::NotFile { path: path.to_path_buf() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_and_no_block_device_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (small, pipe) = (at("small"), at("pipe"));
        std::fs::write(&small, [0; 4096]).expect("written");
        rustix::fs::mknodat(rustix::fs::CWD, &*pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        for (link, to) in [("dangling", "none"), ("loop", "loop")] {
            std::os::unix::fs::symlink(to, at(link)).expect("a link");
        }
        let no_file = "expected a file or block device";
        for (target, says) in [
            (pipe.clone(), format!("{pipe} is a pipe: {no_file}")),
            (format!("pumice:{pipe}"), format!("{pipe} is a pipe: {no_file}")),
            (at("socket"), format!("{} is a socket: {no_file}", at("socket"))),
            (at("."), format!("{} is a directory: {no_file}", at("."))),
            ("/dev/null".to_string(), format!("/dev/null is a character device: {no_file}")),
            ("/dev/zero".to_string(), format!("/dev/zero is a character device: {no_file}")),
            (at("none"), format!("{}: No such file or directory (os error 2)", at("none"))),
            (format!("pumice:{}", at("none/drive")), format!("{}: no such directory", at("none"))),
            (
                format!("pumice:{}", at("dangling")),
                format!("{}: No such file or directory (os error 2)", at("dangling")),
            ),
            (
                format!("pumice:{}", at("loop")),
                format!("{}: Too many levels of symbolic links (os error 40)", at("loop")),
            ),
            (small, "has 4096 bytes, expected at least 16777216".to_string()),
            (
                format!("rbd:p/i?conf={}", at("none")),
                format!("{}: No such file or directory (os error 2)", at("none")),
            ),
        ] {
            let target = Target { name: "t".to_string(), ..target.parse().expect(&target) };
            let error = target.examine(&Stop::default()).expect_err(&says);
            assert_eq!(error.to_string(), format!("target t: {says}"));
        }
        std::fs::File::create(at("large")).and_then(|file| file.set_len(SMALLEST_BYTES)).expect("a file");
        for target in
            [at("large"), format!("pumice:{}", at("new")), "pumice:new".to_string(), "raw".to_string()]
        {
            let target: Target = target.parse().expect(&target);
            target.examine(&Stop::default()).expect("it can be measured");
        }
    }
}
