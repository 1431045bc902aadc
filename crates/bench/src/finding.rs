//! What a run says about a statement of a document.

use serde::{Deserialize, Serialize};

use crate::documents::{Document, Statement, statement};
use crate::run::FailedScene;

/// Whether a statement is true of Pumice on the machine of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is not.
    DoesNot,
    /// It is.
    Holds,
    /// This machine, or this program, has no way to tell.
    CannotBeTested,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::DoesNot => "does not",
            Verdict::Holds => "holds",
            Verdict::CannotBeTested => "cannot be tested here",
        }
    }
}

/// What a run says about a statement of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the statement.
    pub statement: String,
    /// The document.
    pub document: Document,
    /// The figure, table or section.
    pub place: String,
    /// What it is about.
    pub subject: String,
    /// What the document says.
    pub says: String,
    /// What was measured; empty if nothing was.
    pub ours: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Reason, where it is not plain.
    pub why: String,
}

const NOT_MEASURED: &str = "not measured in this run: see what was left out";

/// What a number must be for a statement to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Needs {
    AtLeast(f64),
    AtMost(f64),
}

/// Share by which a number may miss: what rounds differ by on a quiet machine.
const TOLERANCE: f64 = 0.05;

impl Needs {
    fn admits(self, value: f64) -> bool {
        match self {
            Needs::AtLeast(least) => value >= least * (1.0 - TOLERANCE),
            Needs::AtMost(most) => value <= most * (1.0 + TOLERANCE),
        }
    }
}

impl Finding {
    fn of(statement: &Statement, ours: String, verdict: Verdict, why: &str) -> Finding {
        Finding {
            statement: statement.name.to_string(),
            document: statement.document,
            place: statement.place.to_string(),
            subject: statement.subject.to_string(),
            says: statement.says.to_string(),
            ours,
            verdict,
            why: why.to_string(),
        }
    }

    /// Compares a number with what a statement needs. `why` is the reason if it does not hold. Without a number it was
    /// not measured.
    pub(crate) fn judge(
        name: &str,
        value: Option<f64>,
        needs: Needs,
        ours: impl Fn(f64) -> String,
        why: &str,
    ) -> Finding {
        let statement = statement(name);
        match value {
            None => Finding::untested(statement, NOT_MEASURED),
            Some(value) if needs.admits(value) => Finding::of(statement, ours(value), Verdict::Holds, ""),
            Some(value) => Finding::of(statement, ours(value), Verdict::DoesNot, why),
        }
    }

    /// Blames a failure for what was not measured. If nothing else was left out (`is_certain`) the statement is not true
    /// of a drive that fails.
    pub(crate) fn blame(&mut self, failed: &FailedScene, is_certain: bool) {
        if self.why != NOT_MEASURED {
            return;
        }
        self.why = format!("{} failed: {}", failed.scene, failed.error);
        if is_certain {
            self.verdict = Verdict::DoesNot;
            self.ours = "failed".to_string();
        }
    }

    /// A statement that was not tested.
    pub(crate) fn untested(statement: &Statement, why: &str) -> Finding {
        Finding::of(statement, String::new(), Verdict::CannotBeTested, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_judged_with_a_tolerance() {
        let judge =
            |value, needs| Finding::judge("lm-write", value, needs, |value| format!("{value:.1}x"), "slow");
        let holds = judge(Some(3.85), Needs::AtLeast(4.0));
        assert_eq!((holds.verdict, holds.ours.as_str(), holds.why.as_str()), (Verdict::Holds, "3.9x", ""));
        let not = judge(Some(3.7), Needs::AtLeast(4.0));
        assert_eq!((not.verdict, not.why.as_str()), (Verdict::DoesNot, "slow"));
        assert_eq!(judge(Some(4.3), Needs::AtMost(4.0)).verdict, Verdict::DoesNot);
        assert_eq!(judge(None, Needs::AtMost(4.0)).verdict, Verdict::CannotBeTested);
    }

    #[test]
    fn failures_are_no_want_of_means() {
        let failed =
            FailedScene { scene: "a".to_string(), error: "broken".to_string(), ..FailedScene::default() };
        let blamed = |value, is_certain| {
            let mut finding = Finding::judge("lm-write", value, Needs::AtLeast(1.0), |_| String::new(), "");
            finding.blame(&failed, is_certain);
            (finding.verdict, finding.why)
        };
        let why = "a failed: broken".to_string();
        assert_eq!(blamed(None, true), (Verdict::DoesNot, why.clone()));
        assert_eq!(blamed(None, false), (Verdict::CannotBeTested, why));
        assert_eq!(blamed(Some(2.0), true), (Verdict::Holds, String::new()));
    }
}
