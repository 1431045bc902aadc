//! Effects of faults on the content of a simulated backing.

use std::sync::Arc;

use super::fate::Fate;
use super::state::{Content, Durable, Page, State};
use super::{TEAR_BYTES, VOUCH_SYNCS};
use crate::PAGE_BYTES;

/// Most pages that are tried until one is found that may rot.
const ROT_ATTEMPTS: usize = 8;
/// The same if only data may.
const ROT_ATTEMPTS_IN_DATA: usize = 64;
/// First bytes of a page that are preferred for flipped bits in the newest entries of the log: the head of an
/// entry that begins there.
const HEAD_BYTES: usize = 128;
/// Entries of the log that count as its newest.
const NEWEST_ENTRIES: u64 = 64;
/// Most pages that accept no writes.
const BAD_PAGES_MAX: usize = 6;

impl State {
    /// Decides the fate of each write that no sync covers, in the order of completion.
    pub(super) fn decide_unsynced(&mut self) {
        // Three special cases are as likely as an independent choice for each write: everything is kept,
        // everything is lost, or the oldest writes are lost and the newer ones kept, which is the case that
        // drives handle worst.
        let mood = self.rng.below(5);
        let count = self.unsynced.len();
        let kept_from = self.rng.index(count + 1);
        for (at, write) in std::mem::take(&mut self.unsynced).into_iter().enumerate() {
            let fate = match mood {
                0 => Fate::Whole,
                1 => Fate::Lost,
                2 if at < kept_from => Fate::Lost,
                2 => Fate::Whole,
                _ => self.draw_fate(),
            };
            match fate {
                Fate::Whole => {}
                Fate::Lost => self.counts.lost_writes += 1,
                Fate::Torn(_) => self.counts.torn_writes += 1,
            }
            if matches!(fate, Fate::Whole) {
                self.called_durable = self.called_durable.max(write.log_numbers.durable);
            }
            for (n, (at, content)) in write.pages.into_iter().enumerate() {
                let number = write.log_numbers.number_of(n);
                let old = self.durable.get(&at).map(|durable| durable.page.clone());
                match self.blend(old, content, fate) {
                    // Durable without a sync: counts as if the next sync had made it durable.
                    Some(page) => {
                        self.durable.insert(at, Durable { page, synced_at: self.syncs + 1, number })
                    }
                    None => self.durable.remove(&at),
                };
            }
        }
    }

    pub(super) fn draw_fate(&mut self) -> Fate {
        match self.rng.below(6) {
            0 | 1 => Fate::Whole,
            2 | 3 => Fate::Lost,
            4 => Fate::Torn(1 + self.rng.below(7)),
            _ => Fate::Torn(7),
        }
    }

    /// Returns the content of a page after a write over `old` with this fate. Holes appear and vanish only as
    /// whole pages.
    pub(super) fn blend(&mut self, old: Content, new: Content, fate: Fate) -> Content {
        let weight = match fate {
            Fate::Whole => return new,
            Fate::Lost => return old,
            Fate::Torn(weight) => weight,
        };
        let Some(new) = new else {
            return if self.rng.chance(weight, 8) { None } else { old };
        };
        let mut page = old.map_or([0; PAGE_BYTES], |page| *page);
        let unit = self.tear_bytes.max(TEAR_BYTES);
        for (mine, theirs) in page.chunks_exact_mut(unit).zip(new.chunks_exact(unit)) {
            if self.rng.chance(weight, 8) {
                mine.copy_from_slice(theirs);
            }
        }
        Some(Arc::new(page))
    }

    /// Fault 11: with some probability, one of these pages accepts no writes from now on.
    pub(super) fn go_bad(&mut self, pages: &[(u64, Content)]) {
        let spared =
            pages.first().is_none_or(|(at, _)| at * (PAGE_BYTES as u64) < self.faults.spare_below_bytes);
        if !spared && self.bad.len() < BAD_PAGES_MAX && self.rng.ppm(self.faults.bad_page_ppm) {
            let (at, _) = pages[self.rng.index(pages.len())];
            self.bad.insert(at);
        }
    }

    /// Strikes with faults 9, 10 and 12, each with its probability.
    pub(super) fn strike(&mut self) {
        if self.rng.ppm(self.faults.rot_ppm) {
            self.rot();
        }
        if self.rng.ppm(self.faults.misdirect_ppm) {
            self.misdirect();
        }
        if self.rng.ppm(self.faults.lost_range_ppm) {
            self.lose_range();
        }
    }

    /// Returns whether faults 9, 10 and 12 may change this page: it is durable, unchanged since, and vouched
    /// for.
    fn is_fair_game(&self, at: u64) -> bool {
        match (self.live.get(&at), self.durable.get(&at)) {
            (None, None) => true,
            (Some(live), Some(durable)) => {
                Arc::ptr_eq(live, &durable.page)
                    && durable.synced_at + VOUCH_SYNCS <= self.vouched
                    && durable.number.is_none_or(|number| number <= self.called_durable)
            }
            _ => false,
        }
    }

