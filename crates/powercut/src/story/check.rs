//! `pumice check --deep`, of a drive at rest and of one that is served.

use super::Story;

impl Story {
    /// Nothing is broken on the disk, as far as a check can see. Nobody serves the drive.
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

    /// The same of the drive that is being served: records only.
    pub(super) fn scrub(&mut self) -> Result<(), String> {
        let file = self.file().display().to_string();
        let arguments = ["check".to_string(), file, "--deep".to_string(), "--rate=4G".to_string()];
        self.place.run(&arguments).map_err(|said| format!("while it is served: {said}"))?;
        self.counts.scrubs += 1;
        Ok(())
    }
}

/// Known: where the power is cut while the last checkpoint of a proper close is written, or the first after it, one copy of it
/// may be there and the other not. No data is lost, and the drive counts as closed properly; so `check` takes the copy that is
/// missing or torn for a fault of the backing.
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
