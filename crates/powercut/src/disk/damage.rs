//! Fate of changes that were not synced.

use media::SimRng;

use super::image::{Change, PAGE_BYTES, Page, SECTOR_BYTES};
use super::{DiskState, Stale};

/// Fate of one change.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Whole,
    Lost,
    /// Each piece is new with a probability of this number in 8.
    Scattered(u64),
    /// The first pieces are new: this number of 256 parts of the change.
    Begun(u64),
}

/// Treatment of all changes at a cut.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Keeps,
    Loses,
    /// The first changes are lost, this number of them, and the rest kept. Logs handle this case worst.
    LosesOldest(usize),
    Picks,
}

impl Mood {
    fn draw(rng: &mut SimRng, changes: usize) -> Mood {
        match rng.below(6) {
            0 => Mood::Keeps,
            1 => Mood::Loses,
            2 => Mood::LosesOldest(rng.index(changes + 1)),
            _ => Mood::Picks,
        }
    }

    fn fate(self, index: usize, rng: &mut SimRng) -> Fate {
        match self {
            Mood::Keeps => Fate::Whole,
            Mood::Loses => Fate::Lost,
            Mood::LosesOldest(count) if index < count => Fate::Lost,
            Mood::LosesOldest(_) => Fate::Whole,
            Mood::Picks => match rng.below(8) {
                0..3 => Fate::Whole,
                3..5 => Fate::Lost,
                5 => Fate::Scattered(1 + rng.below(7)),
                6 => Fate::Scattered(7),
                _ => Fate::Begun(rng.below(256)),
            },
        }
    }
}

impl DiskState {
    /// Makes all changes with numbers below `covered` durable.
    pub(super) fn make_durable(&mut self, covered: u64) {
        let durable = &mut self.durable;
        self.journal.retain(|(number, change)| {
            let is_covered = *number < covered;
            if is_covered {
                durable.apply(change);
            }
            !is_covered
        });
    }

    /// Fails a sync: the changes it covered are kept, lost or torn, and no later sync covers them.
    pub(super) fn lose_what_was_covered(&mut self, covered: u64) {
        self.counts.failed_syncs += 1;
        let (lost, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.journal).into_iter().partition(|(number, _)| *number < covered);
        self.decide(lost.iter().map(|(_, change)| change));
        if self.stale == Stale::Hidden {
            for (at, _) in lost.iter().flat_map(|(_, change)| &change.pages) {
                self.live.set(*at, self.durable.page(*at).cloned());
            }
            for (_, change) in &left {
                self.live.apply(change);
            }
        }
        self.journal = left;
    }

    /// Decides, after a power cut, the fate of everything that is not durable.
    pub(super) fn decide_everything(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        let mut in_flight = std::mem::take(&mut self.in_flight);
        for at in (1..in_flight.len()).rev() {
            in_flight.swap(at, self.rng.index(at + 1));
        }
        self.decide(journal.iter().chain(&in_flight).map(|(_, change)| change));
        self.live = self.durable.clone();
    }

    fn decide<'a>(&mut self, changes: impl Iterator<Item = &'a Change>) {
        let changes: Vec<&Change> = changes.collect();
        let mood = Mood::draw(&mut self.rng, changes.len());
        let piece = if self.rng.chance(1, 4) { PAGE_BYTES } else { SECTOR_BYTES };
        for (index, change) in changes.into_iter().enumerate() {
            let fate = mood.fate(index, &mut self.rng);
            match fate {
                Fate::Whole => self.counts.kept_writes += 1,
                Fate::Lost => self.counts.lost_writes += 1,
                Fate::Scattered(_) | Fate::Begun(_) => self.counts.torn_writes += 1,
            }
            self.put(change, fate, piece);
        }
    }

    /// Applies the part of a change that its fate keeps to the durable image.
    fn put(&mut self, change: &Change, fate: Fate, piece: usize) {
        let pieces_in_page = PAGE_BYTES / piece;
        let begun = match fate {
            Fate::Begun(parts) => change.pages.len() * pieces_in_page * parts as usize / 256,
            _ => 0,
        };
        for (index, (at, new)) in change.pages.iter().enumerate() {
            let mut is_new = |piece_index: usize| match fate {
                Fate::Whole => true,
                Fate::Lost => false,
                Fate::Scattered(weight) => self.rng.chance(weight, 8),
                Fate::Begun(_) => index * pieces_in_page + piece_index < begun,
            };
            let Some(new) = new else {
                // Holes appear and vanish only as whole pages.
                if is_new(0) {
                    self.durable.set(*at, None);
                }
                continue;
            };
            let mut page = self.durable.page(*at).map_or([0; PAGE_BYTES], |page| *page.bytes());
            for (piece_index, (mine, theirs)) in
                page.chunks_exact_mut(piece).zip(new.bytes().chunks_exact(piece)).enumerate()
            {
                if is_new(piece_index) {
                    mine.copy_from_slice(theirs);
                }
            }
            self.durable.set(*at, Some(Page::of(&page)));
        }
    }
}
