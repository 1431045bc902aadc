//! Checkpoints: a durable root of the map and the state of every segment. Two slots, two copies each, and a
//! third far from the start.

use crate::bytes::{put, u32_at, u64_at};
use crate::entry::CLASSES;
use crate::geometry::Geometry;
pub use crate::limits::{COUNT_MAX, SEQUENCE_LIMIT};
use crate::pack::HEADS;
use crate::page::PageKind;
use crate::table::{self, encode_page, table_crc, table_pages};
use crate::table_reader::TableReader;
use crate::{DecodeError, Entry, NODE_ENTRIES, NextSegment, PAGE_BYTES, Rows, UNIT_BYTES};

const PAGE: PageKind = PageKind { what: WHAT, magic: *b"PUMICHKP", crc_at: 8 };
const WHAT: &str = "checkpoint";
const FLAGS_AT: usize = 60;
const FLAG_CLEAN: u32 = 1;
const FLAG_DURABLE: u32 = 1 << 1;
const FLAG_MAY_HOLD_MORE: u32 = 1 << 2;
const FLAG_WRITTEN_THROUGH: u32 = 1 << 3;
const HEADS_AT: usize = 128;
const HEAD_BYTES: usize = 20;
const COUNTERS_AT: usize = 256;
const MIX_AT: usize = 400;
const SUPERBLOCK_UPDATE_AT: usize = 544;
const MEMORY_BOOT_AT: usize = 552;
const SCRUB_AT: usize = 1024;
const EARLIER_RUNS_AT: usize = 1088;
/// Runs before the one that wrote it that a checkpoint names.
pub const EARLIER_RUNS: usize = 64;
/// No drive's log comes as far.
const SEQUENCE_LAST: u64 = SEQUENCE_LIMIT / 2;
/// Nor does a drive hold as many blocks or units.
const HELD_MAX: u64 = 1 << 51;

/// Blocks and 16-byte units of live data records, by [`Entry::class`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Live blocks of logical space.
    pub blocks: [u64; CLASSES],
    /// Units of the records that have a live block: whole records.
    pub units: [u64; CLASSES],
}

impl Mix {
    /// Counts `count` blocks of a record as live. Counts read from a checkpoint may be anything: they never
    /// overflow.
    pub fn add_blocks(&mut self, entry: Entry, count: u64) {
        let blocks = &mut self.blocks[entry.class()];
        *blocks = blocks.saturating_add(count);
    }

    /// Counts a block of a record as dead.
    pub fn remove_block(&mut self, entry: Entry) {
        let blocks = &mut self.blocks[entry.class()];
        *blocks = blocks.saturating_sub(1);
    }

    /// Counts the length of a record as live. Call it once, with the record's first live block.
    pub fn add_record(&mut self, entry: Entry) {
        let units = &mut self.units[entry.class()];
        *units = units.saturating_add(entry.units().into());
    }

    /// Counts the length of a record as dead. Call it once, when its last live block died.
    pub fn remove_record(&mut self, entry: Entry) {
        let units = &mut self.units[entry.class()];
        *units = units.saturating_sub(entry.units().into());
    }

    /// None above what [`Checkpoint::validate`] takes.
    fn clamped(self) -> Mix {
        let least = |count: u64| count.min(HELD_MAX);
        Mix { blocks: self.blocks.map(least), units: self.units.map(least) }
    }
}

/// Scrubs of the drive: the one in progress, and the last one that read all records. 0 is *unknown*, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubMark {
    /// Begin of the one in progress, in seconds since 1970; 0: none is.
    pub begun_unix_seconds: u64,
    /// First block that it has not verified.
    pub next_block: u64,
    /// Bytes of records that it has read.
    pub read_bytes: u64,
    /// Faults that it has found.
    pub faults_count: u64,
    /// End of the last complete one, in seconds since 1970; 0: none.
    pub finished_unix_seconds: u64,
    /// Faults that it found.
    pub finished_faults_count: u64,
}

impl ScrubMark {
    fn to_array(self) -> [u64; 6] {
        [
            self.begun_unix_seconds,
            self.next_block,
            self.read_bytes,
            self.faults_count,
            self.finished_unix_seconds,
            self.finished_faults_count,
        ]
    }

