//! Shared by the tests of this crate: strategies for valid structures, and a pack put together as the engine
//! does it.

#![allow(dead_code, reason = "every test file uses a part of it")]

use layout::owner::{Process, Role};
use layout::pack::{HEADS, PACK_HEADER_BYTES, PackAddress, drive_tag};
use layout::record::{RECORD_HEADER_BYTES, place_mask};
use layout::superblock::KNOWN_CODECS;
use layout::{
    Checkpoint, Counters, Entry, Features, Geometry, Head, HeadPosition, NextSegment, OwnerPage, PAGE_BYTES,
    PackHeader, ParityForm, RecordHeader, RecordKind, SegmentRow, SegmentUse, Superblock,
};
use proptest::prelude::*;

pub(crate) mod seal;

/// Larger sequence numbers are refused.
pub(crate) const SEQUENCES: std::ops::Range<u64> = 0..1 << 62;

/// Larger counts are refused.
pub(crate) const COUNT_MAX: u64 = 1 << 60;

pub(crate) fn geometry() -> impl Strategy<Value = Geometry> {
    // From 64 MiB to 1 TiB, with the default segments and with others; sizes need not be whole segments.
    let segment = prop_oneof![Just(None), (19..=24_u32).prop_map(|shift| Some(1 << shift))];
    ((64_u64 << 20..1 << 40), segment, parity_form()).prop_filter_map(
        "too few segments",
        |(size, segment, parity)| {
            Geometry::new(size, segment).ok().map(|geometry| Geometry { parity, ..geometry })
        },
    )
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![Just(Entry::UNMAPPED), any::<u32>().prop_map(Entry::fill), record_entry()]
}

pub(crate) fn record_entry() -> impl Strategy<Value = Entry> {
    (0..1_u64 << 49, 1..4096_usize).prop_map(|(position, units)| Entry::record(position * 16, units * 16))
}

pub(crate) fn superblock() -> impl Strategy<Value = Superblock> {
    let blocks = 1..=layout::geometry::OWN_FIRST_BLOCK;
    let codec = any::<(u8, i8, u32)>();
    (any::<[u8; 16]>(), 0..=COUNT_MAX, geometry(), blocks, any::<bool>(), codec, any::<[u64; 6]>()).prop_map(
        |(uuid, update, geometry, blocks, large, (codec_policy, codec_level, codecs), numbers)| {
            Superblock {
                uuid,
                update,
                geometry,
                logical_capacity_bytes: blocks * 4096,
                sector_bytes: if large { 4096 } else { 512 },
                codec_policy,
                codec_level,
                created_unix_seconds: numbers[0],
                endurance_bytes: numbers[3],
                incarnation: numbers[1] % (COUNT_MAX + 1),
                worn_bytes: numbers[2],
                // No incompatible feature is known: none is accepted. The bits of far copies and parity
                // follow the sizes.
                features: Features {
                    incompatible: 0,
                    read_only_compatible: numbers[4] & !Features::FAR_COPIES
                        | u64::from(geometry.far.is_some())
                        | if geometry.parity == ParityForm::None { 0 } else { Features::PARITY },
                    compatible: numbers[5],
                },
                codecs: codecs & KNOWN_CODECS,
            }
        },
    )
}

pub(crate) fn owner_page() -> impl Strategy<Value = OwnerPage> {
    let role = prop::sample::select(Role::ALL.to_vec());
    (role, any::<[[u8; 16]; 5]>(), any::<bool>(), 0..=COUNT_MAX, any::<(u32, [u64; 5])>(), "[!-~]{0,64}")
        .prop_map(
            |(role, [uuid, run, answered, machine_id, boot_id], in_force, sequence, (pid, numbers), host)| {
                OwnerPage {
                    role,
                    in_force,
                    uuid,
                    run,
                    answered,
                    sequence,
                    written_unix_seconds: numbers[0],
                    process: Process {
                        machine_id,
                        boot_id,
                        pid_namespace: numbers[1],
                        pid,
                        started_ticks: numbers[2],
                        backing: [numbers[3], numbers[4]],
                        host,
                    },
                }
            },
        )
}

