//! `pumice check --deep`, on a drive that is not served and on one that is.

use serde::Deserialize;

use super::Story;
use crate::error::{Error, Result};

impl Story {
    /// Runs a check of a drive that is not served. It must find no fault.
    pub(super) fn check(&mut self, when: &str) -> Result<()> {
        self.settle_losses();
        let file = self.file().display().to_string();
        let arguments = ["check".to_string(), file, "--deep".to_string(), "--json".to_string()];
        match self.program.run(&arguments) {
            Ok(_) => self.counts.checks += 1,
            Err(failed) if !self.setting.strict && is_half_a_checkpoint(&failed.output) => {
                self.note("check takes the half of a checkpoint that a cut left for a fault");
                self.counts.known_faults += 1;
            }
            Err(failed) => return Err(Error::from(failed).at(when)),
        }
        Ok(())
    }

    /// Runs a check of a drive that is being served. It verifies records only.
    pub(super) fn scrub(&mut self) -> Result<()> {
        let file = self.file().display().to_string();
        let arguments = ["check".to_string(), file, "--deep".to_string(), "--rate=4G".to_string()];
        self.program.run(&arguments).map_err(|failed| Error::from(failed).at("while it is served"))?;
        self.counts.scrubs += 1;
        Ok(())
    }
}

/// Output of `pumice check --json` for a drive that could be opened, as far as it is needed here.
#[derive(Deserialize)]
struct Checked {
    closed_properly: bool,
    checkpoint_copies: Vec<CheckpointCopy>,
    faults_count: usize,
    /// The first faults, at most.
    faults: Vec<Fault>,
}

#[derive(Deserialize)]
struct CheckpointCopy {
    position_bytes: u64,
}

#[derive(Deserialize)]
struct Fault {
    only_a_spare_copy: bool,
    position_bytes: Option<u64>,
}

/// Returns whether the output reports only a known problem. If the power is cut while the last checkpoint of
/// a clean close is written, or the first one after it, one copy may be present and the other not. No data is
/// lost, and the drive counts as cleanly closed. `check` therefore reports the missing or torn copy as a
/// fault of the backing.
fn is_half_a_checkpoint(json: &str) -> bool {
    let Ok(checked) = serde_json::from_str::<Checked>(json) else { return false };
    let of_checkpoint = |fault: &Fault| {
        let mut copies = checked.checkpoint_copies.iter();
        fault.only_a_spare_copy && copies.any(|copy| fault.position_bytes == Some(copy.position_bytes))
    };
    checked.closed_properly
        && !checked.faults.is_empty()
        && checked.faults.len() == checked.faults_count
        && checked.faults.iter().all(of_checkpoint)
}

#[cfg(test)]
mod tests {
    use super::is_half_a_checkpoint;

    const HALF: &str = r#"{"path": "drive", "opened": true, "closed_properly": true, "faults_count": 1,
        "checkpoint_copies": [{"slot": 0, "copy": 0, "position_bytes": 139264, "state": "whole", "number": 88},
            {"slot": 0, "copy": 1, "position_bytes": 147456, "state": "whole", "number": 86}],
        "faults": [{"message": "copy 1 of checkpoint 88 is an older one, number 86", "position_bytes": 147456,
            "segment": null, "only_a_spare_copy": true}]}"#;

    #[test]
    fn half_a_checkpoint_is_known_and_nothing_else() {
        assert!(is_half_a_checkpoint(HALF));
        let known = |from: &str, to: &str| {
            assert!(HALF.contains(from));
            is_half_a_checkpoint(&HALF.replace(from, to))
        };
        assert!(!known(r#""closed_properly": true"#, r#""closed_properly": false"#));
        assert!(!known(r#""only_a_spare_copy": true"#, r#""only_a_spare_copy": false"#));
        // A copy of the superblock.
        assert!(!known(r#"86", "position_bytes": 147456"#, r#"86", "position_bytes": 4096"#));
        // More faults than are listed.
        assert!(!known(r#""faults_count": 1"#, r#""faults_count": 2"#));
        assert!(!is_half_a_checkpoint(
            r#"{"opened": false, "faults_count": 1, "faults": [{"message": "x"}]}"#
        ));
        assert!(!is_half_a_checkpoint(""));
    }
}
