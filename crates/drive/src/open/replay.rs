//! Roll-forward: reads the packs after a checkpoint, in their order, up to the first that is missing or torn.

use std::collections::BTreeMap;
use std::sync::Arc;

use layout::geometry::{MAX_BLOCKS, OWN_FIRST_BLOCK};
use layout::pack::{HEADS, NextSegment, PACK_HEADER_BYTES, PackAddress, PackHeader, decode_damaged_pack};
use layout::record::{RECORD_HEADER_BYTES, decode_range};
use layout::{
    BLOCK_BYTES, Checkpoint, Entry, Geometry, Head, LEAF_LEVEL, NODE_ENTRIES, NodeId, PAGE_BYTES, ParityForm,
    RecordHeader, RecordKind,
};
use media::{IoBuf, Media};
use space::PACK_HARD_BYTES;

use crate::error::Error;
use crate::medium::load::Bounds;
use crate::planted::{Planted, PlantedBug};

mod mending;
mod remade;
mod vouching;

pub(crate) use mending::MendedPack;
pub(crate) use vouching::was_free;
use vouching::{Proof, Seek};

/// Bytes of a segment read at once: several of the largest packs.
const WINDOW_BYTES: u64 = 4 << 20;
/// Most blocks of one range record. Writers take small steps, and a longer one would use up all memory.
const RANGE_MAX_BLOCKS: u64 = 1 << 20;

/// A change of the map in the log.
#[derive(Clone, Debug)]
pub(crate) enum LoggedChange {
    /// A block, or the blocks of a frame except those left out, have this record.
    Data { block: u64, entry: Entry, left_out: u8 },
    /// Blocks have an entry without a record.
    Range { block: u64, count: u64, entry: Entry },
    /// Changes to a leaf, as of a checkpoint's cut: coding and payload of a valid record, because its pairs
    /// may take two hundred times the memory.
    Overlay { leaf: u64, extra: u16, coding: u8, payload: Box<[u8]> },
}

/// A segment in which packs were found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    pub(crate) last_sequence: u64,
    pub(crate) parity: ParityForm,
}

/// Contents of the log after a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// In the order of the log.
    pub(crate) changes: Vec<LoggedChange>,
    pub(crate) touched: Vec<Touched>,
    /// Places of the packs.
    pub(crate) places: Vec<PackPlace>,
    /// The checkpoint or a pack says that everything up to this number is durable. What says so was written
    /// after a sync that succeeded, so this holds even if what says so is not durable itself.
    pub(crate) vouched: u64,
    /// The same for the checkpoint: a pack knows it.
    pub(crate) checkpoint_vouched: bool,
    /// Beginning of a write whose rest is in the next pack. It counts only together with it.
    held: Vec<LoggedChange>,
    /// Number of the last pack.
    pub(crate) sequence: u64,
    pub(crate) packs_count: u64,
    pub(crate) bytes: u64,
    /// A pack is missing that was once durable: which one, and the proof.
    pub(crate) damage: Option<String>,
    /// The proof is the word of a memory: which pack is missing.
    pub(crate) missed_by_memory: Option<u64>,
    /// Packs of which data was damaged after they were durable.
    pub(crate) damaged: Vec<DamagedPack>,
    /// Packs in the headers of which a bit flipped after they were durable.
    pub(crate) mended: Vec<MendedPack>,
    /// There are packs behind the first missing one. A crash leaves such a gap. So does a failed write of a
    /// pack: then a newer checkpoint replaced that pack before anything behind it was reported durable.
    pub(crate) goes_on: bool,
    /// Places where the log may go on, behind all that was found: segments and offsets.
    pub(crate) ends: Vec<(u32, u32)>,
}

/// What a memory says of the packs that it does not hold, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proven {
    /// Everything up to this one was written.
    pub(crate) written: u64,
    /// Everything up to this one is durable.
    pub(crate) durable: u64,
}

/// A pack that was found. If it is read again with other contents, the medium showed something else before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackPlace {
    pub(crate) position: u64,
    pub(crate) len: u32,
    /// Checksum of the whole pack.
    pub(crate) crc: u32,
}

