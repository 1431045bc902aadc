//! `pumice check --deep`, on a drive that is not served and on one that is.

use super::Story;

impl Story {
    /// Runs a check of a drive that is not served. It must find no fault.
    pub(super) fn check(&mut self, when: &str) -> Result<(), String> {
        let arguments = ["check".to_string(), self.file().display().to_string(), "--deep".to_string()];
        match self.place.run(&arguments) {
            Ok(_) => self.counts.checks += 1,
            Err(said) if !self.setting.strict && is_half_a_checkpoint(&said) => {
                self.note("check takes the half of a checkpoint that a cut left for a fault");
                self.counts.known_faults += 1;
            }
            Err(said) => return Err(format!("{when}: {said}")),
        }
        Ok(())
    }

    /// The same for a drive that is being served. This verifies records only.
    pub(super) fn scrub(&mut self) -> Result<(), String> {
        let file = self.file().display().to_string();
        let arguments = ["check".to_string(), file, "--deep".to_string(), "--rate=4G".to_string()];
        self.place.run(&arguments).map_err(|said| format!("while it is served: {said}"))?;
        self.counts.scrubs += 1;
        Ok(())
    }
}

/// Returns whether the output reports only a known problem. If the power is cut while the last checkpoint of a clean
/// close is written, or the first one after it, one copy may be present and the other not. No data is lost,
/// and the drive counts as cleanly closed. `check` therefore reports the missing or torn copy as a fault of
/// the backing.
fn is_half_a_checkpoint(said: &str) -> bool {
    let mut faults = said.lines().filter(|line| line.starts_with("fault: ")).peekable();
    faults.peek().is_some()
        && faults.all(|line| line.contains(", copy ") && line.contains(" of checkpoint "))
        && said.contains("log: the drive was closed properly")
}

#[cfg(test)]
mod tests {
    use super::is_half_a_checkpoint;

    const HALF: &str = "checkpoint slot 0: number 88, number 86\nlog: the drive was closed properly\n\
        fault: byte 0x24000 of the backing, copy 1 of checkpoint 88 is an older one, number 86\n\
        pumice: drive: 1 fault; nothing is lost\n";

    #[test]
    fn half_a_checkpoint_is_known_and_nothing_else() {
        assert!(is_half_a_checkpoint(HALF));
        assert!(!is_half_a_checkpoint(&format!(
            "{HALF}fault: logical bytes 0 to 4095: record: checksum mismatch\n"
        )));
        assert!(!is_half_a_checkpoint(&HALF.replace("the drive was closed", "not closed")));
        assert!(!is_half_a_checkpoint("pumice check did not end in 60 seconds:\n"));
    }
}
