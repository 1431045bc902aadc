//! Loss of pages: which, and what is there afterwards.
//!
//! Losses within the cover of parity take at most one page of each group of a filling, and at most one copy
//! of its index. Losses beyond it take two pages of a group, a run that is too long, or all pages of a
//! filling.

use std::collections::BTreeSet;
use std::fmt;

use media::SimRng;

use super::fillings::{Filling, Finder, Taken};
use super::image::{Image, PAGE_BYTES, Page};
use super::{Disk, DiskState};

/// What is on a page that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Zeros.
    Zeros,
    /// Random bytes.
    Garbage,
    /// What was there before.
    Old,
    /// What is on another page.
    Misdirected,
    /// The same, but for one bit.
    Bit,
    /// It cannot be read until it is written again.
    Unreadable,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] =
        [Kind::Zeros, Kind::Garbage, Kind::Old, Kind::Misdirected, Kind::Bit, Kind::Unreadable];

    fn name(self) -> &'static str {
        match self {
            Kind::Zeros => "zeros",
            Kind::Garbage => "garbage",
            Kind::Old => "older",
            Kind::Misdirected => "misdirected",
            Kind::Bit => "one bit",
            Kind::Unreadable => "unreadable",
        }
    }
}

/// Pages lost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
    /// Pages with packs.
    pub of_packs: u64,
    /// Pages with parity.
    pub of_parity: u64,
    /// Pages of a copy of an index.
    pub of_index: u64,
    /// Runs of two pages and more.
    pub runs: u64,
    /// Fillings that lost something, counted at each loss.
    pub fillings: u64,
}

impl LossCounts {
    /// All pages.
    pub fn pages(&self) -> u64 {
        self.of_packs + self.of_parity + self.of_index
    }

    /// Adds the counts of others.
    pub fn add(&mut self, other: &LossCounts) {
        self.kinds.iter_mut().zip(other.kinds).for_each(|(mine, theirs)| *mine += theirs);
        self.of_packs += other.of_packs;
        self.of_parity += other.of_parity;
        self.of_index += other.of_index;
        self.runs += other.runs;
        self.fillings += other.fillings;
    }
}

impl fmt::Display for LossCounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} pages (", self.pages())?;
        for (kind, count) in Kind::ALL.iter().zip(self.kinds) {
            write!(out, "{}{} {count}", if *kind == Kind::Zeros { "" } else { ", " }, kind.name())?;
        }
        write!(
            out,
            "), of packs {}, parity {}, indexes {}; {} runs, {} fillings",
            self.of_packs, self.of_parity, self.of_index, self.runs, self.fillings
        )
    }
}

/// How far losses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Within the cover of parity.
    Covered,
    /// Beyond it.
    Beyond,
}

/// Chooses pages to lose, and remembers them.
pub struct Chooser {
    rng: SimRng,
    finder: Finder,
    taken: Taken,
    counts: LossCounts,
    notes: Vec<String>,
}

impl Chooser {
    /// Creates one that has lost nothing.
    pub fn new(rng: SimRng) -> Chooser {
        Chooser {
            rng,
            finder: Finder::default(),
            taken: Taken::new(),
            counts: LossCounts::default(),
            notes: Vec::new(),
        }
    }

    /// What was lost since the last call, a line for each filling.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes over what another one has lost.
    pub fn continue_after(&mut self, other: &mut Chooser) {
        self.finder = std::mem::take(&mut other.finder);
        self.taken = std::mem::take(&mut other.taken);
    }

    /// Pages lost so far.
    pub fn counts(&self) -> LossCounts {
        self.counts
    }
}

impl Disk {
    /// Lets pages that cannot be read hold garbage instead, unless they were lost of a filling in use: an
    /// opening refuses a drive if the page at which its log may go on cannot be read, whether or not it does.
    pub fn settle_unreadable(&self, chooser: &mut Chooser) {
        let mut state = self.state.lock();
        let changing = state.changing();
        if chooser.finder.find(&state.durable, &changing, &mut chooser.taken).is_some() {
            state.unreadable.retain(|page| chooser.finder.is_taken(*page, &chooser.taken));
        }
    }

