//! The records that the map points to: none overlaps another. A deep check reads them all.

use codec::CodecId;
use futures::stream::StreamExt;
use layout::Entry;
use media::Media;

use super::own::OwnBlock;
use super::report::{CheckProgress, CheckReport, Fault, Faults};
use super::runs::Fetched;
use super::walk::Met;
use crate::medium::decode::verify_record;
use crate::medium::record_fault::RecordFault;
use crate::shared::Shared;
use crate::state::dictionaries::Dictionaries;

/// Block number of a record that is a map node.
const NODE: u64 = u64::MAX;

/// Place and block of a live record. Each block of a frame has one; they are joined before they are examined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    entry: Entry,
    block: u64,
    /// Number of its live blocks.
    blocks: u16,
}

impl Extent {
    pub(super) fn of(met: &Met) -> Extent {
        match met {
            Met::Block(block, entry) | Met::Owed(block, entry) => {
                Extent { entry: *entry, block: *block, blocks: 1 }
            }
            Met::Node(entry) => Extent { entry: *entry, block: NODE, blocks: 0 },
        }
    }

    fn name(self, dictionaries: &Dictionaries) -> String {
        match self.block {
            NODE => "a map node".to_string(),
            block => match OwnBlock::of(block, dictionaries) {
                Some(own) => own.name,
                None => format!("block {block}"),
            },
        }
    }
}

/// Examines extents, and the records themselves if the check is deep.
pub(super) struct Pass<'a, P> {
    pub(super) deep: bool,
    pub(super) report: &'a mut CheckReport,
    pub(super) faults: &'a mut Faults,
    pub(super) progress: &'a mut P,
    /// Bytes of records verified or found bad so far.
    pub(super) done_bytes: u64,
}

impl<P: FnMut(CheckProgress)> Pass<'_, P> {
    pub(super) async fn run<M: Media>(&mut self, shared: &Shared<M>, mut extents: Vec<Extent>) {
        let superblock = shared.superblock();
        let geometry = superblock.geometry;
        extents.sort_unstable_by_key(|extent| (extent.entry.position_bytes(), extent.block));
        extents.dedup_by(|next, kept| {
            let same = next.entry == kept.entry && next.entry.joins(next.block, kept.block);
            kept.blocks += u16::from(same);
            same
        });
        for pair in extents.windows(2) {
            let (first, second) = (pair[0].entry.position_bytes(), pair[1].entry.position_bytes());
            if first + pair[0].entry.len_bytes() as u64 > second {
                let segment = geometry.locate(first).map(|(segment, _)| segment);
                let what = format!(
                    "the record of {} overlaps that of {} at byte {second:#x}",
                    pair[0].name(&shared.dictionaries),
                    pair[1].name(&shared.dictionaries)
                );
                self.faults.push(Fault { segment, position_bytes: Some(first), ..Fault::new(what) });
            }
        }
        if !self.deep {
            return;
        }
        extents.retain(|extent| extent.block != NODE);
        let entries = extents.iter().map(|extent| extent.entry);
        let mut runs = std::pin::pin!(shared.fetch_all(entries, &geometry));
        while let Some(fetched) = runs.next().await {
            for extent in &extents[fetched.items.clone()] {
                let Extent { block, entry, blocks } = *extent;
                let why = match shared.verify(*extent, &fetched).await {
                    Ok(codec) => {
                        self.report.records_verified_count += u64::from(blocks);
                        let is_known = superblock.codecs >> codec as u8 & 1 == 1;
                        let why = || format!("its codec {codec} is not among those of the superblock");
                        (!is_known).then(why)
                    }
                    Err(why) => Some(why.to_string()),
                };
                if let Some(why) = why {
                    let fault = Fault::of_record(&geometry, &shared.dictionaries, block, entry, &why);
                    self.faults.push(fault);
                }
                self.done_bytes += extent.entry.len_bytes() as u64;
            }
            let total_bytes = self.report.records_bytes;
            (self.progress)(CheckProgress::Records { done_bytes: self.done_bytes, total_bytes });
        }
    }
}

impl<M: Media> Shared<M> {
    /// Verifies one record. Returns its codec.
    async fn verify(&self, extent: Extent, fetched: &Fetched) -> Result<CodecId, RecordFault> {
        let (fetch, memory) = {
            let mut core = self.core();
            (core.fetch(extent.entry), core.log.in_memory(extent.entry))
        };
        let len = extent.entry.len_bytes();
        if let Some(memory) = memory {
            return verify_record(
                &self.dictionaries,
                extent.block,
                memory.bytes(len),
                extent.entry,
                fetch.mask,
            );
        }
        // Its pack may have been on the way to the medium when the run was read: what is wrong is read again.
        let bytes = fetched.bytes_of(extent.entry);
        let verified = bytes
            .map(|bytes| verify_record(&self.dictionaries, extent.block, bytes, extent.entry, fetch.mask));
        if let Some(Ok(codec)) = verified {
            return Ok(codec);
        }
        let verify =
            |buf: &[u8]| verify_record(&self.dictionaries, extent.block, buf, extent.entry, fetch.mask);
        let position = extent.entry.position_bytes();
        let (buf, at) = self.read_range(position, len).await?;
        let verified = verify(&buf[at..at + len]);
        match verified {
            Err(why) => match self.reread(position, len).await {
                Some((buf, at)) => verify(&buf[at..at + len]),
                None => Err(why),
            },
            verified => verified,
        }
    }
}