    fn rot(&mut self) {
        let Some((&last, _)) = self.durable.last_key_value() else { return };
        let in_data_only = self.faults.rot_in_data_only;
        let newest = if in_data_only && self.rng.chance(1, 2) { self.newest_of_log() } else { Vec::new() };
        for _ in 0..if in_data_only { ROT_ATTEMPTS_IN_DATA } else { ROT_ATTEMPTS } {
            let from = match newest.is_empty() {
                true => self.rng.below(last + 1),
                false => newest[self.rng.index(newest.len())],
            };
            let Some((&at, durable)) = self.durable.range(from..).next() else { return };
            let mut page = *durable.page;
            if !self.is_fair_game(at) {
                continue;
            }
            let sector = self.rng.index(PAGE_BYTES / TEAR_BYTES) * TEAR_BYTES;
            match self.rng.below(3) {
                0 => {
                    let is_head = !newest.is_empty() && self.rng.chance(1, 2);
                    let within = if is_head { HEAD_BYTES } else { PAGE_BYTES };
                    page[self.rng.index(within)] ^= 1 << self.rng.below(8);
                }
                1 => page[sector..sector + TEAR_BYTES].fill(0),
                _ => page[sector..sector + TEAR_BYTES].fill_with(|| self.rng.next_u64() as u8),
            }
            let is_data = self.is_data(at, &page);
            if in_data_only && !is_data {
                continue;
            }
            self.replace(at, Some(Arc::new(page)));
            self.counts.rotten_sectors += 1;
            self.counts.rotten_data += u64::from(is_data);
            return;
        }
    }

    /// Returns the pages of the newest entries of the log that may rot. An opening reads them.
    fn newest_of_log(&self) -> Vec<u64> {
        let is_new = |durable: &Durable| {
            durable.number.is_some_and(|number| number + NEWEST_ENTRIES > self.called_durable)
        };
        let new = self.durable.iter().filter(|(_, durable)| is_new(durable)).map(|(&at, _)| at);
        new.filter(|&at| self.is_fair_game(at)).collect()
    }

    /// Returns whether a durable page differs from this content in data of users at most, or in what costs no
    /// more than such data.
    fn is_data(&self, at: u64, content: &[u8; PAGE_BYTES]) -> bool {
        let page = |at| self.durable.get(&at).map(|durable| durable.page.clone());
        let Some(old) = page(at) else { return false };
        let differs = |byte: &usize| old[*byte] != content[*byte];
        let Some(first) = (0..PAGE_BYTES).find(differs) else { return true };
        let last = (0..PAGE_BYTES).rfind(differs).unwrap_or(first);
        let bits = (old[first] ^ content[first]).count_ones();
        self.is_data.is_some_and(|is_data| is_data(&page, at, first..last + 1, first == last && bits == 1))
    }

    fn misdirect(&mut self) {
        let count = self.past.len();
        let Some(write) = self.past.get(self.rng.index(count)) else { return };
        let still_there = |(at, page, _): &(u64, Page, Content)| {
            self.live.get(at).is_some_and(|live| Arc::ptr_eq(live, page)) && self.is_fair_game(*at)
        };
        if !write.pages.iter().all(still_there) {
            return;
        }
        let pages = write.pages.clone();
        let first = pages[0].0;
        let once_below = self.faults.misdirect_once_below_bytes;
        let is_below = |at: u64| at * (PAGE_BYTES as u64) < once_below;
        if is_below(first) && std::mem::replace(&mut self.misdirected_below, true) {
            return;
        }
        let target = self.durable.last_key_value().map_or(0, |(&last, _)| self.rng.below(last + 1));
        for (at, _, old) in &pages {
            self.replace(*at, old.clone());
        }
        let fair = pages.iter().all(|(at, _, _)| self.is_fair_game(target + at - first));
        // The same limit applies to the place where it is written.
        let mut may_land = || !(is_below(target) && std::mem::replace(&mut self.misdirected_below, true));
        if self.rng.chance(1, 2) && fair && may_land() {
            for (at, page, _) in &pages {
                self.replace(target + at - first, Some(page.clone()));
            }
        }
        self.counts.misdirected_writes += 1;
    }

    fn lose_range(&mut self) {
        let (spared, bytes) = (self.faults.spare_below_bytes, self.faults.lost_range_bytes);
        let Some((&last, _)) = self.durable.last_key_value() else { return };
        let at = self.rng.below((last + 1) * PAGE_BYTES as u64);
        let Some(start) = at.checked_sub(spared).map(|at| at / bytes * bytes + spared) else { return };
        // It may end some pages into the next range.
        let more = if self.rng.chance(1, 2) { self.rng.skewed(6) } else { 0 };
        let pages = start / PAGE_BYTES as u64..(start + bytes) / PAGE_BYTES as u64 + more;
        let held: Vec<u64> = self.durable.range(pages.clone()).map(|(&at, _)| at).collect();
        if held.is_empty() || !pages.clone().all(|at| self.is_fair_game(at)) {
            return;
        }
        self.counts.lost_ranges += 1;
        let how = self.rng.below(3);
        if how == 2 {
            self.sticky.extend(pages);
            return;
        }
        let with_garbage = how == 1;
        for at in held {
            let mut garbage = || {
                let mut page = [0; PAGE_BYTES];
                page.fill_with(|| self.rng.next_u64() as u8);
                Arc::new(page)
            };
            let content = with_garbage.then(&mut garbage);
            self.replace(at, content);
        }
    }

    /// Changes a page in the durable and the visible content. Further faults may strike it.
    pub(super) fn replace(&mut self, at: u64, content: Content) {
        match content {
            Some(page) => {
                self.live.insert(at, page.clone());
                self.durable.insert(at, Durable { page, synced_at: 0, number: None });
            }
            None => {
                self.live.remove(&at);
                self.durable.remove(&at);
            }
        }
    }
}
