//! Processes as `/proc` shows them. Processes hidden from this user are unknown.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Root;
use crate::file::is_same;
use crate::foreign::{self, Hangs};
use crate::patience;

/// Some fields of `proc_pid_stat(5)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the program, or of a thread of the kernel; at most 15 bytes for programs.
    pub name: String,
    /// State: `R`, `S`, `T` for stopped, `Z` for ended and not waited for.
    pub state: char,
    /// Process id of its parent.
    pub parent: u32,
    /// User and system time so far, in clock ticks.
    pub cpu_ticks: u64,
    /// The same, of the children that it waited for.
    pub children_cpu_ticks: u64,
    /// Its start, in clock ticks since that of the machine. With the id it identifies the process: ids are
    /// used again.
    pub started_ticks: u64,
}

/// Returns what the kernel shows of a process; `None` if there is none with this id, it is hidden, or that is
/// unknown just now.
pub fn stat(pid: u32) -> Option<Stat> {
    try_stat(pid).ok().flatten()
}

/// Returns what the kernel shows of a process; `None` if there is none with this id, or it is hidden. Waits
/// while memory is too short for the answer.
///
/// # Errors
///
/// If that is unknown: this process may have too many files open.
pub fn try_stat(pid: u32) -> io::Result<Option<Stat>> {
    match patience::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse(&String::from_utf8_lossy(&stat))),
        // The second: it has ended while it was asked.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name is in parentheses, and may contain anything. Fields are counted from 1, the first behind the name
/// is field 3.
fn parse(stat: &str) -> Option<Stat> {
    let (name, fields) = stat.rsplit_once(')')?;
    let (_, name) = name.split_once('(')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let ticks = |field: usize| u64::try_from(number(field)?).ok();
    Some(Stat {
        name: name.to_string(),
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(4)?).ok()?,
        cpu_ticks: ticks(14)? + ticks(15)?,
        children_cpu_ticks: ticks(16)? + ticks(17)?,
        started_ticks: ticks(22)?,
    })
}

/// Returns the ids of all processes.
pub fn ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the name of a process, empty if it is gone.
pub fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_string()
}

/// Returns the arguments of a process, the program first.
///
/// # Errors
///
/// If it is gone or hidden, or its memory is locked, as it may be while a file system hangs.
pub fn arguments(pid: u32) -> io::Result<Vec<OsString>> {
    let read = foreign::in_time(move || fs::read(format!("/proc/{pid}/cmdline")));
    let mut line = read.unwrap_or_else(|Hangs| Err(io::ErrorKind::TimedOut.into()))?;
    // Each argument ends with a zero.
    line.pop();
    Ok(line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// Returns links to the files that a process has open.
pub fn open_files(pid: u32) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.map(|file| file.path())
}

/// Returns whether a process has a file or device open, as far as this one may see that. It may have others
/// open whose file system hangs: those are not it.
pub fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(wanted) = fs::metadata(path) else { return false };
    open_files(pid).any(|file| matches!(foreign::metadata(file), Ok(Some(found)) if is_same(&found, &wanted)))
}

/// Returns an identity of the mount namespace of a process; `None` if it is hidden. `process`: a number, or
/// `self`.
pub fn mount_namespace(process: impl Display) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// Returns a field of `proc_pid_status(5)`, such as `VmRSS`. `process`: a number, or `self`.
pub fn status_field(root: &Root, process: &str, field: &str) -> Option<String> {
    let status = root.text(format!("proc/{process}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_behind_any_name() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 4711 6";
        let expected = Stat {
            name: "a ) b".to_string(),
            state: 'S',
            parent: 1,
            cpu_ticks: 30,
            children_cpu_ticks: 70,
            started_ticks: 4711,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("7 (a) S 1"), None);
        let own = std::process::id();
        assert!(stat(own).is_some_and(|it| it.state.is_ascii_uppercase() && it.started_ticks > 0));
        assert_eq!(stat(u32::MAX), None);
        assert!(ids().any(|pid| pid == own) && !name(own).is_empty());
    }

    #[test]
    fn files_and_arguments_of_a_process() -> io::Result<()> {
        let (file, other) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
        let own = std::process::id();
        assert!(has_open(own, file.path()));
        let path = other.into_temp_path();
        assert!(!has_open(own, &path));
        assert_eq!(arguments(own)?, std::env::args_os().collect::<Vec<_>>());
        assert!(arguments(u32::MAX).is_err());
        assert_eq!(status_field(&Root::machine(), "self", "Pid"), Some(own.to_string()));
        Ok(())
    }
}