/// A pack of the log whose headers are right, and so the map they tell, while data in it is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DamagedPack {
    pub(crate) sequence: u64,
    pub(crate) position: u64,
    /// Data records that cannot be read.
    pub(crate) records: u64,
}

/// A pack with right headers, read ahead.
struct Parsed {
    header: PackHeader,
    /// Position on the backing.
    position: u64,
    crc: u32,
    changes: Vec<LoggedChange>,
    /// Contents of its last records: see [`PackHeader::continued`].
    held: Vec<LoggedChange>,
    /// Its checksums are right, but no correct drive writes its contents.
    malformed: bool,
    payloads: Payloads,
    /// What the medium should hold, if its headers had to be mended.
    mended: Option<Arc<IoBuf>>,
    /// Pages of that which were made again from parity.
    remade_pages: u64,
}

/// State of a pack's payloads. A crash leaves packs that are not whole, and so does a medium that lost data
/// in them: [`Reader::vouched`] tells them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payloads {
    Whole,
    /// So many records of data cannot be read. The map that the pack tells is known all the same.
    DataLost(u64),
    /// Part of what it tells is not known. Its header is right, and vouches for others.
    MapLost,
}

impl Parsed {
    fn is_whole(&self) -> bool {
        self.payloads == Payloads::Whole
    }
}

/// What a cursor found behind the last pack of its head.
#[derive(Default)]
enum Peeked {
    /// It has not looked.
    #[default]
    NotYet,
    Nothing,
    Pack(Parsed),
}

/// Expected place of a head's next pack.
struct Cursor {
    head: Head,
    current: NextSegment,
    offset: u32,
    /// Where packs of the current segment end.
    room: u32,
    /// Segments promised to the head in which it was not found yet, in order. More than one if packs of other
    /// heads name a promise made after the head moved on, and the first pack after the move is still to come.
    promised: Vec<NextSegment>,
    next: Peeked,
    /// Part of the current segment: offset in the segment, bytes.
    window: Option<(u32, u32, IoBuf)>,
    /// The window could not be read. These pages of it were made again from parity.
    remade: Vec<u32>,
}

impl Cursor {
    /// Where its next pack may begin: segments and offsets. Behind the room of the current segment there is
    /// parity.
    fn places(&self) -> Vec<(NextSegment, u32)> {
        let current = (self.offset < self.room).then_some((self.current, self.offset));
        let promised = self.promised.iter().map(|promised| (*promised, 0));
        current.into_iter().chain(promised).filter(|(segment, _)| segment.is_some()).collect()
    }
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
    /// The checkpoint needs the packs up to here: the nodes of its map are in them.
    needed: u64,
    /// Number of the last pack taken.
    taken: u64,
    /// Segments that nothing in the log names, by the number of their first pack.
    pub(crate) unannounced: BTreeMap<u64, (Head, NextSegment)>,
    /// What the memory of the newest run says.
    pub(crate) proven: Option<Proven>,
    /// Parity could make something again only if pages could be read that cannot be read now.
    lacks_reads: bool,
    pub(crate) planted: Planted,
}