    fn from_array(values: [u64; 6]) -> ScrubMark {
        // What comes from the backing may be anything.
        let [
            begun_unix_seconds,
            next_block,
            read_bytes,
            faults_count,
            finished_unix_seconds,
            finished_faults_count,
        ] = values.map(|value| value.min(COUNT_MAX));
        ScrubMark {
            begun_unix_seconds,
            next_block,
            read_bytes,
            faults_count,
            finished_unix_seconds,
            finished_faults_count,
        }
    }
}

/// Position of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPosition {
    /// Segment being filled, if any.
    pub current: NextSegment,
    /// Offset of the next pack in it, in bytes.
    pub offset: u32,
    /// Segment promised next.
    pub next: NextSegment,
}

impl HeadPosition {
    /// A head that has no segment.
    pub const NONE: HeadPosition =
        HeadPosition { current: NextSegment::NONE, offset: 0, next: NextSegment::NONE };
}

/// Declares the counters once: their fields, and their order on the backing. New ones are added at the end.
macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        /// Lifetime counters, kept over restarts. Bytes unless the name says otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct Counters {
            $($(#[$meta])* pub $name: u64,)+
        }

        const COUNTER_COUNT: usize = [$(stringify!($name)),+].len();

        impl Counters {
            fn to_array(self) -> [u64; COUNTER_COUNT] {
                [$(self.$name),+]
            }

            fn from_array([$($name),+]: [u64; COUNTER_COUNT]) -> Counters {
                Counters { $($name),+ }
            }
        }
    };
}

counters! {
    host_written_bytes,
    host_read_bytes,
    physical_written_bytes,
    physical_read_bytes,
    cleaning_written_bytes,
    map_written_bytes,
    discarded_bytes,
    flushes_count,
    segments_cleaned_count,
    checkpoints_count,
    read_errors_count,
    write_errors_count,
    corrupt_records_count,
    unclean_opens_count,
    host_trimmed_bytes,
    /// Reads of a superblock or checkpoint that failed, and were served by the other copy.
    corrected_reads_count,
    /// Openings for writing.
    opens_count,
    /// Time it was open for writing, as far as checkpoints recorded it: a crash loses what passed since the
    /// last one.
    powered_seconds,
}

impl Counters {
    /// None above [`COUNT_MAX`].
    pub fn clamped(self) -> Counters {
        Counters::from_array(self.to_array().map(|count| count.min(COUNT_MAX)))
    }
}

/// A checkpoint's header page.
///
/// ```text
///   0  8  magic "PUMICHKP"     8  4  CRC32C of the page, this field as zero     12  4  CRC32C of the table's page checksums
///  16 16  drive id            32  8  number (slot = number mod 2)              40  8  sequence number of the cut
///  48  8  root entry          56  4  segments (rows in the table)              60  4  flags: bit 0 clean, 1 durable, 2 may hold more,
///                                                                                    3 written through
///  64  8  overlay records     72  8  live records, blocks                      80  8  fill blocks
///  88  8  generations handed out (counter)                                      96  8  entropy of the run
/// 104  8  newest sequence number durable when it was written: roll-forward must reach it
/// 128 60  for each head: segment, generation, offset, next segment, its generation (4 bytes each)
/// 256  .  counters, 8 bytes each
/// 400 144 live data by class: blocks, units (8 bytes each)
/// 544  8  update number of the superblock when it was written                 552 16  boot with the memory of the run
/// 1024 48 scrubs (8 bytes each)
/// 1088 512 entropies of the runs before, newest first; inverted: what it acknowledged may be missing; 0: not known
/// ```
/// The table of segments follows on the next page: see [`crate::table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Drive it belongs to.
    pub uuid: [u8; 16],
    /// Counts checkpoints; the highest valid one counts.
    pub number: u64,
    /// Everything up to this sequence number is in the map it describes.
    pub sequence: u64,
    /// The root node's record, or unmapped if the map is empty.
    pub root: Entry,
    /// Nothing was written after it: the drive was closed.
    pub clean: bool,
    /// The backing may hold the space of free segments that no row knows to have been used.
    pub may_hold_more: bool,
    /// The run acknowledges only what is durable.
    pub written_through: bool,
    /// Boot of the machine that has the run's [memory](crate::memory); zeros: the run has none that outlives
    /// it, or it is not known.
    pub memory_boot: [u8; 16],
    /// Overlay records that belong to it; they follow on the map head.
    pub overlay_records: u64,
    /// Blocks that have a record.
    pub live_blocks: u64,
    /// Blocks that are a fill.
    pub fill_blocks: u64,
    /// Kinds of records of these blocks.
    pub mix: Mix,
    /// Number of generations handed out in the run that wrote it.
    pub generations: u64,
    /// Entropy of the run that wrote it.
    pub entropy: u64,
    /// Entropies of the runs before, newest first; 0: not known. One is inverted if the run after it began
    /// without all that it had acknowledged.
    pub earlier_runs: [u64; EARLIER_RUNS],
    /// Newest pack that was durable when it was written: its nodes and overlays lie in the packs from the cut
    /// to here.
    pub durable: u64,
    /// Update number of the superblock when it was written: an older superblock is outdated. 0: not recorded.
    pub superblock_update: u64,
    /// Positions of the heads.
    pub heads: [HeadPosition; HEADS],
    /// Lifetime counters.
    pub counters: Counters,
    /// Scrubs.
    pub scrub: ScrubMark,
    /// A row for each segment.
    pub rows: Rows,
}

