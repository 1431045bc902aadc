//! File descriptors that the parent process left open. A server uses them only if its command line names them, as the
//! shell does for `--config <(...)`. Commands of `on-event` must not get them.

use std::os::fd::RawFd;
use std::path::Path;

/// The last of the standard descriptors.
const STDERR: RawFd = 2;
/// Flag of a descriptor that programs started from here do not get, as in `/proc/PID/fdinfo`.
const CLOSE_ON_EXEC: i32 = libc::O_CLOEXEC;

/// Descriptors of the parent, except the standard ones.
pub(super) struct Inherited(Vec<RawFd>);

impl Inherited {
    /// Lists the descriptors that are open. Call it before anything opens others. Finds none if there is no `/proc`.
    pub(super) fn list() -> Inherited {
        Inherited::list_in(Path::new("/proc/self"))
    }

    fn list_in(process: &Path) -> Inherited {
        let entries = std::fs::read_dir(process.join("fd"));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let numbers = names.filter_map(|name| name.to_str()?.parse().ok()).filter(|number| *number > STDERR);
        // All that this program opens itself has the flag.
        let is_passed_on = |number: &RawFd| {
            let info = std::fs::read_to_string(process.join(format!("fdinfo/{number}"))).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            flags
                .and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok())
                .is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
        };
        Inherited(numbers.filter(is_passed_on).collect())
    }

    /// Closes them. Call it once everything is open that the command line names.
    pub(super) fn close(self) {
        for number in self.0 {
            // It is closed in any case.
            let _ = nix::unistd::close(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn descriptors_that_programs_would_get_are_listed() {
        let process = tempfile::tempdir().expect("a directory");
        for (number, flags) in [(0, "02"), (2, "02"), (3, "02100000"), (9, "0100000"), (63, "00"), (64, "")] {
            for folder in ["fd", "fdinfo"] {
                fs::create_dir_all(process.path().join(folder)).expect("a directory");
            }
            fs::write(process.path().join(format!("fd/{number}")), "").expect("a descriptor");
            let info = format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\n");
            fs::write(process.path().join(format!("fdinfo/{number}")), info).expect("its flags");
        }
        let mut listed = Inherited::list_in(process.path()).0;
        listed.sort_unstable();
        assert_eq!(listed, [9, 63]);
    }

    #[test]
    fn what_the_program_opens_itself_is_not_listed() {
        let file = fs::File::open("/dev/null").expect("a file");
        let listed = Inherited::list().0;
        assert!(!listed.contains(&std::os::fd::AsRawFd::as_raw_fd(&file)), "{listed:?}");
    }
}