impl<'a, M: Media> Reader<'a, M> {
    pub(crate) fn new(media: &'a M, bounds: Bounds, checkpoint: &Checkpoint) -> Reader<'a, M> {
        let room_of = |segment: u32| {
            let row = checkpoint.rows.get(segment as usize);
            let parity = row.map_or(ParityForm::None, |row| row.parity);
            if bounds.uses_parity { parity } else { ParityForm::None }
                .room_bytes(bounds.geometry.segment_bytes)
        };
        let cursor = |(head, position): (Head, &layout::HeadPosition)| Cursor {
            head,
            current: position.current,
            offset: position.offset,
            room: room_of(position.current.segment),
            promised: Vec::from_iter(Some(position.next).filter(|next| next.is_some())),
            next: Peeked::NotYet,
            window: None,
            remade: Vec::new(),
        };
        Reader {
            media,
            bounds,
            geometry: bounds.geometry,
            uuid: checkpoint.uuid,
            cursors: Head::ALL.into_iter().zip(&checkpoint.heads).map(cursor).collect(),
            has_unreadable: None,
            needed: checkpoint.durable,
            taken: checkpoint.sequence,
            unannounced: BTreeMap::new(),
            proven: None,
            lacks_reads: false,
            planted: Planted::default(),
        }
    }

    /// Reads from a checkpoint's cut on.
    pub(crate) async fn tail(mut self, checkpoint: &Checkpoint) -> Result<Tail, Error> {
        let mut tail = Tail { sequence: checkpoint.sequence, vouched: checkpoint.durable, ..Tail::default() };
        self.read(checkpoint, &mut tail).await?;
        tail.ends = self.ends();
        Ok(tail)
    }

    async fn read(&mut self, checkpoint: &Checkpoint, tail: &mut Tail) -> Result<(), Error> {
        // Everything up to here was durable.
        let mut durable = checkpoint.durable;
        loop {
            let wanted = tail.sequence + 1;
            if let Some((head, segment)) = self.unannounced.get(&wanted).copied() {
                let cursor = &mut self.cursors[head as usize];
                cursor.promised = vec![segment];
                cursor.next = Peeked::NotYet;
            }
            for i in 0..HEADS {
                self.peek(i).await?;
            }
            let pack = match self.next(wanted) {
                Some((i, is_whole)) => {
                    if !is_whole && durable < wanted && !self.planted.has(PlantedBug::TornPackTaken) {
                        match self.vouched(checkpoint, wanted, Seek::Newest, &mut tail.goes_on).await? {
                            Some(Proof { durable: Some(up_to), .. }) => durable = up_to,
                            Some(Proof { why, durable: None, .. }) => {
                                tail.damage = Some(why);
                                return Ok(());
                            }
                            None => return Ok(()),
                        }
                        // That was about the packs behind this one.
                        tail.goes_on = false;
                    }
                    let Peeked::Pack(pack) = std::mem::take(&mut self.cursors[i].next) else {
                        return Ok(());
                    };
                    match if is_whole { None } else { self.remade(wanted).await } {
                        Some(remade) => remade,
                        None => pack,
                    }
                }
                None => match self.missing(checkpoint, wanted, &mut durable, tail).await? {
                    Some(pack) => pack,
                    None => return Ok(()),
                },
            };
            self.taken = wanted;
            self.step(&pack.header);
            if pack.header.checkpoint > checkpoint.number {
                tail.damage = Some(format!(
                    "pack {wanted} knows checkpoint {}, the newest found is {}",
                    pack.header.checkpoint, checkpoint.number
                ));
                return Ok(());
            }
            if pack.malformed {
                tail.damage = Some(format!("pack {wanted} is whole, but tells what cannot be"));
                return Ok(());
            }
            tail.checkpoint_vouched |= pack.header.checkpoint == checkpoint.number;
            tail.take(pack);
        }
    }

    /// The next pack was not found: the log ends before it, or it was lost after it was durable, which is
    /// noted as damage. If only bits of its headers have flipped since, returns it.
    async fn missing(
        &mut self,
        checkpoint: &Checkpoint,
        wanted: u64,
        durable: &mut u64,
        tail: &mut Tail,
    ) -> Result<Option<Parsed>, Error> {
        if self.planted.has(PlantedBug::LostPacksAccepted) {
            return Ok(None);
        }
        let proof = self.vouched(checkpoint, wanted, Seek::Any, &mut tail.goes_on).await?;
        if proof.is_none() && self.planted.has(PlantedBug::TornTailRemade) {
            return Ok(self.remade(wanted).await);
        }
        let Some(Proof { why, durable: proven, is_of_memory }) = proof else { return Ok(None) };
        self.lacks_reads = false;
        if let Some(proven) = proven
            && let Some(pack) = self.remade(wanted).await
        {
            *durable = proven.max(*durable);
            tail.goes_on = false;
            return Ok(Some(pack));
        }
        if let Some(proven) = proven.filter(|_| !self.planted.has(PlantedBug::FlippedHeaderRefused))
            && let Some(pack) = self.mended(wanted).await
        {
            *durable = proven.max(*durable);
            // That was about the packs behind this one.
            tail.goes_on = false;
            return Ok(Some(pack));
        }
        // A disk reads them now and then.
        tail.damage = Some(match self.lacks_reads {
            true => format!("{why}; parity may have it, but needs pages that cannot be read now"),
            false => why,
        });
        tail.missed_by_memory = is_of_memory.then_some(wanted);
        Ok(None)
    }

    /// Returns where the heads may go on.
    fn ends(&self) -> Vec<(u32, u32)> {
        let mut ends = Vec::new();
        for cursor in &self.cursors {
            ends.extend(cursor.places().into_iter().map(|(segment, offset)| (segment.segment, offset)));
        }
        ends.retain(|(segment, _)| *segment < self.geometry.segments());
        ends
    }

    /// Returns at which cursor the pack with this number is, and whether it is whole.
    fn next(&self, wanted: u64) -> Option<(usize, bool)> {
        let at = |is_whole| {
            let here = |cursor: &Cursor| {
                let Peeked::Pack(pack) = &cursor.next else { return false };
                pack.header.sequence == wanted && pack.is_whole() == is_whole
            };
            self.cursors.iter().position(here).map(|i| (i, is_whole))
        };
        at(true).or_else(|| at(false))
    }

    /// Moves the cursors past a pack.
    fn step(&mut self, header: &PackHeader) {
        for (cursor, next) in self.cursors.iter_mut().zip(header.next) {
            if cursor.head == header.head {
                let current = NextSegment { segment: header.segment, generation: header.generation };
                if cursor.current != current {
                    cursor.current = current;
                    cursor.room = header.parity.room_bytes(self.geometry.segment_bytes);
                    cursor.window = None;
                    let reached = cursor.promised.iter().position(|p| *p == current).map_or(0, |at| at + 1);
                    cursor.promised.drain(..reached);
                }
                cursor.offset = header.offset + header.len;
            }
            if next.is_some() && next != cursor.current && cursor.promised.last() != Some(&next) {
                cursor.promised.push(next);
                if matches!(cursor.next, Peeked::Nothing) {
                    cursor.next = Peeked::NotYet;
                }
            }
            // A whole one was found elsewhere: a crash left this one.
            if let Peeked::Pack(pack) = &cursor.next
                && pack.header.sequence <= header.sequence
            {
                cursor.next = Peeked::NotYet;
            }
        }
    }

    /// Looks for the next pack of a head: behind the last one, else at the beginning of the segment promised
    /// next.
    async fn peek(&mut self, i: usize) -> Result<(), Error> {
        if !matches!(self.cursors[i].next, Peeked::NotYet) {
            return Ok(());
        }
        let (current, offset) = (self.cursors[i].current, self.cursors[i].offset);
        let mut parsed = None;
        if current.is_some() && offset < self.cursors[i].room {
            parsed = self.pack_at(i, current, offset).await?.filter(|pack| self.may_be_next(pack));
        }
        let next = self.cursors[i].promised.first().copied();
        if parsed.is_none()
            && let Some(next) = next.filter(|next| next.segment < self.geometry.segments())
        {
            parsed = self.pack_at(i, next, 0).await?.filter(|pack| self.may_be_next(pack));
        }
        self.cursors[i].next = parsed.map_or(Peeked::Nothing, Peeked::Pack);
        Ok(())
    }

    fn may_be_next(&self, pack: &Parsed) -> bool {
        match pack.payloads {
            Payloads::Whole => true,
            Payloads::DataLost(_) => pack.header.sequence > self.taken,
            Payloads::MapLost => false,
        }
    }

    /// Returns the pack at a place, if its headers are right.
    async fn pack_at(
        &mut self,
        i: usize,
        segment: NextSegment,
        offset: u32,
    ) -> Result<Option<Parsed>, Error> {
        if self.geometry.is_far(segment.segment) {
            return Ok(None);
        }
        let Some(header) = self.header_at(i, segment, offset).await? else { return Ok(None) };
        // The rest of a pack of an earlier filling need not be readable.
        if header.generation != segment.generation {
            return Ok(None);
        }
        let end = u64::from(offset) + u64::from(header.len);
        if end > u64::from(header.parity.room_bytes(self.geometry.segment_bytes))
            || header.len as usize > PACK_HARD_BYTES
        {
            return Ok(None);
        }
        self.cover(i, segment, offset, header.len).await?;
        let Some((_, from, window)) = &self.cursors[i].window else { return Ok(None) };
        let bytes = &window[(offset - from) as usize..];
        if self.planted.has(PlantedBug::IgnoreTornPack) && header.generation == segment.generation {
            return Ok(Some(parse_unchecked(bytes, header, &self.bounds)));
        }
        let pack = self.parse(i, segment, offset, bytes);
        let remade = &self.cursors[i].remade;
        Ok(match remade.is_empty() {
            true => pack,
            false => pack.map(|pack| pack.made_again(bytes, remade)),
        })
    }

    /// Returns the pack at a place of a head's segment with which `bytes` begins, if its headers are right.
    fn parse(&self, i: usize, segment: NextSegment, offset: u32, bytes: &[u8]) -> Option<Parsed> {
        let place = PackAddress {
            uuid: &self.uuid,
            segment: segment.segment,
            generation: segment.generation,
            offset,
        };
        let start = self.geometry.segment_offset(segment.segment) + u64::from(offset);
        let (mut changes, mut held) = (Vec::new(), Vec::new());
        let (mut malformed, mut payloads) = (false, Payloads::Whole);
        let PackHeader { records: mut rest, continued, sequence, .. } = PackHeader::decode(bytes).ok()?;
        let is_needed = sequence <= self.needed;
        let decoded = decode_damaged_pack(bytes, place, |at, record, payload| {
            let to = if rest > continued { &mut changes } else { &mut held };
            rest -= 1;
            if payload.is_none() {
                payloads = payloads.without(&record, is_needed);
            }
            match tell(&record, payload, record.entry_at(start + u64::from(at)), &self.bounds) {
                Ok(one) => to.extend(one),
                Err(()) => malformed = true,
            }
        });
        if payloads != Payloads::Whole && self.planted.has(PlantedBug::DamagedDataRefused) {
            payloads = Payloads::MapLost;
        }
        let header = decoded.ok().filter(|header| header.head == self.cursors[i].head)?;
        let crc = crc32c::crc32c(&bytes[..header.len as usize]);
        Some(Parsed {
            header,
            position: start,
            crc,
            changes,
            held,
            malformed,
            payloads,
            mended: None,
            remade_pages: 0,
        })
    }

    /// Returns the header of what may be a pack.
    async fn header_at(
        &mut self,
        i: usize,
        segment: NextSegment,
        offset: u32,
    ) -> Result<Option<PackHeader>, Error> {
        self.cover(i, segment, offset, PACK_HEADER_BYTES as u32).await?;
        let Some((_, from, window)) = &self.cursors[i].window else { return Ok(None) };
        Ok(PackHeader::decode(&window[(offset - from) as usize..]).ok())
    }

    /// Makes a cursor's window cover a range of a segment.
    async fn cover(&mut self, i: usize, filling: NextSegment, offset: u32, len: u32) -> Result<(), Error> {
        let segment = filling.segment;
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
        let read = match read(first).await {
            // A page further on that cannot be read may be free.
            Err(_) if first > needed => {
                self.has_unreadable = Some(segment);
                read(needed).await
            }
            read => read,
        };
        let (buf, remade) = match read {
            Ok(buf) => (buf, Vec::new()),
            Err(error) => match self.pages_again(filling, offset, needed as u32).await {
                Some((buf, remade)) if buf.len() == needed => (buf, remade),
                _ => return Err(error),
            },
        };
        self.cursors[i].remade = remade;
        self.cursors[i].window = Some((segment, offset, buf));
        Ok(())
    }
}

impl Tail {
    fn take(&mut self, pack: Parsed) {
        self.sequence = pack.header.sequence;
        self.vouched = self.vouched.max(pack.header.durable);
        self.packs_count += 1;
        self.bytes += u64::from(pack.header.len);
        self.places.push(PackPlace { position: pack.position, len: pack.header.len, crc: pack.crc });
        let (sequence, position) = (pack.header.sequence, pack.position);
        if let Some(buf) = pack.mended {
            let (at, remade_pages) = (self.places.len() - 1, pack.remade_pages);
            self.mended.push(MendedPack { at, sequence, position, buf, remade_pages });
        }
        if let Payloads::DataLost(records) = pack.payloads {
            self.damaged.push(DamagedPack { sequence, position, records });
        }
        self.changes.append(&mut self.held);
        self.changes.extend(pack.changes);
        self.held = pack.held;
        let (segment, generation) = (pack.header.segment, pack.header.generation);
        match self.touched.iter_mut().rev().find(|t| t.segment == segment && t.generation == generation) {
            Some(touched) => touched.last_sequence = self.sequence,
            None => self.touched.push(Touched {
                segment,
                generation,
                last_sequence: self.sequence,
                parity: pack.header.parity,
            }),
        }
    }
}

impl Payloads {
    /// After another record was met whose payload is damaged. Data of hosts can be done without, and the log
    /// tells only the place of a node: those behind what the checkpoint needs are of one that was never
    /// completed. Without a dictionary all that was compressed with it would be lost, without a node all
    /// below it, and with the next checkpoint what led to it before.
    fn without(self, record: &RecordHeader, is_needed: bool) -> Payloads {
        let lost = match record.kind {
            RecordKind::Data if record.block < OWN_FIRST_BLOCK => 1,
            RecordKind::Node if !is_needed => 0,
            _ => return Payloads::MapLost,
        };
        match self {
            Payloads::Whole => Payloads::DataLost(lost),
            Payloads::DataLost(records) => Payloads::DataLost(records + lost),
            Payloads::MapLost => Payloads::MapLost,
        }
    }
}

/// Returns the change of the map in a record; nothing for a node, nor for what is told in a payload that is
/// damaged. Fails for what no correct drive writes.
fn tell(
    header: &RecordHeader,
    payload: Option<&[u8]>,
    entry: Entry,
    bounds: &Bounds,
) -> Result<Option<LoggedChange>, ()> {
    let ensure = |holds: bool| if holds { Ok(()) } else { Err(()) };
    let block = header.block;
    Ok(match (header.kind, payload) {
        (RecordKind::Data, _) => {
            ensure(bounds.exists(block, entry.blocks()))?;
            ensure(entry.is_frame() || usize::from(header.payload_len) <= BLOCK_BYTES)?;
            Some(LoggedChange::Data { block, entry, left_out: header.left_out })
        }
        (RecordKind::Range, Some(payload)) => {
            let (count, entry) = decode_range(payload).map_err(drop)?;
            ensure(count <= RANGE_MAX_BLOCKS && bounds.exists(block, count))?;
            Some(LoggedChange::Range { block, count, entry })
        }
        (RecordKind::Overlay, Some(payload)) => {
            let pairs = layout::node::decode_overlay(header.codec, payload).map_err(drop)?;
            let leaf = NodeId { level: LEAF_LEVEL, index: block };
            ensure(block < MAX_BLOCKS / NODE_ENTRIES as u64)?;
            ensure(pairs.iter().all(|(slot, entry)| bounds.allow(leaf, usize::from(*slot), *entry)))?;
            Some(LoggedChange::Overlay {
                leaf: block,
                extra: header.extra,
                coding: header.codec,
                payload: payload.into(),
            })
        }
        (RecordKind::Node, _) | (_, None) => None,
    })
}

/// The planted mistake: accepts a pack by its header, as far as its records can be walked.
fn parse_unchecked(bytes: &[u8], header: PackHeader, bounds: &Bounds) -> Parsed {
    let start = bounds.geometry.segment_offset(header.segment) + u64::from(header.offset);
    let used = &bytes[..header.used as usize];
    let mut changes = Vec::new();
    let _ = layout::pack::walk_records(used, header.records, |at, raw| {
        let decoded = layout::RecordHeader::decode(raw)?;
        let end = RECORD_HEADER_BYTES + usize::from(decoded.payload_len);
        let payload = Some(&raw[RECORD_HEADER_BYTES..end]);
        if let Ok(Some(one)) = tell(&decoded, payload, decoded.entry_at(start + u64::from(at)), bounds) {
            changes.push(one);
        }
        Ok(())
    });
    Parsed {
        header,
        position: start,
        crc: 0,
        changes,
        held: Vec::new(),
        malformed: false,
        payloads: Payloads::Whole,
        mended: None,
        remade_pages: 0,
    }
}
