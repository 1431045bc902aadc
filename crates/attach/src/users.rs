//! Processes that have a device open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::node::partitions;

/// Returns the processes, except this one, that have the device node at `path` open, or one of its partitions, as `ID (NAME)`; of a
/// partition `ID (NAME), by /dev/loop0p1`. Without root, only those of this user.
pub fn openers(path: &Path) -> Vec<String> {
    let number = |path: &Path| fs::metadata(path).ok().map(|found| found.rdev());
    let Some(device) = number(path) else { return Vec::new() };
    let parts: Vec<_> =
        partitions(path).into_iter().filter_map(|part| Some((number(&part.path)?, part.path))).collect();
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let ids = ids.filter(|id| *id != own && id.bytes().all(|byte| byte.is_ascii_digit()));
    let opened = |id: String| {
        let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        let mut numbers = files.filter_map(|file| number(&file.path()));
        let by = numbers.find_map(|it| match parts.iter().find(|(number, _)| *number == it) {
            Some((_, part)) => Some(format!(", by {}", part.display())),
            None => (it == device).then(String::new),
        })?;
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        Some(format!("{id} ({}){by}", name.trim_end()))
    };
    ids.filter_map(opened).collect()
}