pub(crate) fn segment_row() -> impl Strategy<Value = SegmentRow> {
    let uses = [SegmentUse::Free, SegmentUse::Used, SegmentUse::Damaged, SegmentUse::Bad];
    let parity = (parity_form(), any::<bool>());
    (any::<[u32; 3]>(), SEQUENCES, prop::sample::select(uses.to_vec()), parity).prop_map(
        |([live_units, generation, repackable_units], last_sequence, usage, (parity, has_parity))| {
            SegmentRow { live_units, generation, last_sequence, repackable_units, usage, parity, has_parity }
        },
    )
}

fn parity_form() -> impl Strategy<Value = ParityForm> {
    prop::sample::select(ParityForm::ALL.to_vec())
}

fn next_segment() -> impl Strategy<Value = NextSegment> {
    prop_oneof![
        Just(NextSegment::NONE),
        any::<(u32, u32)>().prop_map(|(segment, generation)| NextSegment { segment, generation }),
    ]
}

fn head_position() -> impl Strategy<Value = HeadPosition> {
    (next_segment(), any::<u32>(), next_segment()).prop_map(|(current, offset, next)| HeadPosition {
        current,
        offset,
        next,
    })
}

fn counters() -> impl Strategy<Value = Counters> {
    // Every field another number: two that change places are seen.
    any::<[u64; 18]>().prop_map(|n| Counters {
        host_written_bytes: n[0],
        host_read_bytes: n[1],
        physical_written_bytes: n[2],
        physical_read_bytes: n[3],
        cleaning_written_bytes: n[4],
        map_written_bytes: n[5],
        discarded_bytes: n[6],
        flushes_count: n[7],
        segments_cleaned_count: n[8],
        checkpoints_count: n[9],
        read_errors_count: n[10],
        write_errors_count: n[11],
        corrupt_records_count: n[12],
        unclean_opens_count: n[13],
        host_trimmed_bytes: n[14],
        corrected_reads_count: n[15],
        opens_count: n[16],
        powered_seconds: n[17],
    })
}

pub(crate) fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    (
        any::<[u8; 16]>(),
        any::<(u64, bool, u64, u64, u64, u64, u64, u64)>(),
        any::<([u64; 9], [u64; 9])>(),
        (SEQUENCES, SEQUENCES),
        prop_oneof![Just(Entry::UNMAPPED), record_entry()],
        prop::array::uniform3(head_position()),
        counters(),
        prop::collection::vec(segment_row(), 0..600),
    )
        .prop_map(|(uuid, n, (blocks, units), (sequence, durable), root, heads, counters, rows)| {
            Checkpoint {
                uuid,
                number: n.0,
                sequence,
                root,
                clean: n.1,
                may_hold_more: n.0 & 1 != 0,
                written_through: n.0 & 2 != 0,
                memory_boot: n.2.to_le_bytes().repeat(2).try_into().expect("16 bytes"),
                overlay_records: n.2,
                live_blocks: n.3,
                fill_blocks: n.4,
                mix: layout::Mix { blocks, units },
                generations: n.5,
                entropy: n.6,
                earlier_runs: std::array::from_fn(|i| n.6.rotate_left(i as u32) ^ n.7),
                durable,
                superblock_update: n.7,
                heads,
                counters,
                scrub: layout::ScrubMark {
                    begun_unix_seconds: n.0 >> 8,
                    next_block: n.3 >> 8,
                    read_bytes: n.4 >> 8,
                    faults_count: n.5 >> 8,
                    finished_unix_seconds: n.6 >> 8,
                    finished_faults_count: n.7 >> 8,
                },
                rows: rows.into(),
            }
        })
}

/// A checkpoint with these rows, and nothing else in it.
pub(crate) fn checkpoint_of(rows: Vec<SegmentRow>) -> Checkpoint {
    let rows = rows.into();
    Checkpoint {
        uuid: [7; 16],
        number: 1,
        sequence: 0,
        root: Entry::UNMAPPED,
        clean: false,
        may_hold_more: false,
        written_through: false,
        memory_boot: [0; 16],
        overlay_records: 0,
        live_blocks: 0,
        fill_blocks: 0,
        mix: layout::Mix::default(),
        generations: 0,
        entropy: 0,
        earlier_runs: [0; layout::checkpoint::EARLIER_RUNS],
        durable: 0,
        superblock_update: 0,
        heads: [HeadPosition::NONE; HEADS],
        counters: Counters::default(),
        scrub: layout::ScrubMark::default(),
        rows,
    }
}

pub(crate) fn encoded(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut bytes = vec![0xa5; Checkpoint::encoded_len(checkpoint.rows.len())];
    checkpoint.encode(&mut bytes);
    bytes
}

