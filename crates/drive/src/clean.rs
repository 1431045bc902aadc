//! Cleaning: live records move out of a mostly dead segment, compressed bytes as they are, so that it can be freed.

use std::ops::Range;
use std::sync::Arc;

use layout::pack::PackHeader;
use layout::record::{decode_record, place_mask};
use layout::{Entry, Head, NodeId, PAGE_BYTES, RecordHeader, RecordKind};
use media::Media;

use crate::batch::sum;
use crate::core::{Core, UNWRITTEN_MAX_BYTES};
use crate::error::Error;
use crate::log::PACK_HARD_BYTES;
use crate::map::Missing;
use crate::segments::{Claim, State};
use crate::shared::{Shared, yield_now};

/// Bytes of a segment read at once.
const WINDOW_BYTES: usize = 2 << 20;
/// Records moved in one critical section.
const RECORDS_A_STEP: usize = 64;

/// A record found in a segment that is being cleaned.
struct Found {
    header: RecordHeader,
    entry: Entry,
    /// Its bytes in the window.
    bytes: Range<usize>,
    mask: u32,
}

/// A live record, verified and made ready for its new place.
struct Moving {
    header: RecordHeader,
    entry: Entry,
    payload: Range<usize>,
}

/// What became of a batch of records.
enum Step {
    Done,
    Missing(Missing),
    NoSegment,
    Wait,
}

impl<M: Media> Shared<M> {
    /// Empties the segment most worth it. False: there is none, or no room to move anything.
    pub(crate) async fn clean_one(self: &Arc<Self>) -> Result<bool, Error> {
        let (segment, generation, start, end, tag, uuid, pin) = {
            let core = self.core();
            core.writable()?;
            let Some(segment) = core.segments.victim(core.log.sequence()) else { return Ok(false) };
            let geometry = core.geometry();
            let start = geometry.segment_offset(segment);
            let end = start + u64::from(geometry.segment_bytes);
            let generation = core.segments.get(segment).generation;
            (segment, generation, start, end, core.log.tag(), core.superblock.uuid, core.segments.pin(segment))
        };
        let mut at = start;
        let mut damaged = false;
        while at < end && self.core().segments.get(segment).live_units > 0 {
            let len = (WINDOW_BYTES as u64).min(end - at) as usize;
            let (window, _) = self.read_range(at, len).await?;
            let mut found = Vec::new();
            let used = find_records(&window, &uuid, |header, pack, from| {
                let offset = (from as u64 + at - start) as u32;
                let mask = place_mask(tag, segment, generation, offset);
                let right = pack.segment == segment && pack.generation == generation;
                let bytes = from..from + header.record_len();
                if right {
                    let entry = Entry::record(at + from as u64, bytes.len());
                    found.push(Found { header: *header, entry, bytes, mask });
                }
            });
            for batch in found.chunks(RECORDS_A_STEP) {
                match self.move_batch(batch, &window, &mut damaged).await? {
                    true => yield_now().await,
                    false => return Ok(false),
                }
            }
            at += used as u64;
        }
        drop(pin);
        let mut core = self.core();
        let core = &mut *core;
        let row = core.segments.get_mut(segment);
        if damaged && row.state == State::Sealed {
            row.state = State::Damaged;
            core.notes.push(format!(
                "segment {segment} at byte {start:#x} of the backing holds records that cannot be read: it is set aside"
            ));
        } else {
            row.cleaned = true;
        }
        core.counters.segments_cleaned_count += 1;
        Ok(true)
    }

    /// Moves what lives of a batch. False: no room.
    async fn move_batch(self: &Arc<Self>, batch: &[Found], window: &[u8], damaged: &mut bool) -> Result<bool, Error> {
        let mut live = Vec::new();
        loop {
            live.clear();
            let missing = self.core().find_live(batch, &mut live);
            match missing {
                Some(missing) => self.load(missing).await?,
                None => break,
            }
        }
        let mut moving = Vec::with_capacity(live.len());
        for found in live {
            match prepare(&batch[found], window) {
                Some(record) => moving.push(record),
                None => {
                    Self::count(&self.corrupt_records, 1);
                    *damaged = true;
                }
            }
        }
        loop {
            let (step, packs) = {
                let mut core = self.core();
                (core.append_moved(&moving, window), core.log.take_outbox())
            };
            self.write_out(packs);
            match step {
                Step::Done => return Ok(true),
                Step::Missing(missing) => self.load(missing).await?,
                Step::NoSegment => return Ok(false),
                Step::Wait => {
                    self.wait_for(|core| {
                        let free = core.log.unwritten_bytes() <= UNWRITTEN_MAX_BYTES;
                        (free || core.poisoned.is_some()).then_some(())
                    })
                    .await;
                    self.core().writable()?;
                }
            }
        }
    }
}

