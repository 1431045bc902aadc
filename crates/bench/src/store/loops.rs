//! Loop devices on files of a run.

use std::path::Path;
use std::time::Duration;

use crate::process::{self, Stop};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Looks at whether devices are gone, and the time between: who has one open keeps it for a moment.
const LOOKS: u32 = 10;
const POLL: Duration = Duration::from_millis(100);

/// Loop devices on a file. It is the kernel that is asked: a program that was stopped may have made one and
/// not said so.
fn on(losetup: &Path, backing: &Path) -> Vec<String> {
    let (folder, never) = (std::env::temp_dir(), Stop::default());
    let backing = backing.display().to_string();
    let found =
        process::run(losetup, &["-n", "-O", "NAME", "-j", backing.as_str()], &folder, COMMAND, &never);
    let text = found.map(|ended| ended.output).unwrap_or_default();
    text.split_whitespace().map(str::to_string).collect()
}

/// Detaches all loop devices on a file. Returns whether none is left.
pub(super) fn detach(backing: &Path) -> bool {
    let Some(losetup) = process::find("losetup") else { return true };
    let (folder, never) = (std::env::temp_dir(), Stop::default());
    let mut left = on(&losetup, backing);
    for device in &left {
        let _ = process::run(&losetup, &["--detach", device.as_str()], &folder, COMMAND, &never);
    }
    for _ in 0..LOOKS {
        if left.is_empty() {
            break;
        }
        left = on(&losetup, backing);
        if !left.is_empty() {
            std::thread::sleep(POLL);
        }
    }
    left.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_devices_of_a_file_are_detached() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a file");
        std::fs::File::create(&file).and_then(|made| made.set_len(1 << 20)).expect("a file");
        assert!(detach(&file));
        let control = std::fs::File::options().read(true).write(true).open("/dev/loop-control");
        let (Some(losetup), Ok(_)) = (process::find("losetup"), control) else {
            eprintln!("skipped: no losetup or no /dev/loop-control");
            return;
        };
        let path = file.display().to_string();
        let make = ["--find", path.as_str()];
        process::run(&losetup, &make, folder.path(), COMMAND, &Stop::default()).expect("a device");
        assert_eq!(on(&losetup, &file).len(), 1);
        assert!(detach(&file));
        assert!(on(&losetup, &file).is_empty());
    }
}
