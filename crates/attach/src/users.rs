//! Processes that have a device open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the processes, except this one, that have the device node at `path` open, as `ID (NAME)`. Without root, only those
/// of this user.
pub fn openers(path: &Path) -> Vec<String> {
    let Ok(device) = fs::metadata(path).map(|found| found.rdev()) else { return Vec::new() };
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let ids = ids.filter(|id| *id != own && id.bytes().all(|byte| byte.is_ascii_digit()));
    let has_open = |id: &String| {
        let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        files.into_iter().any(|file| fs::metadata(file.path()).is_ok_and(|it| it.rdev() == device))
    };
    let named = |id: String| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        format!("{id} ({})", name.trim_end())
    };
    ids.filter(has_open).map(named).collect()
}
