//! Creating a new drive.

use std::sync::Arc;

use codec::CodecId;
use layout::checkpoint::EARLIER_RUNS;
use layout::superblock::SUPERBLOCK_COPIES;
use layout::{
    Checkpoint, Counters, Entry, Features, Geometry, HeadPosition, PAGE_BYTES, Rows, SegmentRow, Superblock,
};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::open::copies::{sync, write};
use crate::open::far::left_behind;
use crate::open::whole::write_one;
use crate::options::CreateOptions;
use crate::shared::Drive;
use crate::state::policy::policy_numbers;

impl<M: Media> Drive<M> {
    /// Writes an empty drive to `media`. Previous contents are lost.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for impossible sizes; nothing was written then.
    pub async fn create(media: &M, options: &CreateOptions) -> Result<(), Error> {
        let geometry = options.validate(media.size_bytes())?;
        let geometry = match options.far_copies {
            Some(true) => geometry,
            _ if takes_far_copies(media, &geometry).await? => geometry,
            _ => Geometry { far: None, ..geometry },
        };
        let (codec_policy, codec_level) = policy_numbers(options.codec);
        let superblock = Superblock {
            uuid: options.uuid,
            update: 1,
            geometry,
            logical_capacity_bytes: options.logical_capacity_bytes,
            sector_bytes: options.sector_bytes,
            codec_policy,
            codec_level,
            created_unix_seconds: options.created_unix_seconds,
            endurance_bytes: options.endurance_bytes,
            incarnation: 0,
            worn_bytes: 0,
            features: Features {
                read_only_compatible: if geometry.far.is_some() { Features::FAR_COPIES } else { 0 },
                compatible: if options.keep_allocated { Features::KEEP_ALLOCATED } else { 0 },
                ..Features::default()
            },
            codecs: codecs_of(options.codec, false),
        };
        // First, nothing may look like a drive; then everything but the superblock is written, and the
        // superblock last. A power cut leaves no drive, never half of one.
        let blank = Arc::new(IoBuf::zeroed(PAGE_BYTES));
        for place in geometry.superblock_places() {
            write(media, place, blank.clone()).await?;
        }
        // Nor may far copies of what was here before be taken for those of this drive when it lost its start.
        for place in left_behind(media, geometry.physical_size_bytes).await {
            match write(media, place, blank.clone()).await {
                // It will be refused as a second drive, or for what the segments hold by then.
                Err(Error::Io(error)) => tracing::warn!("what may be a copy of another drive stays: {error}"),
                written => written?,
            }
        }
        sync(media).await?;
        let checkpoint = empty_checkpoint(&superblock, 1, blank_rows(&geometry));
        for copy in 0..geometry.copies() {
            write(media, geometry.checkpoint_offset(0, copy), blank.clone()).await?;
            write_one(media, geometry.checkpoint_offset(1, copy), &checkpoint).await?;
        }
        sync(media).await?;
        let mut page = IoBuf::zeroed(PAGE_BYTES);
        page.copy_from_slice(&superblock.encode());
        let page = Arc::new(page);
        for place in geometry.superblock_places() {
            write(media, place, page.clone()).await?;
        }
        sync(media).await
    }
}

/// Returns whether the medium takes far copies. They are not worth failing for.
async fn takes_far_copies<M: Media>(media: &M, geometry: &Geometry) -> Result<bool, Error> {
    let Some(far) = geometry.far else { return Ok(true) };
    let blank = Arc::new(IoBuf::zeroed(PAGE_BYTES));
    let slots = [0, 1].map(|slot| geometry.checkpoint_offset(slot, SUPERBLOCK_COPIES));
    for place in slots.into_iter().chain([Geometry::far_superblock_offset(far)]) {
        let written = async {
            write(media, place, blank.clone()).await?;
            sync(media).await
        };
        match written.await {
            Err(Error::Io(error)) => {
                tracing::warn!("the drive gets no far copies: {error}");
                return Ok(false);
            }
            written => written?,
        }
    }
    Ok(true)
}

/// Rows of a drive without contents.
pub(crate) fn blank_rows(geometry: &Geometry) -> Rows {
    let mut rows = Rows::blank(geometry.segments() as usize);
    for segment in geometry.far_segments() {
        rows[segment as usize] = SegmentRow::ASIDE;
    }
    rows
}

/// Returns the codecs that records may have with this policy, one bit each: Zstandard by settling, LZ4 in a
/// hurry, uncompressed; devices make DEFLATE.
pub(crate) fn codecs_of(policy: codec::Policy, has_offload: bool) -> u32 {
    let usual = [CodecId::Raw, CodecId::Lz4, CodecId::Zstd];
    let deflate = (matches!(policy, codec::Policy::Deflate(_)) || has_offload).then_some(CodecId::Deflate);
    usual.into_iter().chain(deflate).fold(0, |bits, id| bits | 1 << id as u8)
}

/// Returns the checkpoint of a drive without contents.
pub(crate) fn empty_checkpoint(superblock: &Superblock, number: u64, rows: Rows) -> Checkpoint {
    Checkpoint {
        uuid: superblock.log_id(),
        number,
        sequence: 0,
        root: Entry::UNMAPPED,
        clean: true,
        may_hold_more: true,
        written_through: false,
        memory_boot: [0; 16],
        overlay_records: 0,
        live_blocks: 0,
        mix: layout::Mix::default(),
        fill_blocks: 0,
        generations: 0,
        entropy: 0,
        earlier_runs: [0; EARLIER_RUNS],
        durable: 0,
        superblock_update: superblock.update,
        heads: [HeadPosition::NONE; 3],
        counters: Counters::default(),
        scrub: layout::ScrubMark::default(),
        rows,
    }
}
