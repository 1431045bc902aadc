//! Fault 7, and its effects with a page cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::SimCache;
use super::state::State;

impl State {
    /// Fails a sync: all unsynced writes become as after a power cut and are forgotten, so that the next sync
    /// succeeds. Reads return the actual content or, with a cache, what was lost.
    pub(super) fn fail_sync(&mut self) {
        let touched: BTreeSet<u64> =
            self.unsynced.iter().flat_map(|u| u.pages.iter().map(|&(at, _)| at)).collect();
        self.decide_unsynced();
        // A cache may drop a page that it considers clean.
        let drops = self.cache == SimCache::Cached && self.rng.chance(1, 4);
        for at in touched {
            if self.cache == SimCache::Direct || (drops && self.rng.chance(1, 2)) {
                match self.durable.get(&at) {
                    Some(durable) => self.live.insert(at, durable.page.clone()),
                    None => self.live.remove(&at),
                };
            }
            let (shown, there) = (self.live.get(&at), self.durable.get(&at).map(|durable| &durable.page));
            if !matches!((shown, there), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
                && shown.is_some() | there.is_some()
            {
                self.ghosts.insert(at);
            }
        }
    }
}
