//! Compressing blocks as well as the drive can, for settling and cutting: in which way, and whether that
//! gains.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use codec::{Dictionary, Policy};
use layout::{BLOCK_BYTES, Entry, UNIT_BYTES};
use media::Media;

use crate::error::Error;
use crate::medium::fetched::Fetched;
use crate::shared::Shared;
use crate::state::batch::Batch;
use crate::state::dictionaries::Dictionaries;
use crate::state::pins::Pin;
use crate::state::recipe::Recipe;

/// Most blocks of a settled frame. Groups of this size are examined together.
pub(crate) const GROUP_BLOCKS: u64 = 8;
/// zstd level and blocks of settled frames with a dictionary. It gains what neighbours would, and smaller
/// frames are read faster (measurements: lab/codecs.md).
const WITH_DICTIONARY: (i8, u64) = (6, 4);
/// The same without one: frames twice as large gain 2 % and take half as long again to read; level 9 gains
/// nothing at this size.
const WITHOUT_DICTIONARY: (i8, u64) = (8, 4);
/// Single blocks may take this many eighths of what settled frames would.
const GROWTH_MAX_EIGHTHS: u64 = 9;

/// Most bytes that settling in the background writes to gain one.
pub const SETTLE_PRICE_MAX: u64 = 32;

/// Gain from which settling is worth writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Nothing becomes larger.
    Any,
    /// See [`SETTLE_PRICE_MAX`].
    Price,
}

/// The records that a step recompresses, with the reason: see [`Settle`](crate::Settle).
#[derive(Clone, Debug)]
pub(crate) enum Pick {
    /// Data that is not settled; if a number is given, in sealed segments whose newest pack is this far
    /// behind. While there is not much room, single blocks that gain as frames too.
    Unsettled(Option<u64>, Worth),
    /// Data that gains, in segments whose newest pack is not above this.
    Again(u64),
    /// Data that needs one of these dictionaries, in segments whose newest pack is not above this.
    Needing(u64, Vec<u16>),
    /// Frames, to be cut into single blocks.
    Hot,
}

impl<M: Media> Shared<M> {
    /// Reads blocks and compresses them as well as the drive can, the latter where it disturbs nobody. Runs
    /// with corrupt records are left out: reads and scrubs report them.
    pub(crate) async fn make_settled(
        self: &Arc<Self>,
        first: u64,
        expected: &[Entry],
        pins: Vec<Pin>,
        pick: &Pick,
    ) -> Result<Made, Error> {
        let fetched = self.fetch_blocks(first, expected.len()).await?;
        drop(pins);
        let (made, corrupt, mut fetched) = self.make_of(first, expected, pick, fetched).await?;
        let (made, corrupt) = match corrupt > 0 && self.repair_fetched(&mut fetched).await {
            true => {
                made.batch.give_back();
                let (made, corrupt, _) = self.make_of(first, expected, pick, fetched).await?;
                (made, corrupt)
            }
            false => (made, corrupt),
        };
        Self::count(&self.corrupt_records, corrupt);
        if corrupt > 0 && matches!(pick, Pick::Needing(..)) {
            return Err(Error::Corrupt("records that may need a dictionary of old cannot be read".into()));
        }
        Ok(made)
    }

    /// Compresses what was fetched. Returns also how many groups of it cannot be read, and what was fetched.
    async fn make_of(
        self: &Arc<Self>,
        first: u64,
        expected: &[Entry],
        pick: &Pick,
        fetched: Fetched,
    ) -> Result<(Made, u64, Fetched), Error> {
        let maker = Maker {
            first,
            pick: pick.clone(),
            recipes: self.strong_recipes(),
            usual: Recipe { frame_blocks: GROUP_BLOCKS, settled: true, ..self.kept_recipe() },
            gain_min: self.dictionary_gain_min,
            dictionaries: self.dictionaries.clone(),
        };
        let expected = expected.to_vec();
        // What was fetched is returned: its buffers are released here, not whenever the other thread gets to
        // it.
        let made = self.compute(move || {
            let mut made = Made { batch: Batch::take(), levels: Vec::new(), gained_bytes: 0 };
            let mut corrupt = 0;
            let starts = (0..).step_by(GROUP_BLOCKS as usize);
            for (start, group) in starts.zip(expected.chunks(GROUP_BLOCKS as usize)) {
                match maker.contents(&fetched, start, group) {
                    Ok(contents) if !contents.is_empty() => maker.add_group(group, &contents, &mut made),
                    Ok(_) => {}
                    Err(Unreadable) => corrupt += 1,
                }
            }
            (made, corrupt, fetched)
        });
        made.await.map_err(|_| Error::Io("compressing was given up".into()))
    }
}

/// A run of a group is corrupt.
struct Unreadable;

/// What compressing groups of blocks needs, without the drive.
struct Maker {
    /// Block with which the first group begins.
    first: u64,
    pick: Pick,
    /// With a dictionary, and without one.
    recipes: [Recipe; 2],
    /// For what is settled as it was written.
    usual: Recipe,
    /// See [`OpenOptions::dictionary_gain_min`](crate::OpenOptions::dictionary_gain_min).
    gain_min: f64,
    dictionaries: Arc<Dictionaries>,
}