    /// Loses pages of fillings: of one in `part`, on average. Nothing else happens to the disk meanwhile.
    pub fn lose_pages(&self, chooser: &mut Chooser, extent: Extent, part: u64) {
        let mut state = self.state.lock();
        let Chooser { rng, finder, taken, counts, notes } = chooser;
        let changing = state.changing();
        let Some(fillings) = finder.find(&state.durable, &changing, taken) else { return };
        for filling in fillings {
            if !rng.chance(1, part) {
                continue;
            }
            let (pages, is_run) = match extent {
                Extent::Covered => within_cover(&filling, rng),
                Extent::Beyond => beyond_cover(&filling, rng),
            };
            assert!(extent == Extent::Beyond || is_covered(&filling, &pages), "{filling:?}: {pages:?}");
            // What fails together often fails the same way.
            let of_all = rng.chance(1, 2).then(|| Kind::ALL[rng.index(Kind::ALL.len())]);
            let taken = taken.entry(filling.id).or_default();
            let mut note = format!("segment {}, generation {}, loses", filling.id.0, filling.id.1);
            for page in &pages {
                let kind = of_all.unwrap_or_else(|| Kind::ALL[rng.index(Kind::ALL.len())]);
                let kind = state.lose(filling.first + u64::from(*page), kind, rng);
                taken.insert(*page);
                note += &format!(" {page}: {},", kind.name());
                counts.kinds[Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default()] += 1;
                match filling.group_of(*page) {
                    None => counts.of_index += 1,
                    Some(_) if *page < filling.end => counts.of_packs += 1,
                    Some(_) => counts.of_parity += 1,
                }
            }
            notes.extend(Some(note).filter(|_| !pages.is_empty()));
            counts.runs += u64::from(is_run && pages.len() > 1);
            counts.fillings += u64::from(!pages.is_empty());
        }
    }
}

/// Draws pages that parity can make again, and whether they are a run.
fn within_cover(filling: &Filling, rng: &mut SimRng) -> (BTreeSet<u32>, bool) {
    let mut pages = BTreeSet::new();
    let is_run = rng.chance(1, 3);
    if is_run {
        pages = run(filling, rng);
    } else {
        // All groups, or some of them; also the pages of parity alone.
        let part = [1, 1, 2, 4, 16][rng.index(5)];
        let parity_alone = rng.chance(1, 8);
        for group in &filling.groups {
            let members: Vec<u32> = filling.shape.members(*group, filling.end).collect();
            let at = if parity_alone { members.len() } else { rng.index(members.len() + 1) };
            if rng.chance(1, part) {
                pages.insert(members.get(at).copied().unwrap_or(filling.parity_page(*group)));
            }
        }
        if filling.is_index_whole && rng.chance(1, 4) {
            let copy = filling.index_pages(rng.index(2));
            pages.extend(copy.filter(|_| rng.chance(2, 3)));
        }
    }
    (pages, is_run)
}

/// Draws a run of pages in which no group comes twice. It may begin among packs and go on into the first
/// copy of the index and parity, or end with the last copy.
fn run(filling: &Filling, rng: &mut SimRng) -> BTreeSet<u32> {
    let (room, all) = (filling.index_pages(0).start, filling.index_pages(1).end);
    let first = if rng.chance(3, 4) {
        rng.below(u64::from(filling.end)) as u32
    } else {
        let behind = room.saturating_sub(8).min(filling.end);
        behind + rng.below(u64::from(all - behind)) as u32
    };
    let most = 1 + rng.below(u64::from(filling.shape.groups())) as u32;
    let mut pages = BTreeSet::new();
    for page in first..(first + most).min(all) {
        let has_meaning = filling.group_of(page).is_some() || is_of_index(filling, page);
        pages.insert(page);
        if !is_covered(filling, &pages) {
            pages.remove(&page);
            if has_meaning {
                break;
            }
        }
    }
    pages
}

