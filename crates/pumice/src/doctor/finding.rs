//! Result of a check.

use serde_json::{Value, json};

use crate::colour::{Mood, paint_word};

/// Verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ok,
    /// Works, but not optimally.
    Warn,
    /// Does not work, or will fail.
    Fail,
    /// The machine does not provide the information.
    Unknown,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
        }
    }

    /// Paints the name of the verdict, with which the line begins.
    pub(super) fn painted(self, line: &str) -> String {
        let mood = match self {
            Verdict::Ok => Mood::Good,
            Verdict::Warn => Mood::Warning,
            Verdict::Fail => Mood::Bad,
            Verdict::Unknown => return line.to_string(),
        };
        paint_word(mood, line, self.name())
    }
}

/// Result of one check, printed as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Name of the check. It is a stable interface.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// Recommended action.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub(super) fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Fail, found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn unknown(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { check, verdict: Verdict::Unknown, found: found.into(), advice: Some(advice.into()) }
    }

    /// Returns the cells of its line.
    pub(super) fn cells(&self) -> [String; 3] {
        let found = match &self.advice {
            Some(advice) => format!("{}; {advice}", self.found),
            None => self.found.clone(),
        };
        [self.verdict.name().to_string(), self.check.to_string(), found]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "check": self.check,
            "verdict": self.verdict.name(),
            "found": self.found,
            "advice": self.advice,
        })
    }
}