/// What is there of a group, as far as it decides how the group is compressed.
struct Present {
    bytes: u64,
    /// All records are settled.
    are_settled: bool,
    /// No record is a frame.
    are_single: bool,
}

impl Maker {
    /// Decodes the runs of a group that begins at block `start` of those fetched, each with its first block;
    /// none if the group is not picked.
    fn contents(
        &self,
        fetched: &Fetched,
        start: usize,
        group: &[Entry],
    ) -> Result<Vec<(u64, Vec<u8>)>, Unreadable> {
        let runs = runs_of(group);
        let first = self.first + start as u64;
        if let Pick::Needing(_, ids) = &self.pick {
            // Unknown for what cannot be read.
            let needs = |block| fetched.header_of(block).is_none_or(|header| ids.contains(&header.extra));
            if !runs.iter().cloned().flatten().any(|i| needs(first + i as u64)) {
                return Ok(Vec::new());
            }
        }
        let decoded = runs.into_iter().map(|run| {
            let at = first + run.start as u64;
            let mut bytes = vec![0; run.len() * BLOCK_BYTES];
            let decoded = fetched.decode(&self.dictionaries, at, &mut bytes);
            decoded.map(|()| (at, bytes)).map_err(|_| Unreadable)
        });
        decoded.collect()
    }

    /// Compresses a group in the first way that gains enough, if one does.
    fn add_group(&self, group: &[Entry], contents: &[(u64, Vec<u8>)], made: &mut Made) {
        let records = || group.iter().filter(|entry| entry.is_record());
        let present = Present {
            bytes: occupied_units(group, 0..group.len()) * UNIT_BYTES as u64,
            are_settled: records().all(|entry| entry.is_settled()),
            are_single: records().all(|entry| !entry.is_frame()),
        };
        // What cutting is compared with: settled frames, if they are smaller than what is there.
        let mut least = present.bytes;
        let strongest: Vec<&Recipe> =
            contents.iter().map(|(_, bytes)| strongest(&self.recipes, bytes)).collect();
        let ways = self.ways(&present);
        for (turn, way) in ways.iter().enumerate() {
            let Made { batch, levels, gained_bytes } = made;
            let (mark, mark_bytes, mark_levels) = (batch.mark(), batch.log_bytes, levels.len());
            for ((at, bytes), strongest) in contents.iter().zip(&strongest) {
                batch.add_run(&self.recipe(*way, strongest), *at, bytes, None);
                levels.push((batch.items.len(), batch.level));
            }
            let after = (batch.log_bytes - mark_bytes) as u64;
            if turn + 2 < ways.len() && matches!(self.pick, Pick::Hot) {
                least = least.min(after);
            } else if self.gains(&present, after, *way, least) {
                *gained_bytes += present.bytes.saturating_sub(after);
                break;
            }
            batch.go_back(&mark);
            levels.truncate(mark_levels);
        }
    }

    /// Returns the ways to try, in their order. What was written as large frames may be smaller as such only,
    /// and nothing may be smaller than what is there: then it is settled as it is.
    fn ways(&self, present: &Present) -> &'static [SettleMethod] {
        match self.pick {
            Pick::Unsettled(_, Worth::Any) if !present.are_settled => {
                &[SettleMethod::Strongest, SettleMethod::StrongestLarge, SettleMethod::Usual]
            }
            Pick::Unsettled(_, Worth::Price) if !present.are_settled => {
                &[SettleMethod::Strongest, SettleMethod::StrongestLarge]
            }
            // What was cut gains by frames, whatever the dictionaries are.
            Pick::Again(_) if present.are_single => &[SettleMethod::Single],
            Pick::Unsettled(..) | Pick::Again(_) | Pick::Needing(..) => &[SettleMethod::Strongest],
            Pick::Hot if present.are_settled => &[SettleMethod::Single],
            // To compare with; and if cutting loses too much, it is settled.
            Pick::Hot => &[SettleMethod::Strongest, SettleMethod::Single, SettleMethod::Strongest],
        }
    }

    /// Returns whether `after` bytes in this way are worth writing. `least`: see [`Maker::add_group`].
    fn gains(&self, present: &Present, after: u64, way: SettleMethod, least: u64) -> bool {
        let before = present.bytes;
        match (&self.pick, way) {
            (Pick::Unsettled(_, Worth::Any), _) if !present.are_settled => after <= before,
            (Pick::Unsettled(_, Worth::Price), _) if !present.are_settled => {
                before.saturating_sub(after) * SETTLE_PRICE_MAX >= after
            }
            (Pick::Unsettled(..) | Pick::Again(_), _) => after as f64 * self.gain_min <= before as f64,
            (Pick::Needing(..), _) => true,
            (Pick::Hot, SettleMethod::Single) => after * 8 <= least * GROWTH_MAX_EIGHTHS,
            (Pick::Hot, _) => after <= before,
        }
    }

    /// Returns the recipe of a way, for data with this strongest one.
    fn recipe<'a>(&'a self, way: SettleMethod, strongest: &'a Recipe) -> Cow<'a, Recipe> {
        match way {
            SettleMethod::Strongest => Cow::Borrowed(strongest),
            SettleMethod::StrongestLarge => {
                Cow::Owned(Recipe { frame_blocks: GROUP_BLOCKS, ..strongest.clone() })
            }
            SettleMethod::Single => {
                // Trying costs most in small pieces, and gains least.
                let effort = strongest.effort.map(|_| codec::Effort::Foreground);
                Cow::Owned(Recipe { frame_blocks: 1, effort, ..strongest.clone() })
            }
            SettleMethod::Usual => Cow::Borrowed(&self.usual),
        }
    }
}