/// A record to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) kind: RecordKind,
    pub(crate) block: u64,
    pub(crate) left_out: u8,
    pub(crate) codec: u8,
    pub(crate) extra: u16,
    pub(crate) payload: Vec<u8>,
}

impl Spec {
    /// Header without a checksum.
    pub(crate) fn header(&self) -> RecordHeader {
        RecordHeader {
            crc: 0,
            block: self.block,
            left_out: self.left_out,
            payload_len: u16::try_from(self.payload.len()).expect("a payload below 64 KiB"),
            kind: self.kind,
            codec: self.codec,
            extra: self.extra,
        }
    }

    /// The record's bytes, with the mask of its place.
    pub(crate) fn encode(&self, mask: u32) -> Vec<u8> {
        let header = self.header();
        let mut bytes = vec![0; header.record_len()];
        header.encode(&mut bytes);
        bytes[RECORD_HEADER_BYTES..][..self.payload.len()].copy_from_slice(&self.payload);
        let crc = layout::record::record_crc(&bytes, &header) ^ mask;
        RecordHeader { crc, ..header }.encode(&mut bytes);
        bytes
    }
}

pub(crate) fn spec() -> impl Strategy<Value = Spec> {
    let payload = || {
        prop_oneof![
            8 => prop::collection::vec(any::<u8>(), 0..300),
            1 => prop::collection::vec(any::<u8>(), 4096),
        ]
    };
    let block = 0..1_u64 << 40;
    let data = (block.clone(), 0..16_u8, 0..4_u8, any::<(u8, bool, u16)>(), payload()).prop_map(
        |(block, codec, blocks_log, (left_out, settled, extra), payload)| Spec {
            kind: RecordKind::Data,
            block: block >> blocks_log << blocks_log,
            // All sets of a frame's blocks but the whole one; of a single block, none.
            left_out: (u16::from(left_out) % ((1 << (1 << blocks_log)) - 1)) as u8,
            codec: codec | blocks_log << 4 | u8::from(settled) << 7,
            extra,
            payload,
        },
    );
    let others = prop::sample::select(vec![RecordKind::Range, RecordKind::Node, RecordKind::Overlay]);
    let other =
        (others, block, any::<(u8, u16)>(), payload()).prop_map(|(kind, block, (codec, extra), payload)| {
            Spec { kind, block, left_out: 0, codec, extra, payload }
        });
    prop_oneof![data, other]
}

/// Place of a pack, in the segments and in the order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) uuid: [u8; 16],
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    pub(crate) offset: u32,
}

impl At {
    pub(crate) fn place(&self) -> PackAddress<'_> {
        PackAddress {
            uuid: &self.uuid,
            segment: self.segment,
            generation: self.generation,
            offset: self.offset,
        }
    }

    pub(crate) fn mask(&self, at: usize) -> u32 {
        let at = u32::try_from(at).expect("an offset in a pack");
        place_mask(drive_tag(&self.uuid), self.segment, self.generation, self.offset + at)
    }
}

pub(crate) fn at() -> impl Strategy<Value = At> {
    (any::<[u8; 16]>(), any::<(u32, u32)>(), 0..1000_u32).prop_map(|(uuid, (segment, generation), page)| At {
        uuid,
        segment,
        generation,
        offset: page * PAGE_BYTES as u32,
    })
}

#[derive(Clone, Debug)]
pub(crate) struct Pack {
    pub(crate) at: At,
    pub(crate) header: PackHeader,
    pub(crate) specs: Vec<Spec>,
    pub(crate) bytes: Vec<u8>,
    records_crc: u32,
}

impl Pack {
    /// The same pack, the last so many records of which have the rest of their write in the next one.
    pub(crate) fn continued(mut self, records: u32) -> Pack {
        self.header.continued = records;
        self.header.encode(self.records_crc, &mut self.bytes);
        self
    }
}