impl Core {
    /// Which records of a batch are live. Live map nodes are marked for rewriting. Answers what to load first.
    fn find_live(&mut self, batch: &[Found], live: &mut Vec<usize>) -> Option<Missing> {
        for (i, found) in batch.iter().enumerate() {
            match found.header.kind {
                RecordKind::Data => match self.is_live(found.header.block, found.entry) {
                    Ok(true) => live.push(i),
                    Ok(false) => {}
                    Err(missing) => return Some(missing),
                },
                RecordKind::Node => {
                    let id = NodeId { level: found.header.extra as u8, index: found.header.block };
                    let node = self.map.has_image(id, found.entry).and_then(|here| match here {
                        true => self.map.complete(id),
                        false => Ok(false),
                    });
                    match node {
                        Ok(true) => self.map.rewrite(id),
                        Ok(false) => {}
                        Err(missing) => return Some(missing),
                    }
                }
                RecordKind::Range | RecordKind::Overlay => {}
            }
        }
        None
    }

    /// Whether a block's entry is this one. Wants the block's leaf whole: then what changes replaced is accounted too.
    fn is_live(&mut self, block: u64, entry: Entry) -> Result<bool, Missing> {
        if block >= self.blocks() || !self.map.complete(NodeId::leaf_of(block))? {
            return Ok(false);
        }
        let mut live = false;
        self.map.lookup(block, 1, |_, now| live = now == entry)?;
        Ok(live)
    }

    /// Appends records that still live to the cleaning head and points the map to them.
    fn append_moved(&mut self, moving: &[Moving], window: &[u8]) -> Step {
        if self.log.unwritten_bytes() > UNWRITTEN_MAX_BYTES {
            return Step::Wait;
        }
        self.segments.set_map_need(self.map.write_estimate_bytes());
        for record in moving {
            let block = record.header.block;
            match self.is_live(block, record.entry) {
                Ok(true) => {}
                // Moved by this very batch before a load interrupted it, or overwritten.
                Ok(false) => continue,
                Err(missing) => return Step::Missing(missing),
            }
            if self.log.room(Head::Cleaning, record.header.record_len(), Claim::Ordinary, &mut self.segments).is_err() {
                return Step::NoSegment;
            }
            let origin = record.entry.0.to_le_bytes();
            let entry = self.log.append(Head::Cleaning, &record.header, [&origin, &window[record.payload.clone()]]);
            self.publish(block, entry);
            self.records_since_checkpoint += 1;
            self.log.seal_if_full(Head::Cleaning, &mut self.segments);
        }
        Step::Done
    }
}

/// Verifies a record and gives it the header of a moved one.
fn prepare(found: &Found, window: &[u8]) -> Option<Moving> {
    let bytes = &window[found.bytes.clone()];
    let record = decode_record(bytes, found.mask).ok()?;
    let start = found.bytes.start + record.header.payload_offset();
    let mut header = RecordHeader { moved: true, ..record.header };
    sum(&mut header, &found.entry.0.to_le_bytes(), record.payload);
    Some(Moving { header, entry: found.entry, payload: start..start + record.payload.len() })
}

/// Finds the records of all packs in a window of a segment. What is no pack is stepped over page by page: a damaged
/// one must not hide those behind it. Answers how much of the window is done.
fn find_records(
    window: &[u8],
    uuid: &[u8; 16],
    mut each: impl FnMut(&RecordHeader, &PackHeader, usize),
) -> usize {
    let mut at = 0;
    while at < window.len() {
        let Some(pack) = PackHeader::decode(&window[at..]).ok().filter(|p| p.uuid == *uuid) else {
            at += PAGE_BYTES;
            continue;
        };
        let len = pack.len as usize;
        if at + len > window.len() {
            if at > 0 && len <= PACK_HARD_BYTES {
                return at;
            }
            at += PAGE_BYTES;
            continue;
        }
        let walked = layout::pack::walk_records(&window[at..at + pack.used as usize], pack.records, |within, raw| {
            let header = RecordHeader::decode(raw)?;
            each(&header, &pack, at + within as usize);
            Ok(())
        });
        at += if walked.is_ok() { len } else { PAGE_BYTES };
    }
    window.len()
}
