//! Choice of an offload, as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Offload, Options, Qat, Simulated, StartError, Workers};

/// Choice of an offload.
///
/// As text (`--offload`): `none`, `qat`, or `qat:PATH` with the path of the library; for measurements
/// `simulated:TIME`, a whole number of `us` or `ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The CPU does everything.
    #[default]
    None,
    /// Intel QAT through libqatzip: the one that the system finds, or the one at a path.
    Qat(Option<PathBuf>),
    /// No device: each job takes this time on the thread of the request.
    Simulated(Duration),
}

impl Choice {
    /// Starts the chosen one; `None` for [`Choice::None`].
    ///
    /// # Errors
    ///
    /// [`StartError`], if it is not available. Whether to continue without it is the caller's decision.
    pub fn start(&self, options: Options) -> Result<Option<Arc<dyn Offload>>, StartError> {
        match self {
            Choice::None => Ok(None),
            Choice::Simulated(cost) => Ok(Some(Arc::new(Simulated::new(*cost)))),
            Choice::Qat(path) => {
                let device = Qat::load(path.as_deref())?;
                Ok(Some(Arc::new(Workers::start(device, options)?)))
            }
        }
    }
}

/// Text that is not a [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown offload {0:?}: expected none, qat, qat:PATH (of libqatzip.so) or, to measure, simulated:TIME (0us to \
     100ms)"
)]
pub struct ParseChoiceError(String);

impl FromStr for Choice {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Choice, ParseChoiceError> {
        match text {
            "none" => Ok(Choice::None),
            "qat" => Ok(Choice::Qat(None)),
            _ => match text.split_once(':') {
                Some(("qat", path)) if !path.is_empty() => Some(Choice::Qat(Some(path.into()))),
                Some(("simulated", time)) => cost(time).map(Choice::Simulated),
                _ => None,
            }
            .ok_or_else(|| ParseChoiceError(text.to_owned())),
        }
    }
}

/// Longest simulated job. A request of 256 KiB has up to 64 of them.
const COST_MAX: Duration = Duration::from_millis(100);

/// Reads the time of a simulated job.
fn cost(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(2)?)?;
    // `parse` would accept a sign.
    let number: u64 = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())??;
    let cost = match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        _ => return None,
    };
    (cost <= COST_MAX).then_some(cost)
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::None => f.pad("none"),
            Choice::Qat(None) => f.pad("qat"),
            Choice::Simulated(cost) => write!(f, "simulated:{}us", cost.as_micros()),
            Choice::Qat(Some(path)) => write!(f, "qat:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["none", "qat", "qat:/usr/lib/libqatzip.so.3", "simulated:500us", "simulated:0us"] {
            assert_eq!(text.parse::<Choice>().expect(text).to_string(), text);
        }
        assert_eq!("simulated:2ms".parse(), Ok(Choice::Simulated(Duration::from_millis(2))));
        let times = [
            "simulated:",
            "simulated:ms",
            "simulated:2",
            "simulated:+2ms",
            "simulated:101ms",
            "simulated:2é",
        ];
        for text in ["", "QAT", "qat:", "dpu", "none:x"].into_iter().chain(times) {
            let error = text.parse::<Choice>().expect_err(text).to_string();
            assert!(error.contains("expected none") && error.lines().count() == 1, "{error}");
        }
        assert!(Choice::None.start(Options::default()).expect("nothing to start").is_none());
    }

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let choice: Choice = "qat:/nowhere/libqatzip.so".parse().expect("a path");
        let Err(error) = choice.start(Options::default()) else {
            panic!("there is nothing at /nowhere");
        };
        assert!(error.to_string().contains("/nowhere/libqatzip.so"), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}
