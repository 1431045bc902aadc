//! What seeds run on. The simulator is generic over it, and is made for each here, once: programs and tests
//! that did so would each compile all of the engine again.

use crate::report::Report;
use crate::rivals;
use crate::seed;
use crate::served::Served;
use crate::toy::Toy;
use crate::{Bug, Style, Subject};

/// Changes the seed for the story of two machines.
const RIVALS: u64 = 0x0123_7713_0123_7713;

/// What seeds run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tested {
    /// A drive, as a server has it.
    #[default]
    Drive,
    /// The story of two machines alone.
    Rivals,
    /// The toy, which shows that the simulator finds mistakes.
    Toy,
}

impl Tested {
    /// Runs a seed. `verbose` prints everything that happens.
    pub fn run(self, seed: u64, bug: Option<Bug>, verbose: bool) -> Report {
        match self {
            Tested::Drive => {
                let report = seed::run::<Served>(seed, bug, verbose);
                if report.failure.is_some() {
                    return report;
                }
                // Its random numbers are its own: the seeds of all else mean what they meant.
                let mut other = rivals::run(seed ^ RIVALS, bug, verbose);
                other.counts.absorb(&report.counts);
                Report { steps: report.steps + other.steps, ..other }
            }
            Tested::Rivals => rivals::run(seed ^ RIVALS, bug, verbose),
            Tested::Toy => seed::run::<Toy>(seed, bug, verbose),
        }
    }

    /// Returns the style of the clients of a seed.
    pub fn style(self, seed: u64) -> Style {
        match self {
            Tested::Drive | Tested::Rivals => seed::style::<Served>(seed),
            Tested::Toy => seed::style::<Toy>(seed),
        }
    }

    /// Returns the mistakes that can be planted in it.
    pub fn bugs(self) -> Vec<Bug> {
        match self {
            Tested::Drive | Tested::Rivals => Served::bugs(),
            Tested::Toy => Toy::bugs(),
        }
    }
}
