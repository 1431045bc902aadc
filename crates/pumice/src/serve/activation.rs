//! Sockets that the service manager has bound and passes on (socket activation, `sd_listen_fds(3)`): their
//! number in `$LISTEN_FDS`, their names in `$LISTEN_FDNAMES`, and the process that they are for in
//! `$LISTEN_PID`.

use std::os::fd::RawFd;

use anyhow::{Context, Result, bail};
use nbd::Inherited;

use super::inherited::Passed;
use crate::config::ActivatedSocket;

/// The first descriptor that is passed on, `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;
/// Most sockets.
const SOCKETS_MAX: usize = 256;
/// Names of sockets that offer all drives: given by hand, and what `sd_listen_fds_with_names` calls one
/// without a name.
const ALL_DRIVES: [&str; 3] = ["", "nbd", "unknown"];
/// The same of a unit of this program. systemd gives a socket without `FileDescriptorName=` the name of its
/// unit.
const OWN_UNIT: &str = "pumice.socket";

/// A socket that the service manager has bound.
pub(super) struct Activated {
    pub(super) socket: Inherited,
    /// Name of the drive that it offers; `None`: all drives.
    drive: Option<String>,
}

impl Activated {
    /// Returns what the configuration has to know of it.
    pub(super) fn listed(&self) -> ActivatedSocket {
        ActivatedSocket { address: self.socket.address().clone(), drive: self.drive.clone() }
    }
}

/// Takes the sockets that were passed to this process.
///
/// # Errors
///
/// If the variables contradict themselves, or what was passed is no socket to listen on.
pub(super) fn sockets(mut passed: Passed) -> Result<Vec<Activated>> {
    let named = names(std::process::id(), |variable| {
        std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
    })?;
    let take = |(number, name): (RawFd, String)| {
        let what = || format!("LISTEN_FDS: descriptor {number} (named {name:?})");
        let descriptor = passed.take(number).context("not open").with_context(what)?;
        let socket = Inherited::new(descriptor).with_context(what)?;
        let is_of_all = ALL_DRIVES.contains(&name.as_str()) || name == OWN_UNIT;
        Ok(Activated { socket, drive: (!is_of_all).then_some(name) })
    };
    (FIRST..).zip(named).map(take).collect()
}

/// Returns the names of the sockets that are meant for process `pid`, in order.
fn names(pid: u32, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    // Variables of another process reach this one if that has not removed them: they are not for this one.
    if variable("LISTEN_PID").is_none_or(|value| value != pid.to_string()) {
        return Ok(Vec::new());
    }
    let Some(count) = variable("LISTEN_FDS") else { return Ok(Vec::new()) };
    let count = match count.parse() {
        Ok(count @ 0..=SOCKETS_MAX) => count,
        _ => bail!("LISTEN_FDS={count}: expected a number of sockets from 0 to {SOCKETS_MAX}"),
    };
    let Some(names) = variable("LISTEN_FDNAMES") else { return Ok(vec![String::new(); count]) };
    let listed: Vec<String> = names.split(':').map(str::to_owned).collect();
    match listed.len() {
        // Nothing is listed as one empty name.
        _ if count == 0 && names.is_empty() => Ok(Vec::new()),
        len if len == count => Ok(listed),
        len => bail!("LISTEN_FDNAMES={names}: {len} names, but LISTEN_FDS={count}: expected one for each"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(variables: &[(&str, &str)]) -> Result<Vec<String>> {
        names(77, |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
    }

    #[test]
    fn sockets_for_this_process_have_names() {
        let pid = ("LISTEN_PID", "77");
        assert_eq!(names_of(&[pid, ("LISTEN_FDS", "2")]).expect("valid"), ["", ""]);
        let named = [pid, ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "nbd:disk")];
        assert_eq!(names_of(&named).expect("valid"), ["nbd", "disk"]);
        let none = [pid, ("LISTEN_FDS", "0"), ("LISTEN_FDNAMES", "")];
        assert!(names_of(&none).expect("valid").is_empty());
    }

    #[test]
    fn those_of_other_processes_are_left_alone() {
        for variables in [&[][..], &[("LISTEN_FDS", "x")], &[("LISTEN_FDS", "x"), ("LISTEN_PID", "78")]] {
            assert!(names_of(variables).expect("not for this process").is_empty());
        }
        assert!(names_of(&[("LISTEN_PID", "77")]).expect("nothing").is_empty());
    }

    #[test]
    fn contradictions_are_refused() {
        let pid = ("LISTEN_PID", "77");
        for count in ["", "x", "-1", "257", "99999999999999999999"] {
            let said = names_of(&[pid, ("LISTEN_FDS", count)]).expect_err("no count").to_string();
            assert!(said.contains("LISTEN_FDS="), "{said}");
        }
        for (count, names) in [("2", "one"), ("1", "one:two"), ("0", "one")] {
            let said = names_of(&[pid, ("LISTEN_FDS", count), ("LISTEN_FDNAMES", names)]);
            assert!(said.expect_err("contradict").to_string().contains("expected one for each"));
        }
    }
}