impl<M: Media> Shared<M> {
    /// Returns how the host's blocks are compressed, for blocks that are to be small at once.
    pub(crate) fn kept_recipe(&self) -> Recipe {
        Recipe { puts_off: false, ..self.recipe() }
    }

    /// Returns all ways to compress, for use where only the size counts.
    pub(crate) fn all_recipes(self: &Arc<Self>) -> Vec<Recipe> {
        let usual = self.kept_recipe();
        if self.codec() == Policy::None {
            return vec![usual];
        }
        let whole = Recipe { frame_blocks: GROUP_BLOCKS, ..usual.clone() };
        let [with, without] = self.strong_recipes();
        let larger = |recipe: &Recipe| Recipe { frame_blocks: GROUP_BLOCKS, ..recipe.clone() };
        vec![larger(&with), larger(&without), with, without, whole, usual]
    }

    /// Returns how cold blocks with these contents are compressed.
    pub(crate) fn strongest_recipe(self: &Arc<Self>, data: &[u8]) -> Recipe {
        strongest(&self.strong_recipes(), data).clone()
    }

    /// The same as [`Shared::all_recipes`] with dictionaries that are not in use any more, for data that they
    /// fit better.
    pub(crate) fn recipes_of(self: &Arc<Self>, dictionaries: Vec<Dictionary>) -> Vec<Recipe> {
        if dictionaries.is_empty() || !matches!(self.codec(), Policy::Auto | Policy::Zstd(_)) {
            return Vec::new();
        }
        let dictionaries: Arc<[Dictionary]> = dictionaries.into();
        let [strong, _] = self.strong_recipes();
        let usual = self.kept_recipe();
        let of = |recipe: &Recipe, frame_blocks| Recipe {
            frame_blocks,
            dictionaries: dictionaries.clone(),
            ..recipe.clone()
        };
        let sizes = |recipe: &Recipe| [of(recipe, GROUP_BLOCKS), of(recipe, recipe.frame_blocks)];
        sizes(&strong).into_iter().chain(sizes(&usual)).collect()
    }

    /// Returns how cold blocks are compressed: those that a dictionary fits, and others.
    fn strong_recipes(self: &Arc<Self>) -> [Recipe; 2] {
        let effort = self.structure.may().then_some(codec::Effort::Settling);
        let recipe = |(least, frame_blocks), dictionaries| {
            let level = match self.codec() {
                Policy::Zstd(level) => level.max(least),
                _ => least,
            };
            let policy = Policy::Zstd(level);
            Recipe { policy, frame_blocks, dictionaries, settled: true, effort, puts_off: false }
        };
        [recipe(WITH_DICTIONARY, self.dictionaries.active()), recipe(WITHOUT_DICTIONARY, Arc::new([]))]
    }
}

/// Recompressed blocks.
pub(crate) struct Made {
    pub(super) batch: Batch,
    /// Levels: the end of a range of items, and its level.
    pub(super) levels: Vec<(usize, Option<i8>)>,
    /// Difference between the space of the present records and theirs.
    pub(crate) gained_bytes: u64,
}

/// Returns the recipe for data that is to become small: with a dictionary if one fits.
fn strongest<'a>([with, without]: &'a [Recipe; 2], data: &[u8]) -> &'a Recipe {
    if with.dictionary_for(data).is_some() { with } else { without }
}

/// How a group of blocks is settled.
#[derive(Clone, Copy)]
enum SettleMethod {
    /// With the best settings, in frames that are read quickly.
    Strongest,
    /// The same in larger frames.
    StrongestLarge,
    /// The same in single blocks.
    Single,
    /// As it was written.
    Usual,
}

/// Returns the units of records whose first block is in a part of adjacent blocks' entries.
pub(crate) fn occupied_units(entries: &[Entry], part: Range<usize>) -> u64 {
    let is_first = |i: &usize| {
        let near = i.saturating_sub(GROUP_BLOCKS as usize);
        entries[*i].is_record() && !entries[near..*i].contains(&entries[*i])
    };
    part.filter(is_first).map(|i| u64::from(entries[i].units())).sum()
}

/// Returns runs of blocks to settle, none longer than a group.
fn runs_of(entries: &[Entry]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, _) in entries.iter().enumerate().filter(|(_, entry)| entry.is_record()) {
        match runs.last_mut() {
            Some(run) if run.end == i && !i.is_multiple_of(GROUP_BLOCKS as usize) => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}
