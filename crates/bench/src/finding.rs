//! What a run says about a statement of a document.

use serde::{Deserialize, Serialize};

use crate::documents::{Document, Statement, statement};
use crate::failed_scene::FailedScene;
use crate::value::{ROUNDS_MIN, Value};

/// Whether a statement is true of Pumice on the machine of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is not.
    DoesNot,
    /// The rounds lie on both sides.
    WithinNoise,
    /// Too few rounds, or a machine that was too busy, say nothing about it.
    NotJudged,
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
            Verdict::WithinNoise => "within noise",
            Verdict::NotJudged => "not judged",
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

    /// Judges a quantity that was measured on a machine of which others used the share `busy`.
    fn judge(self, value: &Value, busy: f64) -> Verdict {
        let (low, high) = value.range(busy);
        match (self.admits(low), self.admits(high)) {
            (true, true) => Verdict::Holds,
            (false, false) => Verdict::DoesNot,
            _ if value.has_few_rounds() || !high.is_finite() => Verdict::NotJudged,
            _ => Verdict::WithinNoise,
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

    /// Compares a quantity with what a statement needs. `why` is the reason if it does not hold. Without one
    /// it was not measured. `busy` is the share of the processors that others used.
    pub(crate) fn judge(
        name: &str,
        value: Option<Value>,
        busy: f64,
        needs: Needs,
        ours: impl Fn(f64) -> String,
        why: &str,
    ) -> Finding {
        let statement = statement(name);
        let Some(value) = value else { return Finding::untested(statement, NOT_MEASURED) };
        let verdict = needs.judge(&value, busy);
        let why = match verdict {
            Verdict::Holds | Verdict::CannotBeTested => String::new(),
            Verdict::DoesNot => why.to_string(),
            Verdict::WithinNoise => noise_text(&value, busy, needs),
            Verdict::NotJudged => not_judged_text(&value, busy),
        };
        Finding::of(statement, ours(value.median()), verdict, &why)
    }

    /// Blames a failure for what was not measured. If nothing else was left out (`is_certain`) the statement
    /// does not hold: nothing is true of a drive that fails, and nothing can be claimed against a rival that
    /// failed.
    pub(crate) fn blame(&mut self, failed: &FailedScene, is_certain: bool) {
        if self.why != NOT_MEASURED {
            return;
        }
        self.why = failed.text();
        if is_certain {
            self.verdict = Verdict::DoesNot;
            self.ours = "failed".to_string();
        }
    }

    /// Makes a statement that seems to hold, or is within noise, one that does not: something failed that it
    /// also needs.
    pub(crate) fn fails_by(self, failed: &FailedScene) -> Finding {
        let (verdict, why) = match self.verdict {
            Verdict::DoesNot => (self.verdict, format!("{}; {}", self.why, failed.text())),
            _ => (Verdict::DoesNot, failed.text()),
        };
        Finding { verdict, why, ..self }
    }

    /// Leaves a statement open that does not fail on what was measured: something was not measured.
    pub(crate) fn open_without(self, missing: &str) -> Finding {
        match self.verdict {
            Verdict::DoesNot => self,
            _ => Finding { verdict: Verdict::CannotBeTested, why: missing.to_string(), ..self },
        }
    }

    /// A statement that was not tested.
    pub(crate) fn untested(statement: &Statement, why: &str) -> Finding {
        Finding::of(statement, String::new(), Verdict::CannotBeTested, why)
    }
}

/// Says why a quantity leaves a statement open.
fn noise_text(value: &Value, busy: f64, needs: Needs) -> String {
    let (low, high) = value.range(busy);
    let median = if needs.admits(value.median()) { "holds" } else { "does not hold" };
    let (rounds, others) = (rounds(value), others(value, busy));
    format!("{median} by the median, but {rounds}{others}: may be {low:.2} to {high:.2}")
}

/// Says why a quantity says nothing about a statement.
fn not_judged_text(value: &Value, busy: f64) -> String {
    let (rounds, others) = (rounds(value), others(value, busy));
    let needs = if value.has_few_rounds() {
        format!("at least {ROUNDS_MIN} rounds are needed (--minutes)")
    } else {
        "a quieter machine is needed".to_string()
    };
    format!("{rounds}{others}: {needs}")
}

fn rounds(value: &Value) -> String {
    match value.figure.count {
        1 => "one round".to_string(),
        count => format!("{count} rounds"),
    }
}

/// Says how busy the machine was, if the quantity depends on it.
fn others(value: &Value, busy: f64) -> String {
    if busy > 0.0 && value.is_speed() {
        format!(", other programs used {:.0} % of the processors", busy * 100.0)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Figure;

    #[test]
    fn noise_leaves_a_statement_open() {
        let judge = |values: &[f64], busy| {
            let value = Figure::of(values.iter().copied()).map(Value::speed);
            Finding::judge("lm-write", value, busy, Needs::AtLeast(4.0), |_| String::new(), "slow")
        };
        assert_eq!(judge(&[4.1, 4.2, 4.3], 0.0).verdict, Verdict::Holds);
        let mixed = judge(&[3.0, 4.2, 4.3], 0.0);
        assert_eq!(mixed.verdict, Verdict::WithinNoise);
        assert_eq!(mixed.why, "holds by the median, but 3 rounds: may be 3.00 to 4.30");
        let busy = judge(&[3.0, 3.1, 3.2], 0.5);
        assert_eq!(busy.verdict, Verdict::WithinNoise);
        assert!(
            busy.why.contains("does not hold by the median") && busy.why.contains("50 %"),
            "{}",
            busy.why
        );
        assert_eq!(judge(&[1.0, 1.1, 1.2], 0.5).verdict, Verdict::DoesNot);
        let few = judge(&[3.5], 0.0);
        assert_eq!(few.verdict, Verdict::NotJudged);
        assert_eq!(few.why, "one round: at least 3 rounds are needed (--minutes)");
        assert_eq!(judge(&[0.1], 0.0).verdict, Verdict::DoesNot);
        // A quotient of two speeds, of which others may have taken away all.
        let speeds = || Figure::of([4.0, 4.1, 4.2]).map(Value::speed);
        let quotient = crate::value::over(speeds(), speeds());
        let busy = Finding::judge("lm-write", quotient, 0.6, Needs::AtLeast(4.0), |_| String::new(), "slow");
        assert_eq!(busy.verdict, Verdict::NotJudged);
        assert_eq!(
            busy.why,
            "3 rounds, other programs used 60 % of the processors: a quieter machine is needed"
        );
    }

    #[test]
    fn numbers_are_judged_with_a_tolerance() {
        let judge = |value: Option<f64>, needs| {
            Finding::judge(
                "lm-write",
                value.map(Value::exact),
                0.0,
                needs,
                |value| format!("{value:.1}x"),
                "slow",
            )
        };
        let holds = judge(Some(3.85), Needs::AtLeast(4.0));
        assert_eq!((holds.verdict, holds.ours.as_str(), holds.why.as_str()), (Verdict::Holds, "3.9x", ""));
        let not = judge(Some(3.7), Needs::AtLeast(4.0));
        assert_eq!((not.verdict, not.why.as_str()), (Verdict::DoesNot, "slow"));
        assert_eq!(judge(Some(4.3), Needs::AtMost(4.0)).verdict, Verdict::DoesNot);
        assert_eq!(judge(None, Needs::AtMost(4.0)).verdict, Verdict::CannotBeTested);
    }

    #[test]
    fn failures_are_no_want_of_means() {
        let name = |text: &str| text.to_string();
        let failed = FailedScene { scene: name("a"), target: name("raw"), error: name("broken") };
        let blamed = |value, is_certain| {
            let value: Option<f64> = value;
            let value = value.map(Value::exact);
            let mut finding =
                Finding::judge("lm-write", value, 0.0, Needs::AtLeast(1.0), |_| String::new(), "");
            finding.blame(&failed, is_certain);
            (finding.verdict, finding.why)
        };
        let why = "a on raw failed: broken".to_string();
        assert_eq!(blamed(None, true), (Verdict::DoesNot, why.clone()));
        assert_eq!(blamed(None, false), (Verdict::CannotBeTested, why));
        assert_eq!(blamed(Some(2.0), true), (Verdict::Holds, String::new()));
    }
}
