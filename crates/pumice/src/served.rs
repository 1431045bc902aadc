//! The drives that servers of this machine have. A server that hangs is named, because its drives are missing from what a command shows.

use std::path::Path;

use service::{FoundDrives, SilentServer, find_drives};
use status::StatusReport;

use crate::usage::{complain, printable};

/// Most servers that are named, one a line.
const NAMED_MAX: usize = 8;

/// Returns the drives of all servers; with `path`, only the drive there. Complains of servers that do not answer. The second is whether
/// all answered.
pub(crate) fn drives(path: Option<&Path>) -> (Vec<StatusReport>, bool) {
    let FoundDrives { drives, silent } = find_drives(path);
    for line in lines(&silent, path.is_some()) {
        complain(&line);
    }
    (drives, silent.is_empty())
}

fn lines(silent: &[SilentServer], of_one_drive: bool) -> Vec<String> {
    let result = if of_one_drive { "it may have this drive" } else { "its drives are left out" };
    let mut lines: Vec<String> = silent
        .iter()
        .take(NAMED_MAX)
        .map(|server| printable(&format!("warning: {server}: {result}")))
        .collect();
    if silent.len() > NAMED_MAX {
        lines.push(format!("warning: {} more servers did not answer", silent.len() - NAMED_MAX));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_do_not_answer_are_named() {
        let server = |pid| SilentServer { socket: "/run/pumice/a.sock".into(), pid };
        assert_eq!(
            lines(&[server(Some(12)), server(None)], false),
            [
                "warning: the server at /run/pumice/a.sock (process 12) did not answer within 3 seconds: its drives are left out",
                "warning: the server at /run/pumice/a.sock did not answer within 3 seconds: its drives are left out",
            ]
        );
        let many = lines(&vec![server(None); NAMED_MAX + 2], true);
        assert_eq!(many.len(), NAMED_MAX + 1);
        assert!(many[0].ends_with(": it may have this drive"), "{many:?}");
        assert_eq!(many[NAMED_MAX], "warning: 2 more servers did not answer");
    }
}
