//! Roll-forward: reads the packs after a checkpoint, in their order, up to the first that is missing or torn.

use std::collections::{BTreeSet, HashSet};

use layout::geometry::MAX_BLOCKS;
use layout::pack::{HEADS, NextSegment, PACK_HEADER_BYTES, PackHeader, Place, decode_pack};
use layout::record::{RECORD_HEADER_BYTES, decode_range};
use layout::{
    BLOCK_BYTES, Checkpoint, Entry, Geometry, Head, LEAF_LEVEL, NODE_ENTRIES, NodeId, PAGE_BYTES, RecordKind,
    SegmentRow, SegmentUse,
};
use media::{IoBuf, Media};
use space::PACK_HARD_BYTES;

use crate::error::Error;
use crate::medium::load::Bounds;
use crate::open::slots::{Search, first_packs};
use crate::planted::{Planted, PlantedBug};

/// Bytes of a segment read at once: several of the largest packs.
const WINDOW_BYTES: u64 = 4 << 20;
/// Most blocks of one range record. Writers take small steps, and a longer one would use up all memory.
const RANGE_MAX_BLOCKS: u64 = 1 << 20;

/// Most bytes of segments searched for packs behind a gap: twice what a checkpoint's log may fill by default.
const OPENED_MAX_BYTES: u64 = 2 << 30;
/// The same as a number of segments, if they are large: each head has opened a few.
const OPENED_MIN_COUNT: u64 = 64;
/// Most bytes searched of a segment that lies right behind a lost one.
const BEHIND_BYTES_MAX: u32 = 2 << 20;

/// A change of the map in the log.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// A block, or the blocks of a frame except those left out, have this record.
    Data { block: u64, entry: Entry, left_out: u8 },
    /// Blocks have an entry without a record.
    Range { block: u64, count: u64, entry: Entry },
    /// Changes to a leaf, as of a checkpoint's cut: coding and payload of a valid record, because its pairs may take two
    /// hundred times the memory.
    Overlay { leaf: u64, extra: u16, coding: u8, payload: Box<[u8]> },
}

/// A segment in which packs were found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    pub(crate) last_sequence: u64,
}

/// Contents of the log after a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// In the order of the log.
    pub(crate) told: Vec<Told>,
    pub(crate) touched: Vec<Touched>,
    /// Places of the packs.
    pub(crate) places: Vec<PackPlace>,
    /// Beginning of a write whose rest is in the next pack. It counts only together with it.
    held: Vec<Told>,
    /// Number of the last pack.
    pub(crate) sequence: u64,
    pub(crate) packs_count: u64,
    pub(crate) bytes: u64,
    /// A pack is missing that was once durable: which one, and the proof.
    pub(crate) damage: Option<String>,
    /// There are packs behind the first missing one. A crash leaves such a gap. So does a failed write of a pack:
    /// then a newer checkpoint replaced that pack before anything behind it was reported durable.
    pub(crate) goes_on: bool,
}

/// A pack that was found. If it is read again with other contents, the medium showed something else before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackPlace {
    pub(crate) position: u64,
    pub(crate) len: u32,
    /// Checksum of the whole pack.
    pub(crate) crc: u32,
}

/// A whole pack, read ahead.
struct Parsed {
    header: PackHeader,
    /// Position on the backing.
    position: u64,
    crc: u32,
    told: Vec<Told>,
    /// Contents of its last records: see [`PackHeader::continued`].
    held: Vec<Told>,
    /// Its checksums are right, but no correct drive writes its contents.
    malformed: bool,
}

/// Expected place of a head's next pack.
struct Cursor {
    head: Head,
    current: NextSegment,
    offset: u32,
    /// Segments promised to the head in which it was not found yet, in order. More than one if packs of other heads
    /// name a promise made after the head moved on, and the first pack after the move is still to come.
    promised: Vec<NextSegment>,
    /// The pack found there, or `Some(None)` if there is none.
    peeked: Option<Option<Parsed>>,
    /// Part of the current segment: offset in the segment, bytes.
    window: Option<(u32, u32, IoBuf)>,
}

/// Reads the log after checkpoints.
pub(crate) struct Reader<'a, M> {
    media: &'a M,
    bounds: Bounds,
    geometry: Geometry,
    uuid: [u8; 16],
    cursors: Vec<Cursor>,
    /// A segment with an unreadable page. It is read in the smallest pieces possible.
    has_unreadable: Option<u32>,
    pub(crate) planted: Planted,
}

