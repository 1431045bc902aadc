//! Real files to write: documentation, headers and libraries of this machine.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::tools::check_interrupted;

/// Directories with files of many kinds.
const SOURCES: &[&str] =
    &["/usr/share/doc", "/usr/include", "/usr/lib/python3", "/usr/share", "/usr/lib", "/usr"];
/// Largest file that is used. Small files make for a larger number of files.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// Largest depth of directories.
const DEPTH_MAX: usize = 16;

/// A copied file with the size and checksum of its contents.
pub(super) struct Copied {
    /// Path relative to the target directory.
    name: PathBuf,
    bytes: u64,
    crc32c: u32,
}

/// Finds regular files until their total size reaches `bytes_max`.
pub(super) fn find(bytes_max: u64) -> Result<Vec<PathBuf>> {
    let mut found = FileSearch { files: Vec::new(), bytes: 0, bytes_max, seen: Vec::new() };
    for source in SOURCES.iter().map(Path::new) {
        if found.bytes < bytes_max {
            found.walk(source, 0);
            found.seen.push(source.to_path_buf());
        }
    }
    if found.files.is_empty() {
        bail!("no files to write were found in {}", SOURCES.join(", "));
    }
    Ok(found.files)
}

/// Search for files to write.
struct FileSearch {
    files: Vec<PathBuf>,
    bytes: u64,
    bytes_max: u64,
    /// Directory trees that have been searched.
    seen: Vec<PathBuf>,
}

impl FileSearch {
    fn walk(&mut self, dir: &Path, depth: usize) {
        if depth > DEPTH_MAX || self.seen.iter().any(|seen| seen == dir) {
            return;
        }
        // Skips directories that cannot be read.
        let Ok(entries) = fs::read_dir(dir) else { return };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                self.walk(&entry.path(), depth + 1);
            } else if metadata.is_file() && metadata.len() <= FILE_MAX_BYTES {
                self.bytes += metadata.len();
                self.files.push(entry.path());
            }
            if self.bytes >= self.bytes_max {
                return;
            }
        }
    }
}

/// Copies one file into `to`, under its full path.
pub(super) fn copy(file: &Path, to: &Path) -> Result<Copied> {
    check_interrupted()?;
    let name = file.strip_prefix("/").unwrap_or(file).to_path_buf();
    let bytes = fs::read(file).with_context(|| format!("{}: cannot read it", file.display()))?;
    let target = to.join(&name);
    let written = (|| {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(&target)?.write_all(&bytes)
    })();
    written.with_context(|| format!("{}: cannot write it", target.display()))?;
    Ok(Copied { name, bytes: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) })
}

impl Copied {
    /// Size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fails if the file in `dir` differs from the data that was copied.
    pub(super) fn verify(&self, dir: &Path) -> Result<()> {
        check_interrupted()?;
        let path = dir.join(&self.name);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.with_context(|| format!("{}: cannot read it back", path.display()))?;
        if bytes.len() as u64 != self.bytes || crc32c::crc32c(&bytes) != self.crc32c {
            bail!("{}: is not what was written", path.display());
        }
        Ok(())
    }
}
