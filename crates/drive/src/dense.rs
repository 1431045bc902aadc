//! Writing to a drive that is full: the groups of eight blocks that a write touches are packed anew with it, as small as the drive
//! can.
//!
//! A block that is overwritten alone gives nothing up while its neighbours in a frame live, and takes a record of its own. A full
//! drive could not take it, although the host writes nothing that compresses worse. With its neighbours in one frame again, it
//! takes what it took before.

use layout::BLOCK_BYTES;
use media::Media;

use crate::batch::Batch;
use crate::core::Seen;
use crate::error::Error;
use crate::settle::GROUP_BLOCKS;
use crate::shared::{Drive, yield_now};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A group of blocks that a write covers in part: what is there.
struct Group {
    first: u64,
    contents: Vec<u8>,
    seen: Vec<Seen>,
}

impl<M: Media> Drive<M> {
    /// Fills a batch from the host's bytes, with all other blocks of the groups that they touch, as far as those are data.
    pub(crate) async fn prepare_densely(
        &self,
        batch: &mut Batch,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Error> {
        let end = offset + data.len() as u64;
        let (from, to) = (offset / BLOCK, end.div_ceil(BLOCK));
        let capacity = self.0.core().blocks();
        let recipes = self.0.all_recipes();
        batch.dense = true;
        let mut first = from / GROUP_BLOCKS * GROUP_BLOCKS;
        while first < to {
            let until = (first + GROUP_BLOCKS).min(capacity);
            let whole = offset <= first * BLOCK && until * BLOCK <= end;
            let mut group = match whole {
                true => Group {
                    first,
                    contents: vec![0; (until - first) as usize * BLOCK_BYTES],
                    seen: Vec::new(),
                },
                false => self.read_group(first, until).await?,
            };
            let (begin, stop) = (offset.max(first * BLOCK), end.min(until * BLOCK));
            let at = (begin - first * BLOCK) as usize;
            group.contents[at..at + (stop - begin) as usize]
                .copy_from_slice(&data[(begin - offset) as usize..(stop - offset) as usize]);
            group.add_to(batch, &recipes, (begin / BLOCK, stop.div_ceil(BLOCK)));
            first = until;
            // Compressing as well as the drive can takes its time.
            yield_now().await;
        }
        Ok(())
    }

    async fn read_group(&self, first: u64, until: u64) -> Result<Group, Error> {
        let mut contents = vec![0; (until - first) as usize * BLOCK_BYTES];
        let seen = self.0.read_blocks(first, &mut contents).await?;
        Ok(Group { first, contents, seen })
    }
}

impl Group {
    /// Adds the blocks that are data or were `written` (first, and behind the last).
    fn add_to(&self, batch: &mut Batch, recipes: &[crate::recipe::Recipe], written: (u64, u64)) {
        let count = self.contents.len() / BLOCK_BYTES;
        let belongs = |i: usize| {
            let block = self.first + i as u64;
            (written.0..written.1).contains(&block)
                || self.seen.get(i).is_some_and(|seen| seen.entry.is_record())
        };
        let wanted = (0..count).filter(|i| belongs(*i)).fold(0, |bits, i| bits | 1 << i);
        batch.add_smallest(recipes, self.first, &self.contents, wanted);
        let rely = self.seen.iter().filter(|seen| wanted >> (seen.block - self.first) & 1 != 0);
        batch.expected.extend(rely);
    }
}
