//! Counters of the events in a run, which make blind spots visible.

use std::collections::BTreeMap;
use std::fmt;

/// Named counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, Tally>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    times: u64,
    seeds: u64,
}

impl Counts {
    /// Adds to a counter.
    pub fn add(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            let tally = self.0.entry(name).or_default();
            tally.times += times;
            tally.seeds = 1;
        }
    }

    /// Value of a counter.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |tally| tally.times)
    }

    /// Sum of all counters whose names begin with `prefix`.
    pub fn sum(&self, prefix: &str) -> u64 {
        self.0.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, tally)| tally.times).sum()
    }

    /// Adds the counters of a part of the same seed.
    pub fn absorb(&mut self, other: &Counts) {
        other.0.iter().for_each(|(name, theirs)| self.add(name, theirs.times));
    }

    /// Adds the counters of another seed.
    pub fn merge(&mut self, other: &Counts) {
        for (name, theirs) in &other.0 {
            let ours = self.0.entry(name).or_default();
            ours.times += theirs.times;
            ours.seeds += theirs.seeds;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<40} {:>12} {:>10}", "what", "times", "in seeds")?;
        for (name, tally) in &self.0 {
            writeln!(f, "{name:<40} {:>12} {:>10}", tally.times, tally.seeds)?;
        }
        Ok(())
    }
}
