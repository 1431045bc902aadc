//! Rules of the source tree that a machine can hold. The tests of this crate are the rules; here is what they
//! share.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders and modules at the top of crate `drive`, the highest first: each may use those that follow it, and
/// itself. Those of one rank do not use each other.
pub const DRIVE_RANKS: &[&[&str]] = &[
    &["check", "look"],
    &["open"],
    &["io"],
    &["upkeep"],
    &["medium"],
    &["shared"],
    &["options", "wait"],
    &["state"],
    &["error", "planted", "sync"],
];

/// Returns the root of the source tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A text file of the tree.
pub struct Text {
    /// Path from the root, with `/` between its parts.
    pub path: String,
    /// Its contents.
    pub text: String,
}

/// Returns all files whose names end so: those that Git knows or, outside of a repository, those that are
/// there.
pub fn files(ending: &str) -> Vec<Text> {
    let root = root();
    let mut paths = known_to_git(&root).unwrap_or_else(|| {
        let mut found = Vec::new();
        walk(&root, &root, &mut found);
        found
    });
    paths.retain(|path| path.ends_with(ending));
    paths.sort();
    let read = |path: String| {
        // A file that was removed and is still known to Git.
        let text = fs::read_to_string(root.join(&path)).ok()?;
        Some(Text { path, text })
    };
    paths.into_iter().filter_map(read).collect()
}

fn known_to_git(root: &Path) -> Option<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && name != "target" && name != ".git" => walk(root, &path, found),
            Ok(kind) if kind.is_file() => {
                let inside = path.strip_prefix(root).unwrap_or(&path);
                found.push(inside.to_string_lossy().into_owned());
            }
            _ => {}
        }
    }
}

/// Fails with a list of what breaks a rule, if anything does.
///
/// # Panics
///
/// If `broken` is not empty.
#[track_caller]
pub fn must_be_empty(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}
