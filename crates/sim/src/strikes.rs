//! Loss of pages while the drive runs, between any two steps, within what parity covers: of each group of a
//! filling one page at most. It excuses nothing: the drive makes them again, and moves what lives there.
//!
//! In some seeds more is lost, up to whole fillings, where nothing but data of hosts is. It excuses errors of
//! the blocks that were written there, and no others.
//!
//! A group is struck again only if its segment was filled again: what was repaired is not rewritten in place.

mod beyond;

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::Covered;
use layout::pack::{PackHeader, drive_tag};
use layout::parity::parity_mask;
use layout::{Geometry, PAGE_BYTES, ParityIndex, ParityShape};
use media::{SimMedia, SimRng};

use crate::Config;

const PAGE: u64 = PAGE_BYTES as u64;
type Page = Arc<[u8; PAGE_BYTES]>;
/// One beat in so many brings a strike, by seed; 0: none.
const ONE_BEAT_IN: [u64; 4] = [0, 8, 32, 128];
/// One strike in so many goes beyond what parity covers, where that may be.
const BEYOND_ONE_IN: u64 = 4;
/// Most fillings of one strike.
const FILLINGS_MAX: u64 = 4;

/// What strikes pages. It has its own generator.
pub(crate) struct Strikes {
    rng: SimRng,
    one_beat_in: u64,
    segment_bytes: u32,
    /// Places of checkpoints, if more may be lost than parity covers.
    beyond: Option<Geometry>,
    /// What an earlier process has written, and no sync covers, counts as durable: the next sync will.
    may_be_unsynced: bool,
}