/// Why there may be packs in a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// The log says so.
    Log,
    /// Its first page looks like one. A page that cannot be read may be free.
    Guessed,
}

impl<'a, M: Media> Reader<'a, M> {
    pub(crate) fn new(media: &'a M, bounds: Bounds, checkpoint: &Checkpoint) -> Reader<'a, M> {
        let cursor = |(head, position): (Head, &layout::HeadPosition)| Cursor {
            head,
            current: position.current,
            offset: position.offset,
            promised: Vec::from_iter(Some(position.next).filter(|next| next.is_some())),
            peeked: None,
            window: None,
        };
        Reader {
            media,
            bounds,
            geometry: bounds.geometry,
            uuid: checkpoint.uuid,
            cursors: Head::ALL.into_iter().zip(&checkpoint.heads).map(cursor).collect(),
            has_unreadable: None,
            planted: Planted::default(),
        }
    }

    /// Reads from a checkpoint's cut on.
    pub(crate) async fn tail(mut self, checkpoint: &Checkpoint) -> Result<Tail, Error> {
        let mut tail = Tail { sequence: checkpoint.sequence, ..Tail::default() };
        loop {
            for i in 0..HEADS {
                self.peek(i).await?;
            }
            let wanted = tail.sequence + 1;
            let found = self
                .cursors
                .iter_mut()
                .find(|cursor| matches!(&cursor.peeked, Some(Some(pack)) if pack.header.sequence == wanted));
            let Some(pack) = found.and_then(|cursor| cursor.peeked.take().flatten()) else { break };
            self.step(&pack.header);
            if pack.header.checkpoint > checkpoint.number {
                tail.damage = Some(format!(
                    "pack {wanted} knows checkpoint {}, the newest found is {}",
                    pack.header.checkpoint, checkpoint.number
                ));
                return Ok(tail);
            }
            if pack.malformed {
                tail.damage = Some(format!("pack {wanted} is whole, but tells what cannot be"));
                return Ok(tail);
            }
            tail.take(pack);
        }
        let missing = tail.sequence + 1;
        if self.planted.has(PlantedBug::LostPacksAccepted) {
            return Ok(tail);
        }
        tail.damage = self.vouched(checkpoint, missing, &mut tail.goes_on).await?;
        Ok(tail)
    }

    /// Moves the cursors past a pack.
    fn step(&mut self, header: &PackHeader) {
        for (cursor, next) in self.cursors.iter_mut().zip(header.next) {
            if cursor.head == header.head {
                let current = NextSegment { segment: header.segment, generation: header.generation };
                if cursor.current != current {
                    cursor.current = current;
                    cursor.window = None;
                    let reached = cursor.promised.iter().position(|p| *p == current).map_or(0, |at| at + 1);
                    cursor.promised.drain(..reached);
                }
                cursor.offset = header.offset + header.len;
            }
            if next.is_some() && next != cursor.current && cursor.promised.last() != Some(&next) {
                cursor.promised.push(next);
                if matches!(cursor.peeked, Some(None)) {
                    cursor.peeked = None;
                }
            }
        }
    }

    /// Looks for the next pack of a head: behind the last one, else at the beginning of the segment promised next.
    async fn peek(&mut self, i: usize) -> Result<(), Error> {
        if self.cursors[i].peeked.is_some() {
            return Ok(());
        }
        let (current, offset) = (self.cursors[i].current, self.cursors[i].offset);
        let mut parsed = None;
        if current.is_some() && u64::from(offset) < u64::from(self.geometry.segment_bytes) {
            parsed = self.pack_at(i, current, offset).await?;
        }
        let next = self.cursors[i].promised.first().copied();
        if parsed.is_none()
            && let Some(next) = next.filter(|next| next.segment < self.geometry.segments())
        {
            parsed = self.pack_at(i, next, 0).await?;
        }
        self.cursors[i].peeked = Some(parsed);
        Ok(())
    }

    async fn pack_at(
        &mut self,
        i: usize,
        segment: NextSegment,
        offset: u32,
    ) -> Result<Option<Parsed>, Error> {
        let Some(header) = self.header_at(i, segment.segment, offset).await? else { return Ok(None) };
        let end = u64::from(offset) + u64::from(header.len);
        if end > u64::from(self.geometry.segment_bytes) || header.len as usize > PACK_HARD_BYTES {
            return Ok(None);
        }
        self.cover(i, segment.segment, offset, header.len).await?;
        let Some((_, from, window)) = &self.cursors[i].window else { return Ok(None) };
        let bytes = &window[(offset - from) as usize..];
        let place =
            Place { uuid: &self.uuid, segment: segment.segment, generation: segment.generation, offset };
        if self.planted.has(PlantedBug::IgnoreTornPack) && header.generation == segment.generation {
            return Ok(Some(parse_unchecked(bytes, header, &self.bounds)));
        }
        let start = self.geometry.segment_offset(segment.segment) + u64::from(offset);
        let (mut told, mut held) = (Vec::new(), Vec::new());
        let mut malformed = false;
        let mut rest = header.records;
        let decoded = decode_pack(bytes, place, |at, record| {
            let to = if rest > header.continued { &mut told } else { &mut held };
            rest -= 1;
            match tell(&record, record.header.entry_at(start + u64::from(at)), &self.bounds) {
                Ok(one) => to.extend(one),
                Err(()) => malformed = true,
            }
        });
        match decoded {
            Ok(header) if header.head == self.cursors[i].head => {
                let crc = crc32c::crc32c(&bytes[..header.len as usize]);
                Ok(Some(Parsed { header, position: start, crc, told, held, malformed }))
            }
            _ => Ok(None),
        }
    }

    /// Searches right behind the segments that the log names as next for proof that the missing pack was durable: a
    /// lost stretch of the medium may hold all of such a segment, and the beginning of the one that was opened after
    /// it.
    async fn vouched_behind(&mut self, checkpoint: &Checkpoint, missing: u64) -> Option<String> {
        let known = self.cursors.iter().flat_map(|cursor| cursor.promised.iter().chain([&cursor.current]));
        let known: HashSet<u32> = known.filter(|next| next.is_some()).map(|next| next.segment).collect();
        let behind: BTreeSet<u32> = known.iter().map(|segment| segment + 1).collect();
        let bytes = self.geometry.segment_bytes.min(BEHIND_BYTES_MAX);
        for segment in behind.into_iter().filter(|segment| !known.contains(segment)) {
            if checkpoint.clean || checkpoint.rows.get(segment as usize).is_none_or(|row| !was_free(row)) {
                continue;
            }
            let mut offset = 0;
            while offset < bytes {
                // What cannot be read may be free.
                let found = self.pack_behind(segment, offset, missing).await.ok().flatten();
                let Some(header) = found else {
                    offset += PAGE_BYTES as u32;
                    continue;
                };
                if let Some(why) = vouches(&header, checkpoint, missing) {
                    return Some(why);
                }
                offset += header.len;
            }
        }
        None
    }

    /// Returns the header of a whole pack numbered above the missing one.
    async fn pack_behind(
        &mut self,
        segment: u32,
        offset: u32,
        missing: u64,
    ) -> Result<Option<PackHeader>, Error> {
        let Some(header) = self.header_at(0, segment, offset).await? else { return Ok(None) };
        if header.uuid != self.uuid || header.sequence < missing {
            return Ok(None);
        }
        let filling = NextSegment { segment, generation: header.generation };
        Ok(self.pack_at(header.head as usize, filling, offset).await?.map(|pack| pack.header))
    }

    /// Returns what may be a pack of this filling of a segment, if it is whole.
    async fn candidate(
        &mut self,
        i: usize,
        segment: NextSegment,
        offset: u32,
    ) -> Result<Option<Parsed>, Error> {
        match self.header_at(i, segment.segment, offset).await? {
            Some(header) if header.uuid == self.uuid && header.generation == segment.generation => {
                self.pack_at(i, segment, offset).await
            }
            _ => Ok(None),
        }
    }

    /// Returns the header of what may be a pack.
    async fn header_at(&mut self, i: usize, segment: u32, offset: u32) -> Result<Option<PackHeader>, Error> {
        self.cover(i, segment, offset, PACK_HEADER_BYTES as u32).await?;
        let Some((_, from, window)) = &self.cursors[i].window else { return Ok(None) };
        Ok(PackHeader::decode(&window[(offset - from) as usize..]).ok())
    }

    /// Makes a cursor's window cover a range of a segment.
    async fn cover(&mut self, i: usize, segment: u32, offset: u32, len: u32) -> Result<(), Error> {
        if let Some((of, from, window)) = &self.cursors[i].window
            && *of == segment
            && *from <= offset
            && u64::from(offset) + u64::from(len) <= u64::from(*from) + window.len() as u64
        {
            return Ok(());
        }
        let rest = u64::from(self.geometry.segment_bytes - offset);
        let window = rest.min(WINDOW_BYTES) as usize;
        let needed = (len as usize).next_multiple_of(PAGE_BYTES).min(window);
        let start = self.geometry.segment_offset(segment) + u64::from(offset);
        let media = self.media;
        let read = async |len: usize| {
            let (buf, result) = media.read(start, IoBuf::pooled(len)).await;
            result.map(|()| buf).map_err(|e| Error::io("reading the log", start, &e))
        };
        let first = if self.has_unreadable == Some(segment) { needed } else { window };
        let buf = match read(first).await {
            // A page further on that cannot be read may be free.
            Err(_) if first > needed => {
                self.has_unreadable = Some(segment);
                read(needed).await?
            }
            read => read?,
        };
        self.cursors[i].window = Some((segment, offset, buf));
        Ok(())
    }

    /// Returns the proof that a missing pack was once durable, from the checkpoint or from a pack behind the gap.
    /// Searches everything that follows in the heads' segments and in those named by packs behind the gap, page by
    /// page if no pack leads on. The missing pack may have been the only one to name where the log continues, so
    /// segments that may have been opened since the checkpoint are searched too. Sets `goes_on` if there are packs
    /// behind the gap at all.
    ///
    /// A pack left behind by an earlier run proves nothing here, whatever its number: what it calls durable was found
    /// by the runs since, and their packs are numbered above it.
    async fn vouched(
        &mut self,
        checkpoint: &Checkpoint,
        missing: u64,
        goes_on: &mut bool,
    ) -> Result<Option<String>, Error> {
        if checkpoint.durable >= missing {
            return Ok(Some(format!(
                "pack {missing} is missing or torn, but checkpoint {} says everything up to {} was durable",
                checkpoint.number, checkpoint.durable
            )));
        }
        let mut places = Vec::new();
        for (i, cursor) in self.cursors.iter().enumerate() {
            places.push((i, cursor.current, cursor.offset, Ground::Log));
            places.extend(cursor.promised.iter().map(|promised| (i, *promised, 0, Ground::Log)));
        }
        if let Some(why) = self.vouched_behind(checkpoint, missing).await {
            return Ok(Some(why));
        }
        let maybe = self.opened_since(checkpoint, missing).await?;
        places.extend(maybe.into_iter().map(|(i, segment, offset)| (i, segment, offset, Ground::Guessed)));
        let key = |segment: NextSegment| (segment.segment, segment.generation);
        let mut seen: HashSet<(u32, u32)> = places.iter().map(|place| key(place.1)).collect();
        while let Some((i, segment, from, ground)) = places.pop() {
            if !segment.is_some() || segment.segment >= self.geometry.segments() {
                continue;
            }
            let mut offset = from;
            while offset < self.geometry.segment_bytes {
                // Only at the place where the log names its next pack, a read error must not pass for a free page.
                let may_be_free = ground == Ground::Guessed || checkpoint.clean || offset > from;
                let candidate = match self.candidate(i, segment, offset).await {
                    Err(_) if may_be_free => None,
                    candidate => candidate?,
                };
                let Some(Parsed { header, .. }) = candidate else {
                    offset += PAGE_BYTES as u32;
                    continue;
                };
                if let Some(why) = vouches(&header, checkpoint, missing) {
                    return Ok(Some(why));
                }
                *goes_on |= header.sequence > missing;
                let on = header.next.into_iter().enumerate().filter(|(_, next)| seen.insert(key(*next)));
                places.extend(on.map(|(head, next)| (head, next, 0, ground)));
                offset += header.len;
            }
        }
        Ok(None)
    }
}

impl<M: Media> Reader<'_, M> {
    /// Returns segments that begin with the missing pack or one after it, of those that were free for this log: head
    /// and place. The lowest numbers are handed out first. The missing pack may be there and whole if only a lost
    /// checkpoint led to it: it knows that checkpoint. A damaged pack proves nothing, but those behind it may.
    async fn opened_since(
        &self,
        checkpoint: &Checkpoint,
        missing: u64,
    ) -> Result<Vec<(usize, NextSegment, u32)>, Error> {
        if checkpoint.clean {
            // Nothing was written after it: the next run's first checkpoint comes before its first pack of data.
            return Ok(Vec::new());
        }
        let most = (OPENED_MAX_BYTES / u64::from(self.geometry.segment_bytes)).max(OPENED_MIN_COUNT) as usize;
        let rows = (0..).zip(checkpoint.rows.iter());
        let free = rows.filter(|(_, row)| was_free(row)).map(|(segment, _)| segment);
        let candidates: Vec<u32> = free.take(most).collect();
        let place = (&self.uuid, self.geometry);
        let behind = |header: &PackHeader| header.sequence >= missing;
        let found = first_packs(self.media, place, candidates.into_iter(), behind, Search::All).await?;
        let to_place = |header: PackHeader| {
            let segment = NextSegment { segment: header.segment, generation: header.generation };
            (header.head as usize, segment, 0)
        };
        Ok(found.into_iter().map(to_place).collect())
    }
}

