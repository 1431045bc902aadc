//! What is known of an attached drive, to notice when something else is served in its place.

use serde::{Deserialize, Serialize};
use status::StatusReport;

/// A drive at some time. All later states of it follow this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Id of the drive. Copies of it have the same.
    #[serde(rename = "drive_uuid")]
    pub uuid: String,
    /// Grows with each wipe; `None` if its server does not tell.
    #[serde(default)]
    pub incarnation: Option<u64>,
    /// Number of the newest pack of its log that is durable. It only grows.
    #[serde(default)]
    pub durable_sequence: u64,
}

impl Identity {
    /// The drive that a server reports.
    pub(crate) fn of(report: &StatusReport) -> Identity {
        Identity {
            uuid: report.uuid.clone(),
            incarnation: report.incarnation,
            durable_sequence: report.cleaning.durable_sequence,
        }
    }

    /// Checks that `later` is a later state of the same drive.
    ///
    /// # Errors
    ///
    /// What it is instead.
    pub(crate) fn check(&self, later: &Identity) -> Result<(), String> {
        if self.uuid != later.uuid {
            return Err("another drive is being served from this path".to_string());
        }
        if let (Some(known), Some(found)) = (self.incarnation, later.incarnation)
            && known != found
        {
            return Err("the drive was wiped since it was attached".to_string());
        }
        if self.durable_sequence > later.durable_sequence {
            return Err(format!(
                "an older state of the drive is being served, such as a copy: its log ends at pack {}, and pack {} was \
                 durable",
                later.durable_sequence, self.durable_sequence
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_later_states_of_the_same_drive_follow() {
        let identity = |uuid: &str, incarnation, durable_sequence| Identity {
            uuid: uuid.to_string(),
            incarnation,
            durable_sequence,
        };
        let known = identity("a", Some(1), 7);
        for (later, why) in [
            (identity("a", Some(1), 7), None),
            (identity("a", Some(1), 8), None),
            (identity("a", None, 8), None),
            (identity("b", Some(1), 8), Some("another drive")),
            (identity("a", Some(2), 8), Some("wiped")),
            (identity("a", Some(1), 6), Some("older state")),
        ] {
            match (known.check(&later), why) {
                (Ok(()), None) => {}
                (Err(said), Some(why)) => assert!(said.contains(why), "{said}"),
                (said, why) => panic!("{later:?}: {said:?}, {why:?}"),
            }
        }
        assert_eq!(identity("a", None, 0).check(&known), Ok(()), "a record of an older program");
    }
}
