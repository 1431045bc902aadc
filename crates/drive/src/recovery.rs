//! Opening: the newest checkpoint, and the log behind it.

use std::sync::Arc;

use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Checkpoint, Counters, DecodeError, Geometry, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::checkpoint::overlay_extra;
use crate::core::Core;
use crate::error::Error;
use crate::log::Log;
use crate::map::Map;
use crate::node::Slot;
use crate::options::OpenOptions;
use crate::replay::{Reader, Tail, Told};
use crate::segments::{Segments, State};
use crate::shared::{Drive, Shared};

impl<M: Media> Drive<M> {
    /// Opens a drive, recovering from a crash where there was one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if this is no drive, or if something that was durable is missing (see
    /// [`OpenOptions::accept_damage`]).
    pub async fn open(media: Arc<M>, options: OpenOptions) -> Result<Drive<M>, Error> {
        let superblock = read_superblock(&*media).await?;
        if media.size_bytes() < superblock.geometry.physical_size_bytes {
            return Err(Error::Corrupt(format!(
                "the backing has {} bytes, the drive on it needs {}: it was cut short",
                media.size_bytes(),
                superblock.geometry.physical_size_bytes
            )));
        }
        let policy = policy_of(&superblock)?;
        let checkpoint = read_checkpoint(&*media, &superblock).await?;
        #[allow(unused_mut)]
        let mut reader = Reader::new(&*media, superblock.geometry, &checkpoint);
        #[cfg(feature = "planted-bugs")]
        {
            reader.ignore_torn = options.planted_bug == Some(crate::PlantedBug::IgnoreTornPack);
        }
        let tail = reader.tail(&checkpoint).await?;
        let mut read_only = options.read_only.then(|| "opened read-only".to_string());
        if let Some(damage) = &tail.damage {
            if !(options.read_only && options.accept_damage) {
                return Err(Error::Corrupt(format!(
                    "the log is damaged: {damage}; what came after can be given up with --accept-damage --read-only"
                )));
            }
            read_only = Some(format!("the log is damaged: {damage}; writes after it are lost"));
        }
        let core = recover(superblock, checkpoint, tail, &options, read_only)?;
        let read_only = core.read_only.is_some();
        let shared = Shared::new(media, core, policy, &options);
        let drive = Drive(Arc::new(shared));
        if !read_only {
            // Tells of this run's segments; whatever an earlier run left behind the log's end is dead from then on.
            drive.checkpoint().await?;
        }
        Ok(drive)
    }
}

/// The codec a drive was made for.
fn policy_of(superblock: &Superblock) -> Result<codec::Policy, Error> {
    match superblock.codec_policy {
        0 => Ok(codec::Policy::Auto),
        1 => Ok(codec::Policy::Lz4),
        2 => Ok(codec::Policy::Zstd(superblock.codec_level)),
        3 => Ok(codec::Policy::None),
        other => Err(Error::Corrupt(format!("superblock: unknown codec policy {other}"))),
    }
}

/// Numbers of the policies in the superblock: policy and level.
pub(crate) fn policy_numbers(policy: codec::Policy) -> (u8, i8) {
    match policy {
        codec::Policy::Auto => (0, 0),
        codec::Policy::Lz4 => (1, 0),
        codec::Policy::Zstd(level) => (2, level),
        codec::Policy::None => (3, 0),
    }
}

async fn read_pages<M: Media>(media: &M, offset: u64, len: usize) -> Result<IoBuf, Error> {
    if offset + len as u64 > media.size_bytes() {
        return Err(Error::Corrupt("the backing is too small to hold a drive".into()));
    }
    let (buf, result) = media.read(offset, IoBuf::pooled(len)).await;
    result.map(|()| buf).map_err(|e| Error::io("reading", offset, &e))
}

/// The valid copy with the highest update number.
pub(crate) async fn read_superblock<M: Media>(media: &M) -> Result<Superblock, Error> {
    let mut best: Option<Superblock> = None;
    let mut why = Error::Corrupt("no superblock".into());
    for copy in 0..SUPERBLOCK_COPIES {
        let read = match read_pages(media, Geometry::superblock_offset(copy), PAGE_BYTES).await {
            Ok(page) => Superblock::decode(&page).map_err(|e| match e {
                DecodeError::Magic(_) => Error::Corrupt("there is no Pumice drive here".into()),
                other => Error::Corrupt(other.to_string()),
            }),
            Err(error) => Err(error),
        };
        match read {
            Ok(found) if best.as_ref().is_none_or(|b| b.update < found.update) => best = Some(found),
            Ok(_) => {}
            Err(error) if copy == 0 => why = error,
            Err(_) => {}
        }
    }
    best.ok_or(why)
}

