//! The drives that servers of this machine have. A server that hangs is named, because its drives are missing
//! from what a command shows.

use std::path::Path;

use anyhow::Result;
use ask::{AskError, FoundDrives, SilentServer, find_drive_patiently, find_drives};
use status::{StatusReport, shown};

use crate::usage::{complain, printable};

/// Most lines about servers.
const LINES_MAX: usize = 8;

/// What is to be said beside "no drive": the servers of root answer root alone.
pub(crate) fn as_this_user() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "",
        false => " that this user may see (try root)",
    }
}

/// Returns the line that says that there is no drive.
pub(crate) fn none() -> String {
    format!("no drive is being served{}", as_this_user())
}

/// Returns the drives of all servers. Complains of servers that do not answer. The second is whether all
/// answered.
pub(crate) fn drives() -> (Vec<StatusReport>, bool) {
    let found = find_drives(None);
    complain_of(&found.silent, false);
    (found.drives, found.silent.is_empty())
}

/// Returns the drive at `path` as its server reports it, also if it is down there. Complains of servers that
/// do not answer.
///
/// # Errors
/// If a server has another file, which it has opened by this path.
pub(crate) fn drive(path: &Path) -> Result<Option<StatusReport>> {
    one(find_drives(Some(path)))
}

/// As [`drive`], for a drive that is to be changed: its server has ten seconds to answer.
pub(crate) fn drive_to_change(path: &Path) -> Result<Option<StatusReport>> {
    one(find_drive_patiently(path))
}

fn one(found: FoundDrives) -> Result<Option<StatusReport>> {
    if let Some(other) = found.other_file {
        return Err(AskError::from(other).into());
    }
    complain_of(&found.silent, true);
    Ok(found.drives.into_iter().next())
}

fn complain_of(silent: &[SilentServer], of_one_drive: bool) {
    lines(silent, of_one_drive).iter().for_each(|line| complain(line));
}

/// Returns the warnings that a search gives beside the drives: servers that do not answer, and one that has
/// another file than its path leads to.
pub(crate) fn warnings(found: &FoundDrives, of_one_drive: bool) -> Vec<String> {
    let mut warnings = lines(&found.silent, of_one_drive);
    let other = found.other_file.clone().map(AskError::from);
    warnings.extend(other.map(|other| printable(&format!("warning: {other}"))));
    warnings
}

/// Returns a line for each process that does not answer, which has a socket for each of its drives.
fn lines(silent: &[SilentServer], of_one_drive: bool) -> Vec<String> {
    let mut groups: Vec<(&SilentServer, usize)> = Vec::new();
    for server in silent {
        let is_same = |other: &SilentServer| (other.pid, &other.what) == (server.pid, &server.what);
        match groups.iter_mut().find(|(first, _)| is_same(first)) {
            Some((_, sockets)) => *sockets += 1,
            None => groups.push((server, 1)),
        }
    }
    let mut lines: Vec<String> = groups
        .iter()
        .take(LINES_MAX)
        .map(|(server, sockets)| {
            let (first, what) = (shown(&server.socket), &server.what);
            let named = match (server.pid, *sockets) {
                (_, 1) => server.to_string(),
                (Some(pid), sockets) => format!("the server process {pid} ({sockets} sockets) {what}"),
                (None, sockets) => format!("the servers at {first} and {} more: each {what}", sockets - 1),
            };
            let result = match (of_one_drive, server.pid.is_none() && *sockets > 1) {
                (true, false) => "it may have this drive",
                (true, true) => "one may have this drive",
                (false, false) => "its drives are left out",
                (false, true) => "their drives are left out",
            };
            printable(&format!("warning: {named}: {result}"))
        })
        .collect();
    let others: usize = groups.iter().skip(LINES_MAX).map(|(_, sockets)| sockets).sum();
    if others > 0 {
        lines.push(format!("warning: servers at {others} more sockets did not answer"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: u32, pid: Option<u32>) -> SilentServer {
        let what = "did not answer within 3 seconds".to_string();
        SilentServer { socket: format!("/run/pumice/{number}.sock").into(), pid, what }
    }

    #[test]
    fn servers_that_do_not_answer_are_named() {
        assert_eq!(
            lines(&[server(1, Some(12)), server(2, None)], false),
            [
                "warning: the server at /run/pumice/1.sock (process 12) did not answer within 3 seconds: its drives \
                 are left out",
                "warning: the server at /run/pumice/2.sock did not answer within 3 seconds: its drives are left out",
            ]
        );
        let one = lines(&[server(1, None)], true);
        assert!(one[0].ends_with(": it may have this drive"), "{one:?}");
    }

    #[test]
    fn a_server_of_many_drives_has_one_line() {
        let mut silent: Vec<SilentServer> = (0..100).map(|number| server(number, Some(12))).collect();
        silent.insert(50, server(100, Some(13)));
        silent.extend([server(101, None), server(102, None)]);
        let all = lines(&silent, false);
        assert_eq!(
            all,
            [
                "warning: the server process 12 (100 sockets) did not answer within 3 seconds: its drives are left out",
                "warning: the server at /run/pumice/100.sock (process 13) did not answer within 3 seconds: its drives \
                 are left out",
                "warning: the servers at /run/pumice/101.sock and 1 more: each did not answer within 3 seconds: their \
                 drives are left out",
            ]
        );
        let many: Vec<SilentServer> = (0..20).map(|number| server(number, Some(number))).collect();
        let many = lines(&many, false);
        assert_eq!(many.len(), LINES_MAX + 1);
        assert_eq!(many[LINES_MAX], "warning: servers at 12 more sockets did not answer");
    }
}
