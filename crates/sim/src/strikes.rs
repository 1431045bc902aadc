//! Loss of pages while the drive runs, between any two steps, within what parity covers: of each group of a
//! filling one page at most. It excuses nothing: the drive makes them again, and moves what lives there.
//!
//! A group is struck again only if its segment was filled again: what was repaired is not rewritten in place.

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::Covered;
use layout::{PAGE_BYTES, ParityIndex, ParityShape};
use media::{SimMedia, SimRng};

const PAGE: u64 = PAGE_BYTES as u64;
/// One beat in so many brings a strike, by seed; 0: none.
const ONE_BEAT_IN: [u64; 4] = [0, 8, 32, 128];
/// Most fillings of one strike.
const FILLINGS_MAX: u64 = 4;

/// What strikes pages. It has its own generator.
pub(crate) struct Strikes {
    rng: SimRng,
    one_beat_in: u64,
    segment_bytes: u32,
}

/// What becomes of lost pages.
#[derive(Clone, Copy)]
enum Becomes {
    Unreadable,
    Garbage,
    Zeros,
    /// What was there before, or what is on the next page: a write that was lost, or misdirected.
    Another,
}

/// A filling on the medium, and which of its groups are as they were written.
pub(crate) struct Found {
    pub(crate) index: ParityIndex,
    pub(crate) shape: ParityShape,
    pub(crate) is_intact: Vec<bool>,
    /// Both copies of its index are.
    pub(crate) is_listed_twice: bool,
}

impl Strikes {
    pub(crate) fn none() -> Strikes {
        Strikes { rng: SimRng::new(0), one_beat_in: 0, segment_bytes: 0 }
    }

    pub(crate) fn new(mut rng: SimRng, segment_bytes: u32) -> Strikes {
        let one_beat_in = ONE_BEAT_IN[rng.index(ONE_BEAT_IN.len())];
        Strikes { rng, one_beat_in, segment_bytes }
    }

    /// Returns whether a strike is due.
    pub(crate) fn is_due(&mut self) -> bool {
        self.one_beat_in > 0 && self.rng.chance(1, self.one_beat_in)
    }

    /// Strikes some of these fillings. Returns what became of them, for the trace.
    pub(crate) fn strike(&mut self, media: &SimMedia, covered: &[Covered]) -> Vec<String> {
        let mut struck = Vec::new();
        if covered.is_empty() {
            return struck;
        }
        for _ in 0..1 + self.rng.below(FILLINGS_MAX) {
            let filling = covered[self.rng.index(covered.len())];
            let Some(found) = find(media, &filling, self.segment_bytes) else { continue };
            let pages = choose(&mut self.rng, &found);
            if pages.is_empty() {
                continue;
            }
            self.lose(media, filling.position, &pages);
            struck.push(format!("pages of segment {} are lost: {pages:?}", filling.segment));
        }
        struck
    }

    fn lose(&mut self, media: &SimMedia, position: u64, pages: &BTreeSet<u32>) {
        use Becomes::{Another, Garbage, Unreadable, Zeros};
        let becomes = [Unreadable, Unreadable, Garbage, Zeros, Another][self.rng.index(5)];
        for page in pages {
            let at = position + u64::from(*page) * PAGE;
            let mut content = [0; PAGE_BYTES];
            match becomes {
                Unreadable => {
                    media.lose_page(at);
                    continue;
                }
                Garbage => content.fill_with(|| self.rng.next_u64() as u8),
                Zeros => {}
                Another => {
                    let next = || media.durable_page(at + PAGE);
                    let another = media.older_page(at).filter(|_| self.rng.chance(1, 2)).or_else(next);
                    content = another.map_or(content, |page| *page);
                }
            }
            media.replace_page(at, content);
        }
    }
}

/// Looks at a filling. Nothing if the log could end in it as far as the medium tells, or its index is gone.
pub(crate) fn find(media: &SimMedia, filling: &Covered, segment_bytes: u32) -> Option<Found> {
    let shape = ParityShape::new(segment_bytes, filling.form)?;
    let page = |page: u32| media.durable_page(filling.position + u64::from(page) * PAGE);
    let index_pages = (shape.index_bytes() / PAGE_BYTES) as u32;
    let copies = shape.index_offsets().map(|offset| {
        let first = offset / PAGE_BYTES as u32;
        let pages = (first..first + index_pages).map(page).collect::<Option<Vec<_>>>();
        let bytes = pages.map(|pages| pages.iter().flat_map(|page| **page).collect::<Vec<u8>>());
        bytes.filter(|bytes| is_index_of(bytes, filling, segment_bytes))
    });
    let bytes = copies.iter().flatten().next()?;
    let (index, _) = ParityIndex::decode(bytes, segment_bytes).ok()?;
    if index.last_sequence > media.called_durable() {
        return None;
    }
    let is_right = |at: u32, sum: u32| is_as(page(at), sum);
    let groups = shape.groups_used(index.end());
    let intact = |group: u32| {
        let parity = shape.parity_offset(group) / PAGE_BYTES as u32;
        is_right(parity, index.parity[group as usize])
            && shape.members(group, index.end()).all(|at| is_right(at, index.pages[at as usize]))
    };
    let is_intact = (0..groups).map(intact).collect();
    Some(Found { is_intact, is_listed_twice: copies.iter().all(Option::is_some), index, shape })
}

fn is_as(page: Option<Arc<[u8; PAGE_BYTES]>>, sum: u32) -> bool {
    page.is_some_and(|page| crc32c::crc32c(&page[..]) == sum)
}

fn is_index_of(bytes: &[u8], filling: &Covered, segment_bytes: u32) -> bool {
    ParityIndex::decode(bytes, segment_bytes).is_ok_and(|(index, shape)| {
        (index.segment, index.generation, shape.form(), index.last_sequence)
            == (filling.segment, filling.generation, filling.form, filling.last_sequence)
    })
}

/// Chooses pages of a filling, one of a group at most: scattered, or in one run.
pub(crate) fn choose(rng: &mut SimRng, found: &Found) -> BTreeSet<u32> {
    let Found { index, shape, is_intact, is_listed_twice } = found;
    let (end, groups) = (index.end(), is_intact.len() as u32);
    let mut lost = BTreeSet::new();
    if rng.chance(1, 3) {
        let run = 1 + rng.below(u64::from(groups)) as u32;
        let first = rng.below(u64::from(end)) as u32;
        let run = first..(first + run).min(end);
        lost.extend(run.filter(|page| is_intact[shape.group_of(*page) as usize]));
        return lost;
    }
    // Any page of each of some groups, perhaps that of parity.
    for group in (0..groups).filter(|group| is_intact[*group as usize]) {
        let members: Vec<u32> = shape.members(group, end).collect();
        let at = rng.below(members.len() as u64 + 1) as usize;
        let parity = shape.parity_offset(group) / PAGE_BYTES as u32;
        if rng.chance(1, 3) {
            lost.insert(members.get(at).copied().unwrap_or(parity));
        }
    }
    // One copy of the index, too.
    if *is_listed_twice && rng.chance(1, 4) {
        lost.insert(shape.index_offsets()[rng.index(2)] / PAGE_BYTES as u32);
    }
    lost
}
