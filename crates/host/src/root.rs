//! Files of the kernel, below a directory that stands for `/`.

use std::path::{Path, PathBuf};

use crate::file::device_number;
use crate::patience;

/// Directory that contains `sys`, `proc`, `dev` and `etc`.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Files below `directory`.
    pub fn new(directory: &Path) -> Root {
        Root(directory.to_path_buf())
    }

    /// Files of this machine.
    pub fn machine() -> Root {
        Root::new(Path::new("/"))
    }

    /// Returns whether these are the files of this machine.
    pub fn is_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns a path below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the directory in sysfs of a block device, by its number. It may not exist.
    pub fn block_device(&self, number: u64) -> PathBuf {
        self.path("sys/dev/block").join(device_number(number))
    }

    /// Returns the text of a file without surrounding white space; `None` if it is empty or cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = patience::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_string())
    }

    /// Returns the number in a file; `None` if it holds anything else.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory that `wanted` accepts, sorted.
    pub fn names(&self, directory: impl AsRef<Path>, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let directory = self.path(directory);
        let Ok(entries) = patience::patiently(|| std::fs::read_dir(&directory)) else { return Vec::new() };
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.flatten().map(name).filter(|name| wanted(name)).collect();
        names.sort();
        names
    }
}

/// Returns whether a name consists of a word and a number: `cpu3`, `loop0`.
pub fn numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}