/// Returns whether a segment may have been opened since the checkpoint.
fn was_free(row: &SegmentRow) -> bool {
    row.usage == SegmentUse::Free || row.live_units == 0
}

/// Returns the proof that the missing pack was once durable, if a pack behind the gap gives it.
fn vouches(header: &PackHeader, checkpoint: &Checkpoint, missing: u64) -> Option<String> {
    let gone = format!("pack {missing} is missing or torn");
    if header.checkpoint > checkpoint.number {
        let (pack, known) = (header.sequence, header.checkpoint);
        return Some(format!(
            "{gone}, and pack {pack} knows checkpoint {known}, the newest found is {}",
            checkpoint.number
        ));
    }
    (header.durable >= missing).then(|| {
        format!("{gone}, but pack {} says everything up to {} was durable", header.sequence, header.durable)
    })
}

impl Tail {
    fn take(&mut self, pack: Parsed) {
        self.sequence = pack.header.sequence;
        self.packs_count += 1;
        self.bytes += u64::from(pack.header.len);
        self.places.push(PackPlace { position: pack.position, len: pack.header.len, crc: pack.crc });
        self.told.append(&mut self.held);
        self.told.extend(pack.told);
        self.held = pack.held;
        let (segment, generation) = (pack.header.segment, pack.header.generation);
        match self.touched.iter_mut().rev().find(|t| t.segment == segment && t.generation == generation) {
            Some(touched) => touched.last_sequence = self.sequence,
            None => self.touched.push(Touched { segment, generation, last_sequence: self.sequence }),
        }
    }
}

