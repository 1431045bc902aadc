//! What repairs leave in memory: pages that were made again, until what lives there has moved, and pages that
//! could not be, until they are due to be tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use layout::ParityIndex;

use crate::state::accumulator::FillingId;
use crate::sync::Mutex;

/// Most pages that are kept: a mebibyte.
const MADE_MAX: usize = 256;
/// Most fillings of which the list of checksums is kept.
const INDEXES_MAX: usize = 64;
/// Most pages that are known to be lost. What is beyond is tried at every read.
const LOST_MAX: usize = 4096;
/// Most pages that are known to have been made again. What is beyond counts again if it is made again.
const KNOWN_MAX: usize = 1 << 13;
/// Ticks of ten milliseconds before a lost page is tried again for the first time; then twice as many.
const AGAIN_TICKS: u64 = 100;
/// An hour.
const AGAIN_TICKS_MAX: u64 = 360_000;

/// Pages of one filling that were made again.
#[derive(Default)]
struct Made {
    /// Its list of checksums on the medium.
    index: Option<Arc<ParityIndex>>,
    pages: BTreeMap<u32, Arc<[u8]>>,
}

/// What is new about a page that was made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It was made again before.
    Nothing,
    /// The page is, but one next to it was made again, too.
    Page,
    /// Nothing near it was made again before.
    Place,
}

/// A page that could not be made again.
struct Lost {
    again_at_tick: u64,
    wait_ticks: u64,
    /// Pages that it would be made from could not be read just then.
    lacks_reads: bool,
}

/// Segments in which a repair is in progress. Others that need one there wait, and are answered from memory.
#[derive(Default)]
pub(crate) struct Turns(Mutex<BTreeSet<u32>>);

impl Turns {
    /// Takes the turn of a segment, unless somebody has it.
    pub(crate) fn take(&self, segment: u32) -> bool {
        self.0.lock().insert(segment)
    }

    pub(crate) fn give_back(&self, segment: u32) {
        self.0.lock().remove(&segment);
    }
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct Repairs {
    made: BTreeMap<FillingId, Made>,
    made_count: usize,
    /// Pages that were made again since their filling was written.
    known: BTreeSet<(FillingId, u32)>,
    lost: BTreeMap<(FillingId, u32), Lost>,
    /// Fillings whose list of checksums could not be read just now.
    unlisted: BTreeSet<FillingId>,
    /// Lost pages with a record that was asked for.
    counted: BTreeSet<(FillingId, u32)>,
}

impl Repairs {
    /// The list of checksums of a filling, if it was needed lately.
    pub(crate) fn index(&self, id: FillingId) -> Option<Arc<ParityIndex>> {
        self.made.get(&id)?.index.clone()
    }

    /// A page of a filling, if it was made again lately.
    pub(crate) fn made(&self, id: FillingId, page: u32) -> Option<Arc<[u8]>> {
        self.made.get(&id)?.pages.get(&page).cloned()
    }

    /// Pages of a filling that were made again lately.
    pub(crate) fn all_made(&self, id: FillingId) -> BTreeMap<u32, Arc<[u8]>> {
        self.made.get(&id).map(|made| made.pages.clone()).unwrap_or_default()
    }

    /// Keeps the list of checksums of a filling in which something is wrong.
    pub(crate) fn keep_index(&mut self, id: FillingId, index: Option<Arc<ParityIndex>>) {
        if self.made.len() >= INDEXES_MAX && !self.made.contains_key(&id) {
            self.forget_another_than(id);
        }
        self.made.entry(id).or_default().index = index;
    }

    /// Notes that a page was made again. Returns what is new about it.
    pub(crate) fn note(&mut self, id: FillingId, page: u32) -> News {
        let is_known = |page: u32| self.known.contains(&(id, page));
        let news = match is_known(page) {
            true => News::Nothing,
            false if is_known(page + 1) || page > 0 && is_known(page - 1) => News::Page,
            false => News::Place,
        };
        if self.known.len() < KNOWN_MAX {
            self.known.insert((id, page));
        }
        news
    }

    /// Keeps a page that was made again. Beyond the limit it takes the place of all of another filling.
    pub(crate) fn keep(&mut self, id: FillingId, page: u32, bytes: &[u8]) {
        self.lost.remove(&(id, page));
        self.counted.remove(&(id, page));
        while self.made_count >= MADE_MAX {
            self.forget_another_than(id);
        }
        let made = self.made.entry(id).or_default();
        self.made_count += usize::from(made.pages.insert(page, bytes.into()).is_none());
    }

    fn forget_another_than(&mut self, id: FillingId) {
        let other = self.made.keys().copied().find(|other| *other != id).unwrap_or(id);
        self.forget_made(other);
    }

    /// Returns whether a page is known to be lost, and not due to be tried again.
    pub(crate) fn is_lost(&self, id: FillingId, page: u32, now: u64) -> bool {
        self.lost.get(&(id, page)).is_some_and(|lost| now < lost.again_at_tick)
    }

    /// Returns whether pages of a filling are known to be lost.
    pub(crate) fn has_lost(&self, id: FillingId) -> bool {
        self.lost.range((id, 0)..=(id, u32::MAX)).next().is_some()
    }

