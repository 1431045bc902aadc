//! A server that is opening a drive: it has locked the backing, and has no admin socket for it yet.

use crate::common::opening::Opening;
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, fails, fails_with};

#[test]
fn a_server_that_is_opening_the_drive_is_named_and_waited_for() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let server = Opening::start(&drive)?;
    let says = format!("{path}: in use by process {}, a server that does not report it", server.pid());
    fails(&drive.pumice(&["status", &path]), &[&says, "opening or closing"]);
    fails(&drive.pumice(&["set-codec", &path, "lz4"]), &[&says]);
    fails_with(3, &drive.pumice(&["check", &path]), &[&says]);
    server.resume();
    // On a busy machine it may take longer than a command waits.
    wait_until("it is served", || {
        let run = drive.pumice(&["status", &path]);
        let is_served = run.stdout.starts_with(&format!("{path}  online"));
        assert!(is_served || run.stderr.contains(&says), "{run:?}");
        is_served
    });
    Ok(())
}