/// Draws pages that parity cannot all make again.
fn beyond_cover(filling: &Filling, rng: &mut SimRng) -> (BTreeSet<u32>, bool) {
    let groups = filling.shape.groups();
    match rng.below(4) {
        // All of it.
        0 => {
            ((0..filling.end).chain(filling.index_pages(0).start..filling.index_pages(1).end).collect(), true)
        }
        // A run that is too long.
        1 => {
            let first = rng.below(u64::from(filling.end)) as u32;
            let len = groups + 1 + rng.below(u64::from(groups)) as u32;
            ((first..(first + len).min(filling.end)).collect(), true)
        }
        // Some pages of each group, perhaps with its parity.
        2 => {
            let mut pages = BTreeSet::new();
            for group in 0..filling.shape.groups_used(filling.end) {
                let members: Vec<u32> = filling.shape.members(group, filling.end).collect();
                pages.extend((0..2).map(|_| members[rng.index(members.len())]));
                pages.extend(rng.chance(1, 2).then(|| filling.parity_page(group)));
            }
            (pages, false)
        }
        // A page of each group, and both copies of the index.
        _ => {
            let mut pages: BTreeSet<u32> = (0..groups.min(filling.end)).collect();
            pages.extend(filling.index_pages(0).chain(filling.index_pages(1)));
            (pages, false)
        }
    }
}

fn is_of_index(filling: &Filling, page: u32) -> bool {
    (0..2).any(|copy| filling.index_pages(copy).contains(&page))
}

/// Returns whether parity can make all of these pages again: no two are of one group, no group had lost one
/// before, and one copy of the index is left.
fn is_covered(filling: &Filling, pages: &BTreeSet<u32>) -> bool {
    let mut groups = filling.groups.clone();
    let mut copies = BTreeSet::new();
    for page in pages {
        let copy = (0..2).find(|copy| filling.index_pages(*copy).contains(page));
        copies.extend(copy);
        let is_free = match filling.group_of(*page) {
            Some(group) => groups.remove(&group),
            None => copy.is_some(),
        };
        if !is_free {
            return false;
        }
    }
    copies.is_empty() || copies.len() == 1 && filling.is_index_whole
}

impl DiskState {
    /// Pages with changes that are not durable.
    fn changing(&self) -> BTreeSet<u64> {
        let changes = self.journal.iter().chain(&self.in_flight);
        changes.flat_map(|(_, change)| change.pages.iter().map(|(at, _)| *at)).collect()
    }

    /// Loses a page whose content is durable. Returns how: a kind that would leave it as it is becomes
    /// garbage.
    fn lose(&mut self, at: u64, kind: Kind, rng: &mut SimRng) -> Kind {
        let old = *page_of(&self.durable, at);
        let mut new = old;
        match kind {
            Kind::Zeros => new = [0; PAGE_BYTES],
            Kind::Old => new = *page_of(&self.past, at),
            Kind::Misdirected => {
                new = *page_of(&self.durable, rng.below(self.durable.len_pages()));
            }
            Kind::Bit => {
                let bit = rng.index(PAGE_BYTES * 8);
                new[bit / 8] ^= 1 << (bit % 8);
            }
            Kind::Garbage | Kind::Unreadable => {}
        }
        let kind = if new == old && kind != Kind::Unreadable { Kind::Garbage } else { kind };
        if matches!(kind, Kind::Garbage | Kind::Unreadable) {
            new.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
        }
        if kind == Kind::Unreadable {
            self.unreadable.insert(at);
        }
        let page = Some(Page::of(&new));
        self.durable.set(at, page.clone());
        self.live.set(at, page);
        kind
    }
}

fn page_of(image: &Image, at: u64) -> &[u8; PAGE_BYTES] {
    image.page(at).map_or(&[0; PAGE_BYTES], |page| page.bytes())
}
