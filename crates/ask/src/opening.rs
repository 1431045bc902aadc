//! A server that is opening a drive, or closing it: it has the file, and no admin socket for it. Recovery
//! after a kill takes a moment, or longer.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use host::process::{arguments, has_open, ids, name};

/// Time for such a server to have the drive open, or to have closed it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of looks whether it has.
const POLL: Duration = Duration::from_millis(50);
/// Name of this program, and of its processes.
const PROGRAM: &str = "pumice";
/// The command of servers.
const SERVE: &str = "serve";

/// Searches for a drive again while a server is opening or closing it, for five seconds. `find` returns what
/// it has found, and the process id of such a server if that is no drive.
pub(crate) fn wait_while_opening<T>(mut find: impl FnMut() -> (T, Option<u32>)) -> T {
    let since = Instant::now();
    loop {
        let (found, server) = find();
        if server.is_none() || since.elapsed() >= PATIENCE {
            return found;
        }
        sleep(POLL);
    }
}

/// Returns whether a server has the file or device at `path` open, as far as this user may see that. If no
/// admin socket reports the drive, it is opening or closing it.
pub fn is_being_opened(path: &Path) -> bool {
    server_with_open(path).is_some()
}

/// Returns the process id of a server that has the file or device at `path` open, as far as this user may see
/// that.
pub fn server_with_open(path: &Path) -> Option<u32> {
    let own = std::process::id();
    ids().find(|pid| *pid != own && is_this_program(*pid) && has_open(*pid, path) && is_server(*pid))
}

/// Returns whether a process runs this program, by its name, which is quicker to have than its command.
fn is_this_program(pid: u32) -> bool {
    let theirs = name(pid);
    theirs.starts_with(PROGRAM) || !theirs.is_empty() && theirs == name(std::process::id())
}

fn is_server(pid: u32) -> bool {
    arguments(pid).is_ok_and(|arguments| arguments.get(1).is_some_and(|command| command == SERVE))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_server_that_has_a_file_is_known_by_its_command() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        fs::write(&path, "")?;
        // The name of the script is the first argument.
        let script = folder.path().join("serve");
        fs::write(&script, "echo; read line")?;
        let program = folder.path().join(PROGRAM);
        std::os::unix::fs::symlink("/bin/sh", &program)?;
        let start = |name: &str| {
            let mut command = Command::new(&program);
            command.arg(name).current_dir(folder.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.stderr(fs::File::open(&path)?).spawn()
        };
        fs::copy(&script, folder.path().join("copy"))?;
        let mut other = start("copy")?;
        other.stdout.as_mut().expect("piped").read_exact(&mut [0])?;
        assert_eq!(server_with_open(&path), None, "no server");
        let mut server = start("serve")?;
        server.stdout.as_mut().expect("piped").read_exact(&mut [0])?;
        assert_eq!(server_with_open(&path), Some(server.id()));
        assert_eq!(server_with_open(&folder.path().join("copy")), None, "another's script");
        for mut child in [server, other] {
            drop(child.stdin.take());
            child.wait()?;
        }
        Ok(())
    }
}