/// Puts a pack together as the engine does: records behind the room for the header, their headers summed in
/// order, the header last.
pub(crate) fn pack_of(
    at: At,
    head: Head,
    numbers: [u64; 3],
    next: [NextSegment; HEADS],
    specs: Vec<Spec>,
) -> Pack {
    let mut bytes = vec![0; PACK_HEADER_BYTES];
    let mut records_crc = 0;
    for spec in &specs {
        let raw = spec.encode(at.mask(bytes.len()));
        records_crc = crc32c::crc32c_append(records_crc, &raw[..RECORD_HEADER_BYTES]);
        bytes.extend_from_slice(&raw);
    }
    let used = bytes.len();
    bytes.resize(used.next_multiple_of(PAGE_BYTES), 0);
    let header = PackHeader {
        head,
        uuid: at.uuid,
        segment: at.segment,
        generation: at.generation,
        offset: at.offset,
        len: bytes.len() as u32,
        used: used as u32,
        records: specs.len() as u32,
        sequence: numbers[0],
        durable: numbers[1],
        checkpoint: numbers[2],
        next,
        continued: 0,
        parity: ParityForm::ALL[specs.len() % 4],
    };
    header.encode(records_crc, &mut bytes);
    Pack { at, header, specs, bytes, records_crc }
}

/// A memory of a run with this pack, sealed, and an open one with its records, in units of a page.
pub(crate) fn memory_with(pack: &Pack) -> Vec<u8> {
    use layout::memory::{self, MemoryHeader};
    let pages = pack.bytes.len() / PAGE_BYTES;
    let units = 2 * pages + 1;
    let header = MemoryHeader {
        boot: [3; 16],
        log_id: pack.at.uuid,
        entropy: 5,
        units: units as u32,
        unit_bytes: PAGE_BYTES as u32,
        begins_behind: 2,
    };
    let table = MemoryHeader::table_bytes(units);
    let mut bytes = vec![0; table + units * PAGE_BYTES];
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    header.words().into_iter().enumerate().for_each(|(i, word)| put(i * 8, word));
    put(memory::CHECKPOINT_AT, 3);
    put(memory::SEQUENCE_AT, pack.header.sequence);
    put(memory::state_at(1), memory::sealed_state(pack.header.sequence, true));
    let open = memory::state_at(1 + pages);
    let place = NextSegment { segment: pack.at.segment, generation: pack.at.generation };
    let [segment, offset] = memory::place_words(place, pack.at.offset, pack.header.parity);
    put(open, memory::OPEN);
    put(open + 8, memory::fill_word(pack.header.used as usize, pack.header.records));
    put(open + 16, segment);
    put(open + 24, offset);
    for unit in [1, 1 + pages] {
        bytes[table + unit * PAGE_BYTES..][..pack.bytes.len()].copy_from_slice(&pack.bytes);
    }
    bytes
}

pub(crate) fn pack() -> impl Strategy<Value = Pack> {
    (
        at(),
        prop::sample::select(Head::ALL.to_vec()),
        [SEQUENCES, SEQUENCES, 0..u64::MAX],
        prop::array::uniform3(next_segment()),
        prop::collection::vec(spec(), 0..12),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(at, head, numbers, next, specs, continued)| {
            let continued = if head == Head::Host { continued.index(specs.len() + 1) as u32 } else { 0 };
            pack_of(at, head, numbers, next, specs).continued(continued)
        })
}

/// A small pack with a record of every kind, always the same.
pub(crate) fn sample_pack() -> Pack {
    let at = At { uuid: *b"a drive's own id", segment: 5, generation: 0xdead_beef, offset: 3 * 4096 };
    let spec = |kind, block, payload: &[u8]| Spec {
        kind,
        block,
        left_out: 0,
        codec: 1,
        extra: 0,
        payload: payload.to_vec(),
    };
    let range = layout::record::encode_range(70, Entry::fill(0x2020_2020));
    let mut pairs = Vec::new();
    layout::node::encode_pairs([(3, Entry::UNMAPPED), (511, Entry::fill(7))].into_iter(), &mut pairs);
    let specs = vec![
        spec(RecordKind::Data, 1 << 35, b"some compressed bytes"),
        Spec {
            left_out: 0b0100_0010,
            codec: 0x32,
            extra: 7,
            ..spec(RecordKind::Data, 16, b"a frame of eight blocks, with a dictionary")
        },
        spec(RecordKind::Range, 4096, &range),
        spec(RecordKind::Node, 17, &pairs),
        spec(RecordKind::Overlay, 18, &pairs),
        spec(RecordKind::Data, 77, b""),
    ];
    let next = [
        NextSegment { segment: 6, generation: 11 },
        NextSegment::NONE,
        NextSegment { segment: 8, generation: 0xffff_ffff },
    ];
    pack_of(at, Head::Host, [1000, 990, 12], next, specs)
}