/// Returns the change of the map in a record; nothing for a node. Fails for what no correct drive writes.
fn tell(record: &layout::record::Record<'_>, entry: Entry, bounds: &Bounds) -> Result<Option<Told>, ()> {
    let ensure = |holds: bool| if holds { Ok(()) } else { Err(()) };
    let block = record.header.block;
    Ok(match record.header.kind {
        RecordKind::Data => {
            ensure(bounds.exists(block, entry.blocks()))?;
            ensure(entry.is_frame() || record.payload.len() <= BLOCK_BYTES)?;
            Some(Told::Data { block, entry, left_out: record.header.left_out })
        }
        RecordKind::Range => {
            let (count, entry) = decode_range(record.payload).map_err(drop)?;
            ensure(count <= RANGE_MAX_BLOCKS && bounds.exists(block, count))?;
            Some(Told::Range { block, count, entry })
        }
        RecordKind::Node => None,
        RecordKind::Overlay => {
            let pairs = layout::node::decode_overlay(record.header.codec, record.payload).map_err(drop)?;
            let leaf = NodeId { level: LEAF_LEVEL, index: block };
            ensure(block < MAX_BLOCKS / NODE_ENTRIES as u64)?;
            ensure(pairs.iter().all(|(slot, entry)| bounds.allow(leaf, usize::from(*slot), *entry)))?;
            let (extra, coding) = (record.header.extra, record.header.codec);
            Some(Told::Overlay { leaf: block, extra, coding, payload: record.payload.into() })
        }
    })
}

/// The planted mistake: accepts a pack by its header, as far as its records can be walked.
fn parse_unchecked(bytes: &[u8], header: PackHeader, bounds: &Bounds) -> Parsed {
    let start = bounds.geometry.segment_offset(header.segment) + u64::from(header.offset);
    let used = &bytes[..header.used as usize];
    let mut told = Vec::new();
    let _ = layout::pack::walk_records(used, header.records, |at, raw| {
        let decoded = layout::RecordHeader::decode(raw)?;
        let end = RECORD_HEADER_BYTES + usize::from(decoded.payload_len);
        let record = layout::record::Record { header: decoded, payload: &raw[RECORD_HEADER_BYTES..end] };
        if let Ok(Some(one)) = tell(&record, decoded.entry_at(start + u64::from(at)), bounds) {
            told.push(one);
        }
        Ok(())
    });
    Parsed { header, position: start, crc: 0, told, held: Vec::new(), malformed: false }
}