    /// A page could not be made again.
    pub(crate) fn failed(&mut self, id: FillingId, page: u32, now: u64, lacks_reads: bool) {
        let known = self.lost.get(&(id, page));
        let wait_ticks = known.map_or(AGAIN_TICKS, |lost| (2 * lost.wait_ticks).min(AGAIN_TICKS_MAX));
        if known.is_some() || self.lost.len() < LOST_MAX {
            let again_at_tick = now + wait_ticks;
            self.lost.insert((id, page), Lost { again_at_tick, wait_ticks, lacks_reads });
        }
    }

    /// Returns whether one of these pages could be made again if others could be read.
    pub(crate) fn lacks_reads(&self, id: FillingId, pages: Range<u32>) -> bool {
        let mut lost = self.lost.range((id, pages.start)..(id, pages.end));
        self.unlisted.contains(&id) || lost.any(|(_, lost)| lost.lacks_reads)
    }

    /// Notes whether the list of checksums of a filling is missing only because it could not be read.
    pub(crate) fn list_lacks_reads(&mut self, id: FillingId, lacks: bool) {
        match lacks && self.unlisted.len() < LOST_MAX {
            true => _ = self.unlisted.insert(id),
            false => _ = self.unlisted.remove(&id),
        }
    }

    /// All lost pages are due to be tried again.
    pub(crate) fn ask_again(&mut self) {
        self.lost.values_mut().for_each(|lost| lost.again_at_tick = 0);
    }

    /// A record on these pages cannot be read. Returns those that could not be made again and did not count
    /// before. `or_first`: if nobody knows of any, because the index is lost, too, it is the first one.
    pub(crate) fn newly_lost(&mut self, id: FillingId, pages: Range<u32>, or_first: bool) -> Vec<u32> {
        let mut lost: Vec<u32> = pages.clone().filter(|page| self.lost.contains_key(&(id, *page))).collect();
        if lost.is_empty() && or_first {
            lost.push(pages.start);
        }
        lost.retain(|page| self.counted.len() < LOST_MAX && self.counted.insert((id, *page)));
        lost
    }

    fn forget_made(&mut self, id: FillingId) {
        self.made_count -= self.made.remove(&id).map_or(0, |made| made.pages.len());
    }

    /// Forgets fillings that are not there any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(FillingId) -> bool) {
        let gone: Vec<FillingId> = self.made.keys().copied().filter(|id| !is_there(*id)).collect();
        gone.into_iter().for_each(|id| self.forget_made(id));
        self.known.retain(|(id, _)| is_there(*id));
        self.lost.retain(|(id, _), _| is_there(*id));
        self.counted.retain(|(id, _)| is_there(*id));
        self.unlisted.retain(|id| is_there(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FillingId = FillingId { segment: 3, generation: 7 };

    #[test]
    fn what_is_lost_is_tried_again_at_growing_intervals() {
        let mut repairs = Repairs::default();
        let mut now = 0;
        repairs.failed(ID, 5, now, false);
        assert_eq!(repairs.newly_lost(ID, 4..7, false), [5]);
        for wait in [100, 200, 400] {
            assert!(repairs.is_lost(ID, 5, now + wait - 1));
            now += wait;
            assert!(!repairs.is_lost(ID, 5, now), "due");
            repairs.failed(ID, 5, now, false);
            assert!(repairs.newly_lost(ID, 4..7, false).is_empty(), "known");
        }
        for _ in 0..20 {
            repairs.failed(ID, 5, now, false);
        }
        assert!(!repairs.is_lost(ID, 5, now + AGAIN_TICKS_MAX));
        assert!(repairs.is_lost(ID, 5, now));
        repairs.ask_again();
        assert!(!repairs.is_lost(ID, 5, now), "a check asks");
        repairs.keep(ID, 5, &[1]);
        assert!(!repairs.is_lost(ID, 5, now), "made again");
    }

    #[test]
    fn a_page_counts_once_and_a_run_is_one_place() {
        let mut repairs = Repairs::default();
        let seen = [5, 6, 7, 4, 9, 6, 8, 0].map(|page| repairs.note(ID, page));
        use News::{Nothing, Page, Place};
        assert_eq!(seen, [Place, Page, Page, Page, Place, Nothing, Page, Place]);
        repairs.retain(|_| false);
        assert_eq!(repairs.note(ID, 5), Place, "another filling");
    }

    #[test]
    fn so_many_pages_are_kept_and_no_more() {
        let mut repairs = Repairs::default();
        let other = FillingId { segment: 4, ..ID };
        (0..200).for_each(|page| repairs.keep(ID, page, &[page as u8]));
        (0..100).for_each(|page| repairs.keep(other, page, &[page as u8]));
        assert!(repairs.made(ID, 9).is_none(), "the other filling took its place");
        assert_eq!(repairs.made(other, 99).as_deref(), Some(&[99][..]));
        (0..300).for_each(|page| repairs.keep(other, page, &[page as u8]));
        assert!(repairs.made.values().map(|made| made.pages.len()).sum::<usize>() <= MADE_MAX);
        assert_eq!(repairs.made_count, repairs.made.values().map(|made| made.pages.len()).sum());
        repairs.retain(|id| id != other);
        assert!(repairs.made(other, 299).is_none());
        assert_eq!(repairs.made_count, 0);
    }
}
