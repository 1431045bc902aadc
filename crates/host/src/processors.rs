//! Processors.

use crate::Root;
use crate::process::status_field;

/// Returns the list of processors that are online, such as `0-3,7`.
pub fn online(root: &Root) -> Option<String> {
    root.text("sys/devices/system/cpu/online")
}

/// Returns the list of processors that a process may run on; `None` if it is gone. `process`: a number, or
/// `self`.
pub fn allowed(root: &Root, process: &str) -> Option<String> {
    status_field(root, process, "Cpus_allowed_list")
}

/// Counts the processors in a list such as `0-3,8`; `None` if it is no such list.
pub fn count(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (last.trim().parse::<usize>().ok()? + 1).checked_sub(first.trim().parse().ok()?)
        })
        .sum()
}
