//! What a check found.

use std::fmt;

use serde_json::{Value, json};

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ok,
    /// Works, but not as well as it could.
    Warn,
    /// Does not work, or will not.
    Fail,
    /// The machine does not tell.
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
}

/// One check, one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Names the check; stable.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// What to do about it.
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

    pub(super) fn json(&self) -> Value {
        json!({
            "check": self.check,
            "verdict": self.verdict.name(),
            "found": self.found,
            "advice": self.advice,
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<17} {}", self.verdict.name(), self.check, self.found)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}
