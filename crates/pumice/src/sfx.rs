//! ScaleFlux's names: `sfx-status` and `sfx-nvme` as administrators of its CSD 2000 know them, on Pumice's
//! drives. These commands translate names, numbers, units and output; the work is done by Pumice's own.
//! Source: Hyperscalers, *Gluster Scale Out Storage for Cloud using Computational Storage Drives*, 2022.
//! `docs/reference/sfx.md` describes what differs.

mod card;
mod erase;
mod hardware;
pub(crate) mod nvme;
mod nvme_list;
pub(crate) mod status;
mod units;

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names by which the program is called through a link, as names of commands.
const CALLED: [&str; 2] = ["sfx-status", "sfx-nvme"];

/// Returns the arguments of the program, with the name of the command behind its own name if it was called by
/// that.
pub(crate) fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().and_then(|name| Path::new(name).file_name());
    if let Some(command) = CALLED.into_iter().find(|name| called == Some(OsStr::new(name))) {
        arguments.splice(0..1, ["pumice".into(), command.into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_is_a_command() {
        let with = |words: &[&str]| {
            let arguments = with_command(words.iter().map(OsString::from).collect());
            arguments.join(OsStr::new(" ")).into_string().expect("text")
        };
        assert_eq!(with(&["/usr/local/bin/sfx-status", "0"]), "pumice sfx-status 0");
        assert_eq!(with(&["sfx-nvme", "list"]), "pumice sfx-nvme list");
        assert_eq!(with(&["/usr/bin/pumice", "status"]), "/usr/bin/pumice status");
        assert_eq!(with(&["/sfx-status/pumice", "list"]), "/sfx-status/pumice list");
        assert_eq!(with(&[]), "");
    }
}
