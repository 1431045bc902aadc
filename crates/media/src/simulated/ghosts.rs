//! Fault 7, and what reads return after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::SimGhosts;
use super::state::State;

impl State {
    /// Fails a sync: all unsynced writes become as after a power cut and are forgotten, so that the next sync
    /// succeeds. Reads return the content of the medium or, on some backings, what was lost.
    pub(super) fn fail_sync(&mut self) {
        let touched: BTreeSet<u64> =
            self.unsynced.iter().flat_map(|u| u.pages.iter().map(|&(at, _)| at)).collect();
        self.decide_unsynced();
        // A cache may drop a page that it considers clean.
        let drops = self.shows == SimGhosts::Shown && self.rng.chance(1, 4);
        for at in touched {
            if self.shows == SimGhosts::Hidden || (drops && self.rng.chance(1, 2)) {
                self.show_medium(at);
            }
            let (shown, there) = (self.live.get(&at), self.durable.get(&at).map(|durable| &durable.page));
            if !matches!((shown, there), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
                && shown.is_some() | there.is_some()
            {
                self.ghosts.insert(at);
            }
        }
    }

    /// With some probability, one of the pages that show what is lost shows the medium from now on.
    pub(super) fn fade(&mut self) {
        if self.ghosts.is_empty() || !self.rng.ppm(self.faults.fade_ppm) {
            return;
        }
        let count = self.ghosts.len();
        let at = self.ghosts.iter().nth(self.rng.index(count)).copied();
        if let Some(at) = at.filter(|at| self.ghosts.remove(at)) {
            self.show_medium(at);
            self.counts.faded_pages += 1;
        }
    }

    fn show_medium(&mut self, at: u64) {
        match self.durable.get(&at) {
            Some(durable) => self.live.insert(at, durable.page.clone()),
            None => self.live.remove(&at),
        };
    }
}
