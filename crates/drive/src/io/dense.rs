//! Writing to a full drive: the groups of eight blocks that a write touches are packed anew with it, as small
//! as possible.
//!
//! A block that is overwritten alone frees nothing while its neighbours in a frame live, and takes a record
//! of its own. A full drive could not take it, although the host writes nothing that compresses worse. In one
//! frame with its neighbours again, it takes as much as before; if necessary with a dictionary that was
//! retired since. A group that already holds exactly what is written stays as it is: nothing is smaller.

use codec::Dictionary;
use layout::BLOCK_BYTES;
use media::Media;

use crate::error::Error;
use crate::shared::{Drive, yield_now};
use crate::state::batch::Batch;
use crate::state::batch::Seen;
use crate::state::recipe::Recipe;
use crate::upkeep::make_settled::GROUP_BLOCKS;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The contents of a group of blocks that a write touches.
struct Group {
    first: u64,
    contents: Vec<u8>,
    seen: Vec<Seen>,
}

impl<M: Media> Drive<M> {
    /// Fills a batch from the host's bytes, with all other data blocks of the groups that they touch.
    pub(crate) async fn prepare_densely(
        &self,
        batch: &mut Batch,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Error> {
        // Retired ones if records that need them may still be written.
        let outgoing = self.0.core().dictionaries.outgoing.clone();
        let retired = self.0.dictionaries.retired().into_iter();
        let retired = retired.filter(|dictionary| outgoing.contains(&dictionary.id())).collect();
        self.fill_densely(batch, offset, data, retired).await
    }

    /// Lets retired dictionaries be used again if they make a write smaller than this batch of it. Returns
    /// false if they do not, or if that cannot be recorded on the drive.
    pub(crate) async fn bring_back_dictionaries(
        &self,
        offset: u64,
        data: &[u8],
        batch: &Batch,
    ) -> Result<bool, Error> {
        let retired = self.0.dictionaries.retired();
        if retired.is_empty() {
            return Ok(false);
        }
        let mut smaller = Batch::take();
        self.fill_densely(&mut smaller, offset, data, retired).await?;
        let ids = std::mem::take(&mut smaller.dictionaries);
        let gains = smaller.data_units() < batch.data_units();
        smaller.give_back();
        if gains { self.0.bring_back(ids).await } else { Ok(false) }
    }

    async fn fill_densely(
        &self,
        batch: &mut Batch,
        offset: u64,
        data: &[u8],
        retired: Vec<Dictionary>,
    ) -> Result<(), Error> {
        let end = offset + data.len() as u64;
        let (from, to) = (offset / BLOCK, end.div_ceil(BLOCK));
        let capacity = self.0.core().blocks();
        let mut recipes = self.0.all_recipes();
        recipes.extend(self.0.recipes_of(retired));
        batch.dense = true;
        let mut first = from / GROUP_BLOCKS * GROUP_BLOCKS;
        while first < to {
            let until = (first + GROUP_BLOCKS).min(capacity);
            let (begin, stop) = (offset.max(first * BLOCK), end.min(until * BLOCK));
            let whole = (begin.div_ceil(BLOCK), stop / BLOCK);
            let touched = (begin / BLOCK, stop.div_ceil(BLOCK));
            let mut group = self.read_group((first, until), touched, whole).await?;
            let at = (begin - first * BLOCK) as usize;
            let place = &mut group.contents[at..at + (stop - begin) as usize];
            let new = &data[(begin - offset) as usize..(stop - offset) as usize];
            let same = place == new;
            place.copy_from_slice(new);
            group.add_to(batch, &recipes, touched, same);
            first = until;
            // Compressing as well as the drive can takes a while.
            yield_now().await;
        }
        Ok(())
    }

    /// Reads a group (its first block, and the one after its last). Of the `touched` blocks, those of `whole`
    /// are overwritten and need not be readable. Other blocks that are unreadable stay as they are.
    async fn read_group(
        &self,
        (first, until): (u64, u64),
        touched: (u64, u64),
        whole: (u64, u64),
    ) -> Result<Group, Error> {
        let mut contents = vec![0; (until - first) as usize * BLOCK_BYTES];
        let seen = match self.0.read_blocks(first, &mut contents).await {
            Ok(seen) => seen,
            Err(_) => {
                let mut seen = Vec::new();
                for (block, bytes) in (first..).zip(contents.chunks_exact_mut(BLOCK_BYTES)) {
                    if (whole.0..whole.1).contains(&block) {
                        continue;
                    }
                    match self.0.read_block(block, bytes).await {
                        Ok(what) => seen.push(what),
                        Err(error) if (touched.0..touched.1).contains(&block) => return Err(error),
                        Err(_) => {}
                    }
                }
                seen
            }
        };
        Ok(Group { first, contents, seen })
    }
}

impl Group {
    /// Adds the blocks that are data or were `written` (first, and after the last). `same`: what was written
    /// equals what was there.
    fn add_to(&self, batch: &mut Batch, recipes: &[Recipe], written: (u64, u64), same: bool) {
        let written = written.0..written.1;
        let mapped = self.seen.iter().filter(|seen| !seen.entry.is_unmapped());
        let mapped = mapped.filter(|seen| written.contains(&seen.block));
        if same && mapped.clone().count() as u64 == written.end - written.start {
            batch.expected.extend(mapped);
            return;
        }
        let bit = |block: u64| 1 << (block - self.first);
        let data = self.seen.iter().filter(|seen| seen.entry.is_record()).map(|seen| seen.block);
        let wanted = data.chain(written).fold(0, |bits, block| bits | bit(block));
        let ways = recipes.iter().flat_map(|recipe| [(recipe, false), (recipe, true)]);
        batch.add_smallest(ways, self.first, &self.contents, wanted);
        let rely = self.seen.iter().filter(|seen| wanted >> (seen.block - self.first) & 1 != 0);
        batch.expected.extend(rely);
    }
}
