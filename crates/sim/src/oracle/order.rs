//! Check of the order of writes. A drive is one log with one order, so the orders observed at different
//! sectors and times must be consistent.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Oracle, Outcome, Seen, Violation};

impl Oracle {
    /// Checks that the `required` writes, as far as they are atomic, can be put in one order that satisfies
    /// three conditions: each sector's last write is the one it holds, no reader was shown the reverse, and a
    /// write acknowledged before another began comes first.
    pub(super) fn must_be_orderable(&self, required: &FxHashSet<u32>) -> Result<(), Violation> {
        let is_node = |number: &u32| {
            let write = &self.writes[*number as usize];
            required.contains(number) && write.is_atomic() && write.outcome != Outcome::Failed
        };
        let mut edges: FxHashSet<(u32, u32)> =
            self.before.iter().copied().filter(|(a, b)| is_node(a) && is_node(b)).collect();
        for sector in self.sectors.values() {
            let Seen::Value(value) = sector.seen else { continue };
            let Some(winner) = self.only_candidate(sector, value) else { continue };
            if !is_node(&winner) {
                continue;
            }
            let start = self.writes[winner as usize].start;
            for &loser in sector.writes.iter().filter(|&n| *n != winner && is_node(n)) {
                if self.writes[loser as usize].end >= start {
                    edges.insert((loser, winner));
                }
            }
        }
        match self.contradiction(&edges) {
            None => Ok(()),
            Some(cycle) => {
                let each: Vec<String> = cycle.iter().map(|&number| self.describe(number)).collect();
                Err(Violation(format!(
                    "after the restart, each of these writes won over another one of them, so \
                     no order of whole writes explains what is there:\n    {}",
                    each.join("\n    ")
                )))
            }
        }
    }

    /// Repeatedly removes writes that no remaining write must precede. Returns `None` if all can be removed,
    /// otherwise the rest.
    fn contradiction(&self, edges: &FxHashSet<(u32, u32)>) -> Option<Vec<u32>> {
        let mut waits_for: FxHashMap<u32, usize> = FxHashMap::default();
        for &(first, then) in edges {
            waits_for.entry(first).or_default();
            *waits_for.entry(then).or_default() += 1;
        }
        let mut left: Vec<u32> = waits_for.keys().copied().collect();
        left.sort_unstable();
        while !left.is_empty() {
            let first_end = left.iter().map(|&number| self.writes[number as usize].end).min()?;
            let is_free = |&n: &u32| waits_for[&n] == 0 && self.writes[n as usize].start <= first_end;
            let (free, rest): (Vec<u32>, Vec<u32>) = left.iter().copied().partition(is_free);
            if free.is_empty() {
                return Some(rest);
            }
            for &(_, then) in edges.iter().filter(|(first, _)| free.contains(first)) {
                *waits_for.entry(then).or_default() -= 1;
            }
            left = rest;
        }
        None
    }
}