/// The part of a checkpoint's header page that identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Drive it belongs to.
    pub uuid: [u8; 16],
    /// Number of the checkpoint.
    pub number: u64,
    /// Rows in its table.
    pub segments: u32,
    /// See [`Checkpoint::superblock_update`].
    pub superblock_update: u64,
    /// The header was written again after a sync of the whole checkpoint had succeeded. False says nothing.
    pub is_durable: bool,
}

impl Checkpoint {
    /// Bytes of the encoded checkpoint for so many segments: whole pages.
    pub fn encoded_len(segments: usize) -> usize {
        table::with_header_bytes(segments)
    }

    /// Writes header page and table into `out` (of [`Checkpoint::encoded_len`] bytes).
    pub fn encode(&self, out: &mut [u8]) {
        assert_eq!(out.len(), Self::encoded_len(self.rows.len()), "room for exactly this checkpoint");
        let (header, table) = out.split_at_mut(PAGE_BYTES);
        let mut crcs = Vec::with_capacity(table_pages(self.rows.len()));
        for (page, out) in table.chunks_exact_mut(PAGE_BYTES).enumerate() {
            crcs.push(encode_page(page, self.rows.page(page), out));
        }
        self.encode_header(self.rows.len() as u32, table_crc(&crcs), header);
    }