/// The valid checkpoint with the highest number.
async fn read_checkpoint<M: Media>(media: &M, superblock: &Superblock) -> Result<Checkpoint, Error> {
    let geometry = superblock.geometry;
    let mut best: Option<Checkpoint> = None;
    let mut why = Error::Corrupt("no valid checkpoint".into());
    for (slot, copy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let offset = geometry.checkpoint_offset(slot, copy);
        let page = match read_pages(media, offset, PAGE_BYTES).await {
            Ok(page) => page,
            Err(error) => {
                why = error;
                continue;
            }
        };
        let Ok(segments) = Checkpoint::decode_segments(&page) else { continue };
        if segments > geometry.max_segments {
            continue;
        }
        let bytes = match read_pages(media, offset, Checkpoint::encoded_len(segments as usize)).await {
            Ok(bytes) => bytes,
            Err(error) => {
                why = error;
                continue;
            }
        };
        if let Ok(found) = Checkpoint::decode(&bytes)
            && found.uuid == superblock.uuid
            && found.number % 2 == slot as u64
            && found.rows.len() == geometry.segments() as usize
            && best.as_ref().is_none_or(|b| b.number < found.number)
        {
            best = Some(found);
        }
    }
    best.ok_or(why)
}

/// Puts the drive's state together from a checkpoint and the log behind it.
fn recover(
    superblock: Superblock,
    checkpoint: Checkpoint,
    tail: Tail,
    options: &OpenOptions,
    read_only: Option<String>,
) -> Result<Core, Error> {
    let geometry = superblock.geometry;
    let mut segments = Segments::new(geometry, options.entropy);
    segments.load(&checkpoint.rows);
    for head in &checkpoint.heads {
        if head.current.is_some() && head.current.segment < segments.count() {
            segments.get_mut(head.current.segment).state = State::Sealed;
        }
    }
    for touched in &tail.touched {
        let row = segments.get_mut(touched.segment);
        row.state = State::Sealed;
        row.generation = touched.generation;
        row.last_sequence = touched.last_sequence;
    }
    let mut map = Map::new(options.map_budget_bytes, superblock.logical_capacity_bytes / layout::BLOCK_BYTES as u64);
    map.set_root_image(checkpoint.root);
    map.live_blocks = checkpoint.live_blocks;
    map.fill_blocks = checkpoint.fill_blocks;
    let mut counters: Counters = checkpoint.counters;
    counters.unclean_opens_count += u64::from(!checkpoint.clean);
    let mut core = Core {
        log: Log::new(superblock.uuid, geometry, tail.sequence, checkpoint.number),
        superblock,
        segments,
        map,
        counters,
        read_only,
        poisoned: None,
        closed: false,
        in_progress: None,
        syncing: false,
        maintaining: false,
        reserved_units: 0,
        checkpoint_bytes: options.checkpoint_bytes.max(64 << 10),
        records_since_checkpoint: 0,
        ticks: 0,
        last_host_tick: 0,
        discard_unsupported: false,
        notes: Vec::new(),
        recovered: crate::status::Recovered {
            packs_count: tail.packs_count,
            log_bytes: tail.bytes,
            clean: checkpoint.clean,
        },
        #[cfg(feature = "planted-bugs")]
        planted_bug: options.planted_bug,
    };
    core.roll_forward(&checkpoint, tail)?;
    core.segments.list_free();
    Ok(core)
}

impl Core {
    fn roll_forward(&mut self, checkpoint: &Checkpoint, tail: Tail) -> Result<(), Error> {
        let blocks = self.blocks();
        let mut overlays = 0;
        let (of_checkpoint, rest): (Vec<Told>, Vec<Told>) =
            tail.told.into_iter().partition(|told| matches!(told, Told::Overlay { .. }));
        for told in of_checkpoint {
            let Told::Overlay { leaf, extra, pairs } = told else { continue };
            // Those of a later checkpoint, never finished, say nothing.
            if extra & !1 == overlay_extra(checkpoint.number, false) {
                overlays += 1;
                self.map.load_overlay(
                    layout::NodeId { level: layout::LEAF_LEVEL, index: leaf },
                    extra & 1 != 0,
                    pairs,
                );
            }
        }
        if overlays != checkpoint.overlay_records && self.read_only.is_none() {
            return Err(Error::Corrupt(format!(
                "checkpoint {} has {} overlay records, {overlays} were found",
                checkpoint.number, checkpoint.overlay_records
            )));
        }
        for told in rest {
            let (block, count) = match &told {
                Told::Data { block, .. } | Told::Moved { block, .. } => (*block, 1),
                Told::Range { block, count, .. } => (*block, *count),
                Told::Overlay { .. } => continue,
            };
            if block.checked_add(count).is_none_or(|end| end > blocks) {
                return Err(Error::Corrupt(format!("the log tells of block {block}, beyond the capacity")));
            }
            match told {
                Told::Data { block, entry } => self.publish(block, entry),
                Told::Moved { block, entry, origin } => {
                    #[cfg(feature = "planted-bugs")]
                    if self.has_bug(crate::PlantedBug::ApplyStaleMove) {
                        self.publish(block, entry);
                        continue;
                    }
                    // Where no change since the checkpoint is known, the map still points to the origin: cleaning
                    // looked before it moved, and what replaces a record later stands later in the log.
                    match self.map.peek(block) {
                        Slot::Known(now) if now != origin => {}
                        Slot::Known(_) | Slot::Unknown => self.publish(block, entry),
                    }
                }
                Told::Range { block, count, entry } => self.publish_range(block, count, entry),
                Told::Overlay { .. } => {}
            }
        }
        Ok(())
    }
}
