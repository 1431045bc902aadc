//! The numbers of `docs/reference/format.md`: whoever changes the format sees here what to change there.

use layout::node::{NodeCoding, NodeId};
use layout::pack::{PACK_HEADER_BYTES, PackAddress, decode_pack, drive_tag};
use layout::record::{RecordHeader, place_mask, record_crc};
use layout::row::ROW_BYTES;
use layout::superblock::KNOWN_CODECS;
use layout::table::{ROWS_A_PAGE, encode_page, table_crc, table_pages};
use layout::{
    ATOMIC_WRITE_BYTES, BLOCK_BYTES, Checkpoint, Entry, FORMAT_VERSION, Features, Geometry, Head, Mix,
    NextSegment, PackHeader, RecordKind, SegmentRow, SegmentUse, UNIT_BYTES,
};

const UUID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const SEGMENT: u32 = 29;
const GENERATION: u32 = 0x0a0b_0c0d;
const OFFSET: u32 = 8192;

/// The pack of the example: one data record, block 300, of five bytes said to be LZ4.
const EXAMPLE: [u8; 144] = [
    0x50, 0x41, 0x43, 0x4b, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, //
    0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x1d, 0x00, 0x00, 0x00, 0x0d, 0x0c, 0x0b, 0x0a, //
    0x00, 0x20, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, //
    0xe8, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xde, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1e, 0x00, 0x00, 0x00, 0x04, 0x03, 0x02, 0x01, //
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0x1f, 0x00, 0x00, 0x00, 0x08, 0x07, 0x06, 0x05, //
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x31, 0x7a, 0xd4, 0x2e, //
    0x72, 0x6c, 0x7f, 0x5c, 0x2c, 0x01, 0x00, 0x00, 0x00, 0x00, 0x05, 0x00, 0x01, 0x01, 0x00, 0x00, //
    0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

#[test]
fn checksum_is_crc32c() {
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn place_mask_of_the_example() {
    assert_eq!(drive_tag(&UUID), 0xd9c9_08eb);
    assert_eq!(place_mask(0xd9c9_08eb, SEGMENT, GENERATION, OFFSET + 112), 0x84bc_ceb8);
}

#[test]
fn pack_of_the_example() {
    let mut pack = [0; 4096];
    let header = RecordHeader {
        crc: 0,
        block: 300,
        left_out: 0,
        payload_len: 5,
        kind: RecordKind::Data,
        codec: 1,
        extra: 0,
    };
    let record = &mut pack[PACK_HEADER_BYTES..][..header.record_len()];
    header.encode(record);
    record[16..21].copy_from_slice(b"hello");
    let crc = record_crc(record, &header);
    assert_eq!(crc, 0xd8c3_a2ca);
    RecordHeader { crc: crc ^ 0x84bc_ceb8, ..header }.encode(record);
    let records_crc = crc32c::crc32c(&record[..16]);
    let header = PackHeader {
        head: Head::Host,
        uuid: UUID,
        segment: SEGMENT,
        generation: GENERATION,
        offset: OFFSET,
        len: 4096,
        used: 144,
        records: 1,
        sequence: 1000,
        durable: 990,
        checkpoint: 12,
        next: [
            NextSegment { segment: 30, generation: 0x0102_0304 },
            NextSegment::NONE,
            NextSegment { segment: 31, generation: 0x0506_0708 },
        ],
        continued: 0,
        parity: layout::ParityForm::None,
    };
    header.encode(records_crc, &mut pack);
    assert_eq!(pack[..144], EXAMPLE);
    let place = PackAddress { uuid: &UUID, segment: SEGMENT, generation: GENERATION, offset: OFFSET };
    let mut told = Vec::new();
    assert_eq!(decode_pack(&pack, place, |at, record| told.push((at, record.header.block))), Ok(header));
    assert_eq!(told, [(112, 300)]);
}

/// A table of one row.
#[test]
fn table_of_the_example() {
    let row = SegmentRow {
        live_units: 1000,
        generation: GENERATION,
        last_sequence: 1000,
        repackable_units: 24,
        usage: SegmentUse::Used,
        ..SegmentRow::BLANK
    };
    let mut page = [0xff; 4096];
    assert_eq!(encode_page(0, &[row], &mut page), 0xe9e6_eeb3);
    let expected = [
        0xb3, 0xee, 0xe6, 0xe9, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, //
        0xe8, 0x03, 0x00, 0x00, 0x0d, 0x0c, 0x0b, 0x0a, 0xe8, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, //
        0x18, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
    ];
    assert_eq!(page[..40], expected);
    assert_eq!(page[40..], [0; 4056]);
    assert_eq!((table_crc(&[0xe9e6_eeb3]), table_crc(&[])), (0x8b50_9730, 0));
}

/// Bytes of a checkpoint's header page.
#[test]
fn classes_are_from_byte_400_on() {
    let mix = Mix {
        blocks: [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
        units: [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28],
    };
    let checkpoint = Checkpoint { mix, ..crate::common::checkpoint_of(Vec::new()) };
    let mut page = [0xff; 4096];
    checkpoint.encode(&mut page);
    for class in 0..9 {
        assert_eq!(
            page[400 + 16 * class..][..16],
            [[0x10 + class as u8, 0, 0, 0, 0, 0, 0, 0], [0x20 + class as u8, 0, 0, 0, 0, 0, 0, 0],].concat()
        );
    }
    assert_eq!(page[544..], [0; 4096 - 544]);
    let of = |entry: Entry| (entry.class(), entry.settled().class());
    assert_eq!(Entry::record(4096, 4112).class(), 0);
    assert_eq!(of(Entry::record(4096, 64)), (1, 5));
    assert_eq!([2, 4, 8].map(|blocks| of(Entry::frame(4096, 64, blocks))), [(2, 6), (3, 7), (4, 8)]);
}

#[test]
fn versions_and_bits() {
    assert_eq!((FORMAT_VERSION, KNOWN_CODECS, Features::KEEP_ALLOCATED), (3, 0b1_1111, 1));
    assert_eq!(EXAMPLE[4], 2);
}

#[test]
fn entries_of_the_example() {
    let geometry = Geometry::new(10 << 30, None).expect("ten GiB");
    let position = geometry.segment_offset(SEGMENT) + u64::from(OFFSET) + 112;
    assert_eq!((position, position / 16), (123_740_272, 7_733_767));
    assert_eq!(Entry::record(position, 32), Entry(0x4008_0000_0076_0207));
    assert_eq!(Entry::fill(0x2020_2020), Entry(0x8000_0000_2020_2020));
    assert_eq!(Entry::MAX_LEN_BYTES, 65_520);
}

/// (physical size, MiB a segment, segments, most segments, bytes of a checkpoint area, first byte of
/// segment 0)
#[test]
fn geometries_of_the_table() {
    let table = [
        (25 << 20, 1, 24, 100, 8192, 1_048_576),
        (1 << 30, 4, 255, 1024, 32_768, 1_048_576),
        (10 << 30, 4, 2559, 10_240, 253_952, 2_097_152),
        (256 << 30, 16, 16_383, 65_536, 1_585_152, 7_340_032),
        (1 << 40, 16, 65_534, 262_144, 6_324_224, 26_214_400),
        (4 << 40, 64, 65_535, 262_144, 6_324_224, 26_214_400),
        (64 << 40, 64, 1_048_569, 4_194_304, 101_064_704, 404_750_336),
    ];
    for (size, mib, segments, most, area, first) in table {
        let g = Geometry::new(size, None).expect("a size of the table");
        let found = (
            g.segment_bytes >> 20,
            g.segments(),
            g.max_segments,
            g.checkpoint_area_bytes(),
            g.segments_offset(),
        );
        assert_eq!(found, (mib, segments, most, area, first), "{size} bytes");
    }
}

#[test]
fn smallest_drives() {
    let smallest = |segment| (1..).map(|page| page * 4096).find(|size| Geometry::new(*size, segment).is_ok());
    assert_eq!(smallest(None), Some(25 << 20));
    assert_eq!(smallest(Some(512 << 10)), Some(13 << 20));
}

#[test]
fn ten_gib_leaves_two_mib_behind_its_last_segment() {
    let geometry = Geometry::new(10 << 30, None).expect("ten GiB");
    assert_eq!(geometry.physical_size_bytes - geometry.segment_offset(2559), 2 << 20);
    assert_eq!((Checkpoint::encoded_len(2559), table_pages(2559)), (69_632, 16));
    let grown = Geometry { physical_size_bytes: 40 << 30, ..geometry };
    assert_eq!((grown.validate(), grown.segments()), (Ok(()), 10_239));
}

#[test]
fn lengths() {
    assert_eq!((BLOCK_BYTES, UNIT_BYTES, PACK_HEADER_BYTES, ATOMIC_WRITE_BYTES), (4096, 16, 112, 262_144));
    assert_eq!((ROWS_A_PAGE, ROW_BYTES), (170, 24));
    let raw = RecordHeader {
        crc: 0,
        block: 0,
        left_out: 0,
        payload_len: 4096,
        kind: RecordKind::Data,
        codec: 0,
        extra: 0,
    };
    assert_eq!(raw.record_len(), 4112);
    assert_eq!(RecordHeader { codec: 0x32, payload_len: 13_000, ..raw }.record_len(), 13_024);
}

#[test]
fn numbers_of_codings_and_leaves() {
    assert_eq!([NodeCoding::Dense, NodeCoding::Sparse, NodeCoding::Runs].map(|c| c as u8), [0, 1, 2]);
    assert_eq!(NodeId::leaf_of(1 << 30).index, 2_097_152);
}

#[test]
fn owner_pages_are_where_the_page_says() {
    use layout::owner::Role;
    let offsets = [0, 1].map(|copy| Role::ALL.map(|role| Geometry::owner_page_offset(copy, role)));
    assert_eq!(offsets, [[16_384, 20_480, 24_576], [81_920, 86_016, 90_112]]);
    let page = layout::OwnerPage {
        role: Role::Mark,
        in_force: true,
        uuid: UUID,
        run: [0x11; 16],
        answered: [0x22; 16],
        sequence: 0x0102,
        written_unix_seconds: 0x0304,
        process: layout::owner::Process {
            machine_id: [0x33; 16],
            boot_id: [0x44; 16],
            pid_namespace: 0x0506,
            pid: 0x0708,
            started_ticks: 0x090a,
            backing: [0x0b0c, 0x0d0e],
            host: "store".into(),
        },
    }
    .encode();
    for (at, bytes) in [
        (0, &b"PUMOWNER\x01\x01\0\0"[..]),
        (16, &UUID),
        (32, &[0x11; 16]),
        (48, &[0x22; 16]),
        (64, &[2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]),
        (80, &[0x33; 16]),
        (96, &[0x44; 16]),
        (112, &[6, 5, 0, 0, 0, 0, 0, 0, 10, 9, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 5, 0, 0, 0]),
        (136, &[12, 11, 0, 0, 0, 0, 0, 0, 14, 13, 0, 0, 0, 0, 0, 0]),
        (152, b"store\0"),
    ] {
        assert_eq!(&page[at..at + bytes.len()], bytes, "byte {at}");
    }
}
