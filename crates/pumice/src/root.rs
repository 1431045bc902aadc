//! Files of the kernel, below a directory that represents `/`.

use std::path::{Path, PathBuf};

/// Directory that contains `sys`, `proc` and `etc`.
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn new(directory: &Path) -> Root {
        Root(directory.to_path_buf())
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// Returns a path below the root.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the text of a file without surrounding white space; `None` if it is empty or cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = std::fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_string())
    }

    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory that `wanted` accepts, sorted.
    pub(crate) fn names(&self, directory: impl AsRef<Path>, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(directory)) else { return Vec::new() };
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.flatten().map(name).filter(|name| wanted(name)).collect();
        names.sort();
        names
    }
}

/// Returns whether a name consists of a word and a number: `cpu3`, `loop0`.
pub(crate) fn numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Creates a directory tree with files, to be used as the root.
#[cfg(test)]
pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    let root = Root::new(folder.path());
    (folder, root)
}
