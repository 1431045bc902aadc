//! Losses that nothing can make again: two pages of a group, a page and its parity, a long run, a whole
//! filling. Only in fillings of which an opening needs nothing, and only pages on which nothing is but data
//! of hosts: what becomes of the rest is known then.

use std::collections::{BTreeMap, BTreeSet};

use drive::Covered;
use layout::geometry::OWN_FIRST_BLOCK;
use layout::pack::{PackAddress, decode_pack};
use layout::{Checkpoint, Geometry, PAGE_BYTES, RecordKind};
use media::{SimMedia, SimRng};

use super::{Found, PAGE};

/// Most pages of a group that are lost together.
const OF_GROUP_MAX: u64 = 3;

/// What is on the pages of a filling: blocks of hosts, and whether there is anything else that may be needed.
struct Contents {
    blocks: BTreeMap<u32, BTreeSet<u64>>,
    others: BTreeSet<u32>,
}

/// Chooses pages of a filling, and the blocks that are lost with them.
pub(super) fn choose(
    rng: &mut SimRng,
    media: &SimMedia,
    geometry: &Geometry,
    filling: &Covered,
    found: &Found,
) -> Option<(BTreeSet<u32>, BTreeSet<u64>)> {
    let is_whole = found.is_listed_twice && found.is_intact.iter().all(|is_intact| *is_intact);
    if !is_whole || filling.last_sequence > cut(media, geometry)? {
        return None;
    }
    let (shape, end) = (&found.shape, found.index.end());
    let contents = contents(media, filling, found)?;
    let may_go = |page: &u32| !contents.others.contains(page);
    let group = rng.below(found.is_intact.len() as u64) as u32;
    let mut lost: BTreeSet<u32> = BTreeSet::new();
    match rng.below(4) {
        0 => lost.extend((0..end).filter(may_go)),
        1 => {
            let first = rng.below(u64::from(end)) as u32;
            let run = shape.groups() + 1 + rng.below(u64::from(shape.groups())) as u32;
            lost.extend((first..end.min(first + run)).filter(may_go));
        }
        2 => {
            let members: Vec<u32> = shape.members(group, end).filter(may_go).collect();
            lost.extend((!members.is_empty()).then(|| members[rng.index(members.len())]));
            lost.insert(shape.parity_offset(group) / PAGE_BYTES as u32);
        }
        _ => {
            let mut members: Vec<u32> = shape.members(group, end).filter(may_go).collect();
            for _ in 0..2 + rng.below(OF_GROUP_MAX - 1) {
                if !members.is_empty() {
                    lost.insert(members.swap_remove(rng.index(members.len())));
                }
            }
        }
    }
    let of_group = |page: u32| {
        let group = shape.group_of(page);
        let members = lost.iter().filter(|other| **other < end && shape.group_of(**other) == group).count();
        members + usize::from(lost.contains(&(shape.parity_offset(group) / PAGE_BYTES as u32)))
    };
    let beyond = lost.iter().filter(|page| **page < end && of_group(**page) > 1);
    let blocks: BTreeSet<u64> =
        beyond.filter_map(|page| contents.blocks.get(page)).flatten().copied().collect();
    (!blocks.is_empty()).then_some((lost, blocks))
}

/// The last pack that the newest durable checkpoint makes unnecessary.
fn cut(media: &SimMedia, geometry: &Geometry) -> Option<u64> {
    let places = [0, 1].into_iter().flat_map(|slot| geometry.checkpoint_places(slot));
    let found = places.filter_map(|place| {
        let pages = (place..place + geometry.checkpoint_area_bytes()).step_by(PAGE_BYTES);
        // What is not durable, or was never written, is blank.
        let area: Vec<u8> =
            pages.flat_map(|at| media.durable_page(at).map_or([0; PAGE_BYTES], |page| *page)).collect();
        Checkpoint::decode(&area).ok()
    });
    found.max_by_key(|found| found.number).map(|found| found.sequence)
}

/// Reads the packs of a filling that is whole.
fn contents(media: &SimMedia, filling: &Covered, found: &Found) -> Option<Contents> {
    let pages =
        (0..found.index.end()).map(|page| media.durable_page(filling.position + u64::from(page) * PAGE));
    let bytes: Vec<u8> = pages.collect::<Option<Vec<_>>>()?.iter().flat_map(|page| **page).collect();
    let mut contents = Contents { blocks: BTreeMap::new(), others: BTreeSet::new() };
    let mut offset = 0;
    while offset < bytes.len() {
        let place = PackAddress {
            uuid: &found.index.log_id,
            segment: filling.segment,
            generation: filling.generation,
            offset: offset as u32,
        };
        let header = decode_pack(&bytes[offset..], place, |at, record| {
            let (start, header) = (offset + at as usize, &record.header);
            let pages = start / PAGE_BYTES..=(start + header.record_len() - 1) / PAGE_BYTES;
            let pages = pages.map(|page| page as u32);
            match header.kind {
                RecordKind::Data if header.block < OWN_FIRST_BLOCK => pages.for_each(|page| {
                    let blocks = contents.blocks.entry(page).or_default();
                    blocks.extend(header.block..header.block + header.blocks());
                }),
                // Only an opening needs what is logged.
                RecordKind::Range | RecordKind::Overlay => {}
                RecordKind::Data | RecordKind::Node => contents.others.extend(pages),
            }
        });
        offset += header.ok()?.len as usize;
    }
    Some(contents)
}