/// What a strike has lost.
pub(crate) struct Lost {
    pub(crate) segment: u32,
    pub(crate) pages: BTreeSet<u32>,
    /// Blocks with records that cannot be made again.
    pub(crate) blocks: BTreeSet<u64>,
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
        Strikes {
            rng: SimRng::new(0),
            one_beat_in: 0,
            segment_bytes: 0,
            beyond: None,
            may_be_unsynced: false,
        }
    }

    pub(crate) fn new(mut rng: SimRng, config: &Config, may_be_unsynced: bool) -> Strikes {
        let one_beat_in = ONE_BEAT_IN[rng.index(ONE_BEAT_IN.len())];
        let beyond = config.geometry().filter(|_| config.loses_data);
        Strikes { rng, one_beat_in, segment_bytes: config.segment_bytes, beyond, may_be_unsynced }
    }

    /// Returns whether a strike is due.
    pub(crate) fn is_due(&mut self) -> bool {
        self.one_beat_in > 0 && self.rng.chance(1, self.one_beat_in)
    }

    /// Looks at one of these fillings. Returns why it is not covered as its row says.
    pub(crate) fn verify(&mut self, media: &SimMedia, covered: &[Covered]) -> Option<String> {
        let filling = covered.get(self.rng.index(covered.len().max(1)))?;
        let Covered { segment, .. } = filling;
        let read = |at| match self.may_be_unsynced {
            true => media.shown_page(at),
            false => media.durable_page(at),
        };
        let Some((index, shape, _)) = read_index(&read, filling, self.segment_bytes) else {
            return Some(format!(
                "the row of segment {segment} says that its parity is there, and it is not"
            ));
        };
        let found = groups_of(&read, filling, &index, &shape);
        let is_wrong = |group: u32| {
            let offset = shape.parity_offset(group);
            let members = shape.members(group, index.end()).map(|page| page * PAGE_BYTES as u32);
            let mut sum = [0; PAGE_BYTES];
            for at in members.chain([offset]) {
                let page =
                    read(filling.position + u64::from(at)).unwrap_or_else(|| Arc::new([0; PAGE_BYTES]));
                // All empty packs have the same checksum, because their own follows what it covers: one
                // of them may be in the place of another.
                if PackHeader::decode(&page[..]).is_ok_and(|header| header.records == 0) {
                    return false;
                }
                sum.iter_mut().zip(page.iter()).for_each(|(sum, byte)| *sum ^= byte);
            }
            let mask = parity_mask(drive_tag(&index.log_id), *segment, filling.generation, offset);
            sum[..4].iter_mut().zip(mask.to_le_bytes()).for_each(|(sum, byte)| *sum ^= byte);
            sum != [0; PAGE_BYTES]
        };
        let mut intact = (0..).zip(&found).filter_map(|(group, is_intact)| is_intact.then_some(group));
        intact
            .find(|group| is_wrong(*group))
            .map(|group| format!("the parity of group {group} of segment {segment} is not that of its pages"))
    }

    /// Strikes some of these fillings.
    pub(crate) fn strike(&mut self, media: &SimMedia, covered: &[Covered]) -> Vec<Lost> {
        let mut struck = Vec::new();
        if covered.is_empty() {
            return struck;
        }
        for _ in 0..1 + self.rng.below(FILLINGS_MAX) {
            let filling = covered[self.rng.index(covered.len())];
            let Some(found) = find(media, &filling, self.segment_bytes) else { continue };
            let beyond = match self.beyond.filter(|_| self.rng.chance(1, BEYOND_ONE_IN)) {
                Some(geometry) => beyond::choose(&mut self.rng, media, &geometry, &filling, &found),
                None => None,
            };
            let (pages, blocks) = beyond.unwrap_or_else(|| (choose(&mut self.rng, &found), BTreeSet::new()));
            if pages.is_empty() {
                continue;
            }
            self.lose(media, filling.position, &pages);
            struck.push(Lost { segment: filling.segment, pages, blocks });
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
    let read = |at| media.durable_page(at);
    let (index, shape, is_listed_twice) = read_index(&read, filling, segment_bytes)?;
    if index.last_sequence > media.called_durable() {
        return None;
    }
    let is_intact = groups_of(&read, filling, &index, &shape);
    Some(Found { is_intact, is_listed_twice, index, shape })
}

/// Reads the index of a filling. Returns also whether both copies are right.
fn read_index(
    read: &impl Fn(u64) -> Option<Page>,
    filling: &Covered,
    segment_bytes: u32,
) -> Option<(ParityIndex, ParityShape, bool)> {
    let shape = ParityShape::new(segment_bytes, filling.form)?;
    let page = |page: u32| read(filling.position + u64::from(page) * PAGE);
    let index_pages = (shape.index_bytes() / PAGE_BYTES) as u32;
    let copies = shape.index_offsets().map(|offset| {
        let first = offset / PAGE_BYTES as u32;
        let pages = (first..first + index_pages).map(page).collect::<Option<Vec<_>>>();
        let bytes = pages.map(|pages| pages.iter().flat_map(|page| **page).collect::<Vec<u8>>());
        bytes.filter(|bytes| is_index_of(bytes, filling, segment_bytes))
    });
    let bytes = copies.iter().flatten().next()?;
    let (index, _) = ParityIndex::decode(bytes, segment_bytes).ok()?;
    Some((index, shape, copies.iter().all(Option::is_some)))
}

/// Returns of each group whether it is as it was written.
fn groups_of(
    read: &impl Fn(u64) -> Option<Page>,
    filling: &Covered,
    index: &ParityIndex,
    shape: &ParityShape,
) -> Vec<bool> {
    let is_right = |at: u32, sum: u32| is_as(read(filling.position + u64::from(at) * PAGE), sum);
    let is_intact = |group: u32| {
        let parity = shape.parity_offset(group) / PAGE_BYTES as u32;
        is_right(parity, index.parity[group as usize])
            && shape.members(group, index.end()).all(|at| is_right(at, index.pages[at as usize]))
    };
    (0..shape.groups_used(index.end())).map(is_intact).collect()
}

fn is_as(page: Option<Page>, sum: u32) -> bool {
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