    /// Writes the header page alone, for a table of `segments` rows whose pages have these checksums:
    /// `table_crc` is [`crate::table::table_crc`] of them. The checkpoint's own rows are not used.
    pub fn encode_header(&self, segments: u32, table_crc: u32, out: &mut [u8]) {
        let b = &mut out[..PAGE_BYTES];
        b.fill(0);
        put(b, 12, &table_crc.to_le_bytes());
        put(b, 16, &self.uuid);
        put(b, 32, &self.number.to_le_bytes());
        put(b, 40, &self.sequence.to_le_bytes());
        put(b, 48, &self.root.0.to_le_bytes());
        put(b, 56, &segments.to_le_bytes());
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.clean, FLAG_CLEAN)
            | flag(self.may_hold_more, FLAG_MAY_HOLD_MORE)
            | flag(self.written_through, FLAG_WRITTEN_THROUGH);
        put(b, FLAGS_AT, &flags.to_le_bytes());
        put(b, 64, &self.overlay_records.to_le_bytes());
        put(b, 72, &self.live_blocks.to_le_bytes());
        put(b, 80, &self.fill_blocks.to_le_bytes());
        put(b, 88, &self.generations.to_le_bytes());
        put(b, 96, &self.entropy.to_le_bytes());
        put(b, 104, &self.durable.to_le_bytes());
        put(b, SUPERBLOCK_UPDATE_AT, &self.superblock_update.to_le_bytes());
        put(b, MEMORY_BOOT_AT, &self.memory_boot);
        for (i, head) in self.heads.iter().enumerate() {
            let words = [
                head.current.segment,
                head.current.generation,
                head.offset,
                head.next.segment,
                head.next.generation,
            ];
            for (j, word) in words.iter().enumerate() {
                put(b, HEADS_AT + i * HEAD_BYTES + j * 4, &word.to_le_bytes());
            }
        }
        for (i, counter) in self.counters.to_array().iter().enumerate() {
            put(b, COUNTERS_AT + i * 8, &counter.to_le_bytes());
        }
        for (i, value) in self.scrub.to_array().iter().enumerate() {
            put(b, SCRUB_AT + i * 8, &value.to_le_bytes());
        }
        for (i, entropy) in self.earlier_runs.iter().enumerate() {
            put(b, EARLIER_RUNS_AT + i * 8, &entropy.to_le_bytes());
        }
        for class in 0..CLASSES {
            put(b, MIX_AT + class * 16, &self.mix.blocks[class].to_le_bytes());
            put(b, MIX_AT + class * 16 + 8, &self.mix.units[class].to_le_bytes());
        }
        PAGE.seal(b);
    }

    /// Refuses what cannot be on a drive of these sizes, although its checksums hold. [`Checkpoint::decode`]
    /// knows no sizes; whoever goes on to use rows, heads and root as places calls this first.
    pub fn validate(&self, geometry: &Geometry) -> Result<(), DecodeError> {
        let bad = |why| Err(DecodeError::Field(WHAT, why));
        if self.rows.len() != geometry.segments() as usize {
            return bad("another number of segments than the drive has");
        }
        let segment_units = geometry.segment_bytes / UNIT_BYTES as u32;
        if self.rows.used().any(|(_, row)| row.live_units > segment_units) {
            return bad("a segment has more live than it holds");
        }
        if self.rows.used().any(|(_, row)| row.repackable_units > row.live_units) {
            return bad("a segment has more to repack than is live in it");
        }
        if !self.root.is_unmapped() && !geometry.holds(self.root) {
            return bad("root lies outside the segments");
        }
        let is_aside = |segment: u32| self.rows[segment as usize].is_aside();
        if !geometry.far_segments().all(is_aside) {
            return bad("segments of the far copies are in use");
        }
        let outside = |next: NextSegment| {
            next.is_some() && (next.segment >= geometry.segments() || geometry.is_far(next.segment))
        };
        for head in &self.heads {
            if outside(head.current) || outside(head.next) {
                return bad("a head is in no segment of the drive");
            }
            if head.offset > geometry.segment_bytes || !head.offset.is_multiple_of(PAGE_BYTES as u32) {
                return bad("a head stands at no page of its segment");
            }
        }
        // Not as far as they can be counted: whoever counts on need not look.
        let mut held = self.mix.blocks.into_iter().chain(self.mix.units);
        if self.sequence > SEQUENCE_LAST || held.any(|count| count > HELD_MAX) {
            return bad("a count that no drive comes to");
        }
        Ok(())
    }

    /// Most live blocks, and most fills, that a checkpoint of a drive with so many blocks may count: what a
    /// change to a leaf not loaded replaced still counts, so it is twice as many as there are, and twice the
    /// drive's own.
    pub fn counted_max(blocks: u64) -> (u64, u64) {
        (2 * blocks + 2 * NODE_ENTRIES as u64, 2 * blocks)
    }

    /// Limits what is counted of a drive with so many blocks to what a checkpoint may count: what lost leaves
    /// led to counts for good, without any bound.
    pub fn clamp_counted(&mut self, blocks: u64) {
        let (live_blocks, fill_blocks) = Checkpoint::counted_max(blocks);
        self.live_blocks = self.live_blocks.min(live_blocks);
        self.fill_blocks = self.fill_blocks.min(fill_blocks);
        self.mix = self.mix.clamped();
    }

    /// Reads what a header page says about its checkpoint, once its checksum holds. The table may still be
    /// torn.
    pub fn decode_summary(page: &[u8]) -> Result<CheckpointSummary, DecodeError> {
        let page = PAGE.verify(page)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&page[16..32]);
        Ok(CheckpointSummary {
            uuid,
            number: u64_at(page, 32),
            segments: u32_at(page, 56),
            superblock_update: u64_at(page, SUPERBLOCK_UPDATE_AT),
            is_durable: u32_at(page, FLAGS_AT) & FLAG_DURABLE != 0,
        })
    }

    /// Notes in a header page that a sync of the whole checkpoint has succeeded. Only the first 512 bytes of
    /// the page change.
    pub fn note_durable(page: &mut [u8]) {
        let flags = u32_at(page, FLAGS_AT) | FLAG_DURABLE;
        put(page, FLAGS_AT, &flags.to_le_bytes());
        PAGE.seal(page);
    }

    /// Reads what [`Checkpoint::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, DecodeError> {
        let (mut checkpoint, mut table) = Self::decode_header(bytes)?;
        let segments = u32_at(bytes, 56) as usize;
        let pages = bytes[PAGE_BYTES..]
            .get(..table_pages(segments).saturating_mul(PAGE_BYTES))
            .ok_or(DecodeError::Truncated(WHAT))?;
        table.take(pages)?;
        checkpoint.rows = table.finish()?;
        Ok(checkpoint)
    }

    /// Reads the header page alone. Returns the checkpoint without rows, and what reads these from the table.
    pub fn decode_header(page: &[u8]) -> Result<(Checkpoint, TableReader), DecodeError> {
        let CheckpointSummary { uuid, number, segments, superblock_update, .. } = Self::decode_summary(page)?;
        let b = &page[..PAGE_BYTES];
        let table = TableReader::new(segments as usize, u32_at(b, 12));
        let mut heads = [HeadPosition::NONE; HEADS];
        for (i, head) in heads.iter_mut().enumerate() {
            let word = |j: usize| u32_at(b, HEADS_AT + i * HEAD_BYTES + j * 4);
            *head = HeadPosition {
                current: NextSegment { segment: word(0), generation: word(1) },
                offset: word(2),
                next: NextSegment { segment: word(3), generation: word(4) },
            };
        }
        let mut counters = [0; COUNTER_COUNT];
        for (i, counter) in counters.iter_mut().enumerate() {
            *counter = u64_at(b, COUNTERS_AT + i * 8);
        }
        let mut mix = Mix::default();
        for class in 0..CLASSES {
            mix.blocks[class] = u64_at(b, MIX_AT + class * 16);
            mix.units[class] = u64_at(b, MIX_AT + class * 16 + 8);
        }
        let root = Entry(u64_at(b, 48));
        if !(root.is_unmapped() || root.is_record() && !root.is_frame() && root.is_valid()) {
            return Err(DecodeError::Field(WHAT, "root is neither unmapped nor a record"));
        }
        let (sequence, durable) = (u64_at(b, 40), u64_at(b, 104));
        if sequence >= SEQUENCE_LIMIT || durable >= SEQUENCE_LIMIT {
            return Err(DecodeError::Field(WHAT, "impossible sequence number"));
        }
        let checkpoint = Checkpoint {
            uuid,
            number,
            sequence,
            root,
            clean: u32_at(b, FLAGS_AT) & FLAG_CLEAN != 0,
            may_hold_more: u32_at(b, FLAGS_AT) & FLAG_MAY_HOLD_MORE != 0,
            written_through: u32_at(b, FLAGS_AT) & FLAG_WRITTEN_THROUGH != 0,
            memory_boot: std::array::from_fn(|i| b[MEMORY_BOOT_AT + i]),
            overlay_records: u64_at(b, 64),
            live_blocks: u64_at(b, 72),
            fill_blocks: u64_at(b, 80),
            mix,
            generations: u64_at(b, 88),
            entropy: u64_at(b, 96),
            earlier_runs: std::array::from_fn(|i| u64_at(b, EARLIER_RUNS_AT + i * 8)),
            durable,
            superblock_update,
            heads,
            counters: Counters::from_array(counters),
            scrub: ScrubMark::from_array(std::array::from_fn(|i| u64_at(b, SCRUB_AT + i * 8))),
            rows: Rows::default(),
        };
        Ok((checkpoint, table))
    }
}
