//! Orphans that the server inherits as process 1 of a container.
//!
//! A command of `--on-event` may leave processes behind. When they end, process 1 has to wait for them, or
//! they stay as zombies and keep their process ids. The children of the server itself are waited for where
//! they are started, at once. So only what is found as a zombie twice is an orphan.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// Time between two looks at zombies.
const PAUSE: Duration = Duration::from_secs(1);

/// Reaps orphans from now on, on the current runtime, if this is process 1.
pub(super) fn reap() -> Result<()> {
    if std::process::id() != 1 {
        return Ok(());
    }
    let mut ended = signal(SignalKind::child()).context("cannot listen for signals")?;
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            let mut seen = BTreeSet::new();
            loop {
                tokio::time::sleep(PAUSE).await;
                let zombies = zombies(Path::new("/proc"), 1);
                for pid in zombies.intersection(&seen).filter_map(|pid| Pid::from_raw(*pid)) {
                    // It may be gone: whoever started it was late.
                    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                }
                if zombies.is_empty() {
                    break;
                }
                seen = zombies;
            }
        }
    });
    Ok(())
}

/// Returns the children of `parent` that have ended and were not waited for.
fn zombies(proc: &Path, parent: i32) -> BTreeSet<i32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_zombie = |pid: &i32| {
        let stat = fs::read(proc.join(pid.to_string()).join("stat")).unwrap_or_default();
        is_zombie_of(&String::from_utf8_lossy(&stat), parent)
    };
    pids.filter(is_zombie).collect()
}

/// Format of `proc_pid_stat(5)`: `12 (name) Z 1 ...`. The name may contain anything, also `)`.
fn is_zombie_of(stat: &str, parent: i32) -> bool {
    let mut fields = stat.rsplit_once(')').map_or("", |(_, behind)| behind).split_whitespace();
    fields.next() == Some("Z") && fields.next().and_then(|field| field.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_are_those_of_the_parent() {
        for (stat, expected) in [
            ("12 (sh) Z 1 12 12 0 -1", true),
            ("12 (a) Z 2 (b) Z 1 12 12", true),
            ("12 (a) Z 1 (b) S 1 12 12", false),
            ("12 (sh) S 1 12", false),
            ("12 (sh) Z 7 12", false),
            ("12 (sh) Z", false),
            ("", false),
        ] {
            assert_eq!(is_zombie_of(stat, 1), expected, "{stat}");
        }
        assert!(zombies(Path::new("/nonexistent"), 1).is_empty());
    }
}
