//! Inspects and changes the backing of a drive, with or without correcting checksums.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;

use layout::pack::{PACK_HEADER_BYTES, PackAddress, decode_pack, drive_tag};
use layout::record::place_mask;
use layout::{Checkpoint, Entry, Geometry, PackHeader, RecordHeader, RecordKind, Superblock};
use media::{IoBuf, Media, MemoryMedia};

use crate::common::run;

/// A record on the backing.
#[derive(Clone, Debug)]
pub struct OnMedia {
    pub header: RecordHeader,
    /// Offset of the record on the backing.
    pub position: u64,
    /// Offset of its pack.
    pub pack: u64,
}

impl OnMedia {
    pub fn entry(&self) -> Entry {
        self.header.entry_at(self.position)
    }

    /// Offset of its payload.
    pub fn payload(&self) -> u64 {
        self.position + layout::record::RECORD_HEADER_BYTES as u64
    }
}

pub struct Image<M = MemoryMedia> {
    pub media: Arc<M>,
    pub superblock: Superblock,
}

impl Image {
    pub fn of(media: &Arc<MemoryMedia>) -> Image {
        Image::of_any(media)
    }
}

impl<M: Media> Image<M> {
    pub fn of_any(media: &Arc<M>) -> Image<M> {
        let page = read_raw(&**media, 0, 4096);
        Image { media: media.clone(), superblock: Superblock::decode(&page).expect("superblock") }
    }

    pub fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    /// Reads bytes at any offset.
    pub fn read(&self, position: u64, len: usize) -> Vec<u8> {
        read_raw(&*self.media, position, len)
    }

    /// Overwrites bytes at any offset.
    pub fn write(&self, position: u64, bytes: &[u8]) {
        let start = position / 4096 * 4096;
        let end = (position + bytes.len() as u64).next_multiple_of(4096);
        let mut pages = read_raw(&*self.media, start, (end - start) as usize);
        pages[(position - start) as usize..][..bytes.len()].copy_from_slice(bytes);
        let mut buf = IoBuf::zeroed(pages.len());
        buf.copy_from_slice(&pages);
        run(self.media.write(start, Arc::new(buf))).expect("write");
    }

    pub fn flip_bit(&self, position: u64) {
        let byte = self.read(position, 1)[0];
        self.write(position, &[byte ^ 0x10]);
    }

    pub fn zero(&self, position: u64, len: usize) {
        self.write(position, &vec![0; len]);
    }

    /// All complete packs, of the current or an earlier filling of their segments, in the order of their
    /// numbers.
    pub fn packs(&self) -> Vec<(u64, PackHeader)> {
        let geometry = self.geometry();
        let mut packs = Vec::new();
        for segment in 0..geometry.segments() {
            let start = geometry.segment_offset(segment);
            let bytes = self.read(start, geometry.segment_bytes as usize);
            let mut at = 0;
            while at < bytes.len() {
                let len = PackHeader::decode(&bytes[at..]).ok().and_then(|header| {
                    let place = PackAddress {
                        uuid: &self.superblock.uuid,
                        segment,
                        generation: header.generation,
                        offset: at as u32,
                    };
                    let header = decode_pack(&bytes[at..], place, |_, _| {}).ok()?;
                    packs.push((start + at as u64, header.clone()));
                    Some(header.len as usize)
                });
                at += len.unwrap_or(4096);
            }
        }
        packs.sort_by_key(|(_, header)| header.sequence);
        packs
    }

    /// All records of a kind, oldest first.
    pub fn records(&self, kind: RecordKind) -> Vec<OnMedia> {
        let mut records = Vec::new();
        for (pack, header) in self.packs() {
            let bytes = self.read(pack, header.used as usize);
            layout::pack::walk_records(&bytes, header.records, |at, raw| {
                let header = RecordHeader::decode(raw)?;
                if header.kind == kind {
                    records.push(OnMedia { header, position: pack + u64::from(at), pack });
                }
                Ok(())
            })
            .expect("a whole pack");
        }
        records
    }

    /// Newest record of a block or of an index.
    pub fn newest(&self, kind: RecordKind, block: u64) -> OnMedia {
        self.records(kind).into_iter().rfind(|r| r.header.block == block).expect("such a record")
    }

    /// Newest image of a node.
    pub fn node(&self, level: u16, index: u64) -> OnMedia {
        let is = |r: &OnMedia| r.header.block == index && r.header.extra == level;
        self.records(RecordKind::Node).into_iter().rfind(is).expect("such a node")
    }

    /// Recalculates the checksums of a pack and all its records.
    pub fn seal(&self, pack: u64) {
        let header = PackHeader::decode(&self.read(pack, PACK_HEADER_BYTES)).expect("pack");
        let mut bytes = self.read(pack, header.len as usize);
        let mut places = Vec::new();
        layout::pack::walk_records(&bytes[..header.used as usize], header.records, |at, raw| {
            places.push((at as usize, raw.len()));
            Ok(())
        })
        .expect("records of a pack");
        let tag = drive_tag(&header.uuid);
        let mut crc = 0;
        for (at, len) in places {
            let raw = &mut bytes[at..at + len];
            let record = RecordHeader::decode(raw).expect("record");
            let mask = place_mask(tag, header.segment, header.generation, header.offset + at as u32);
            let sum = layout::record::record_crc(raw, &record) ^ mask;
            raw[..4].copy_from_slice(&sum.to_le_bytes());
            crc = crc32c::crc32c_append(crc, &raw[..16]);
        }
        header.encode(crc, &mut bytes);
        self.write(pack, &bytes);
    }

    /// Changes bytes of a record, and recalculates its checksums.
    pub fn change(&self, record: &OnMedia, position: u64, bytes: &[u8]) {
        self.write(position, bytes);
        self.seal(record.pack);
    }

    /// Changes every valid checkpoint.
    pub fn change_checkpoints(&self, change: impl Fn(&mut Checkpoint)) {
        for (slot, copy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let offset = self.geometry().checkpoint_offset(slot, copy);
            let len = Checkpoint::encoded_len(self.geometry().segments() as usize);
            let Ok(mut checkpoint) = Checkpoint::decode(&self.read(offset, len)) else { continue };
            change(&mut checkpoint);
            let mut bytes = vec![0; len];
            checkpoint.encode(&mut bytes);
            self.write(offset, &bytes);
        }
    }

    /// Number of the newest checkpoint in the slots.
    pub fn newest_checkpoint(&self) -> u64 {
        let newest = std::cell::Cell::new(0);
        self.change_checkpoints(|checkpoint| newest.set(newest.get().max(checkpoint.number)));
        newest.get()
    }

    /// Offsets of the copies of a checkpoint.
    pub fn copies_of(&self, number: u64) -> [u64; 2] {
        [0, 1].map(|copy| self.geometry().checkpoint_offset((number % 2) as usize, copy))
    }
}

fn read_raw(media: &impl Media, position: u64, len: usize) -> Vec<u8> {
    let start = position / 4096 * 4096;
    let end = (position + len as u64).next_multiple_of(4096);
    let (buf, result) = run(media.read(start, IoBuf::zeroed((end - start) as usize)));
    result.expect("read");
    buf[(position - start) as usize..][..len].to_vec()
}
