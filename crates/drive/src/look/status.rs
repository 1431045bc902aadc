//! Status of a drive.

use layout::{Counters, ParityForm, UNIT_BYTES};
use media::Media;

use crate::shared::Drive;
use crate::state::core::Core;
use crate::state::recovered::Recovered;
use crate::state::tally::{Share, Written};
use device::ReadOnly;

/// Live data by how it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// Stored uncompressed: it does not compress.
    pub raw: Share,
    /// Compressed when it was written: one block per record, and frames of 2, 4 and 8 blocks.
    pub fresh: [Share; 4],
    /// Settled: compressed as well as the drive can, by the same sizes.
    pub settled: [Share; 4],
}

impl Composition {
    fn of(mix: &layout::Mix) -> Composition {
        let share = |class: usize| Share {
            logical_bytes: mix.blocks[class] * layout::BLOCK_BYTES as u64,
            physical_bytes: mix.units[class] * UNIT_BYTES as u64,
        };
        Composition {
            raw: share(0),
            fresh: std::array::from_fn(|i| share(1 + i)),
            settled: std::array::from_fn(|i| share(5 + i)),
        }
    }
}

/// Parity of a drive, and what was repaired by it since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityStatus {
    /// What new fillings of segments set apart for it.
    pub form: ParityForm,
    /// Segments of earlier runs whose parity is not there, or not yet known to be.
    pub uncovered_segments_count: u32,
    /// Pages that were made again, and pages of parity that were found wrong.
    pub repaired_pages_count: u64,
    /// Pages that could not be made again.
    pub lost_pages_count: u64,
    /// Bytes of parity written.
    pub written_bytes: u64,
    /// Place on the backing of the page that was made again last.
    pub last_repaired_byte: Option<u64>,
    /// Place on the backing of the page last found that could not be made again.
    pub last_lost_byte: Option<u64>,
    /// The backing loses so many pages that only what is on them is moved.
    pub is_failing: bool,
}

/// State of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Accepts reads and writes.
    Online,
    /// Opened read-only.
    ReadOnly,
    /// Its log is damaged, and it was opened read-only nevertheless. The reason.
    Damaged(String),
    /// A write or sync of the backing failed: refuses changes until it is opened again. The reason.
    Poisoned(String),
    /// Closed.
    Closed,
}

/// Status of a drive. In bytes unless a name says otherwise.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Status {
    pub uuid: [u8; 16],
    /// Grows with each wipe.
    pub incarnation: u64,
    pub state: State,
    pub format_version: u32,
    pub sector_bytes: u32,
    pub segment_bytes: u32,
    pub codec: codec::Policy,
    pub write_cache: bool,
    pub created_unix_seconds: u64,
    /// Bytes that may be written to the backing over its life, 0 if unknown.
    pub endurance_bytes: u64,
    /// Bytes written to the backing since the drive was created. A wipe does not reset them.
    pub lifetime_written_bytes: u64,
    pub logical_capacity_bytes: u64,
    pub physical_size_bytes: u64,
    /// Blocks that hold something, including fills.
    pub logical_used_bytes: u64,
    /// Part of these: blocks that are a fill and take no space.
    pub logical_fill_bytes: u64,
    /// Records with anything live, with their headers, and the live map. A frame counts in full until its
    /// last block dies.
    pub physical_used_bytes: u64,
    /// Part of used: dead blocks of such frames. Packing the others anew may gain it.
    pub physical_repackable_bytes: u64,
    /// Dead records and padding: cleaning gains it.
    pub physical_reclaimable_bytes: u64,
    /// In free segments, beyond the reserve.
    pub physical_free_bytes: u64,
    /// Set apart for parity in segments, by the form of new fillings.
    pub physical_parity_bytes: u64,
    /// Space that host data may not fill: for cleaning, the heads of the log, and what TRIM may add to the
    /// map.
    pub physical_reserve_bytes: u64,
    /// Superblock, checkpoints, the rest that is no whole segment, and space lost in segments set aside.
    pub physical_fixed_bytes: u64,
    /// Live logical bytes / live physical bytes; 0 when nothing is live.
    pub compression_ratio: f64,
    /// Physical bytes written / host bytes written; 0 before the first write.
    pub waf: f64,
    /// Live data records by kind: see [`Composition`]. Without the drive's own blocks.
    pub composition: Composition,
    /// Data written since the drive was opened, by how it was compressed. Without fills.
    pub written: Vec<Written>,
    pub out_of_space: bool,
    /// The file system or volume under the drive has no room. Changes are refused until it has.
    pub backing_full: bool,
    /// Number of times that it ran out of room since the drive was opened.
    pub backing_full_count: u64,
    pub segments_count: u32,
    pub segments_free_count: u32,
    /// Set aside because they hold records that cannot be read.
    pub segments_damaged_count: u32,
    /// Not written any more because a write to them failed.
    pub segments_bad_count: u32,
    /// Copies of superblock and checkpoints that did not take what was last written to them. On a read-only
    /// drive: those of the superblock and the newest checkpoint that were not found.
    pub copies_not_taken_count: u32,
    /// Freed, but still being read.
    pub segments_waiting_count: u32,
    pub map_memory_bytes: u64,
    /// Memory for the map and for recently read frames.
    pub map_budget_bytes: u64,
    /// Reads of a part of a cached frame since the drive was opened.
    pub frame_hits_count: u64,
    /// Requests since the drive was opened that covered a block in part, lost against others time and again,
    /// and then held their blocks.
    pub holds_count: u64,
    /// Times that a request waited for blocks that another one held.
    pub hold_waits_count: u64,
    /// Changes of a block by others while a request held it: 0 unless there is a mistake.
    pub hold_overruns_count: u64,
    /// Most times that one request was made anew because a block that it covers in part had changed, or had
    /// been moved.
    pub conflicts_most: u32,
    /// Blocks read from the read cache since the drive was opened.
    pub read_cache_hits_count: u64,
    /// Blocks looked for there in vain.
    pub read_cache_misses_count: u64,
    pub map_dirty_bytes: u64,
    pub map_hits_count: u64,
    pub map_loads_count: u64,
    pub map_evictions_count: u64,
    pub log_since_checkpoint_bytes: u64,
    pub sequence: u64,
    pub durable_sequence: u64,
    pub checkpoint_number: u64,
    /// Entropies of the openings for writing, newest first: of the last that `counters` count, and of those
    /// before it, as far as they are known. One is inverted if the next began without all that it had
    /// acknowledged.
    pub runs: Vec<u64>,
    pub counters: Counters,
    pub recovered: Recovered,
    /// Memory of packs that wait for the backing, in bytes.
    pub unwritten_memory_bytes: u64,
    /// Time inside the critical section; 0 if not measured.
    pub engine_nanoseconds: u64,
    /// Parity, and what was repaired by it.
    pub parity: ParityStatus,
    /// Information for the administrator.
    pub notes: Vec<String>,
}

impl Core {
    fn state(&self) -> State {
        if let Some(why) = self.mode.poison_reason() {
            return State::Poisoned(why.to_string());
        }
        match self.mode.read_only() {
            _ if self.mode.is_closed() => State::Closed,
            Some(ReadOnly::Damaged(why)) => State::Damaged(why.clone()),
            Some(_) => State::ReadOnly,
            None => State::Online,
        }
    }
}

impl Core {
    fn parity_status(&self) -> ParityStatus {
        let state = &self.parity;
        ParityStatus {
            form: self.geometry().parity,
            uncovered_segments_count: state.uncovered_count(|id| self.lives(id)),
            repaired_pages_count: state.repaired_pages,
            lost_pages_count: state.lost_pages,
            written_bytes: state.parity_written_bytes,
            last_repaired_byte: state.last_repaired,
            last_lost_byte: state.last_lost,
            is_failing: state.is_failing(self.ticks),
        }
    }
}

impl<M: Media> Drive<M> {
    /// Returns the present status.
    pub fn status(&self) -> Status {
        let mut core = self.0.core();
        self.0.fold_counters(&mut core);
        core.mark_unchanged();
        let core = &*core;
        let unit = UNIT_BYTES as u64;
        let geometry = core.geometry();
        let segments = &core.segments;
        let segment_bytes = u64::from(geometry.segment_bytes);
        let live = segments.live_units() * unit;
        let all = u64::from(segments.count()) * segment_bytes;
        let free_segments = u64::from(segments.free_count()) * segment_bytes;
        let limit = core.shown_limit_units() * unit;
        let set_aside = segments.set_aside_units() * unit;
        let beyond = all.saturating_sub(set_aside + limit);
        // What lives in fillings without parity may exceed the room of new ones.
        let parity = u64::from(segments.count()) * u64::from(geometry.segment_bytes - geometry.room_bytes());
        let parity = parity.min(beyond);
        let (damaged, bad) = segments.set_aside_counts();
        let reclaimable = all.saturating_sub(free_segments + live);
        let fill_blocks = core.map.fill_blocks.saturating_sub(core.map.own.fills);
        let blocks = core.map.live_blocks.saturating_sub(core.map.own.blocks) + fill_blocks;
        let logical_used = blocks * layout::BLOCK_BYTES as u64;
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let room = limit.saturating_sub(live);
        let free = free_segments.min(room);
        let (read_cache_hits_count, read_cache_misses_count) = self.0.cached.counts();
        Status {
            uuid: core.superblock.uuid,
            incarnation: core.superblock.incarnation,
            state: core.state(),
            format_version: layout::FORMAT_VERSION,
            sector_bytes: core.superblock.sector_bytes,
            segment_bytes: geometry.segment_bytes,
            codec: self.0.codec(),
            write_cache: self.0.write_cache,
            created_unix_seconds: core.superblock.created_unix_seconds,
            endurance_bytes: core.superblock.endurance_bytes,
            lifetime_written_bytes: core.superblock.worn_bytes + core.counters.physical_written_bytes,
            logical_capacity_bytes: core.superblock.logical_capacity_bytes,
            physical_size_bytes: geometry.physical_size_bytes,
            logical_used_bytes: logical_used,
            logical_fill_bytes: fill_blocks * layout::BLOCK_BYTES as u64,
            physical_used_bytes: live,
            physical_repackable_bytes: segments.repackable_units() * unit,
            physical_reclaimable_bytes: reclaimable.min(room - free),
            physical_free_bytes: free,
            physical_parity_bytes: parity,
            physical_reserve_bytes: beyond - parity,
            physical_fixed_bytes: geometry.physical_size_bytes - all + set_aside,
            compression_ratio: ratio(logical_used, live),
            waf: ratio(core.counters.physical_written_bytes, core.counters.host_written_bytes),
            composition: Composition::of(&core.map.mix),
            written: core.written.ways(),
            out_of_space: core.is_full() || core.full_backing.is_full(),
            backing_full: core.full_backing.is_full(),
            backing_full_count: core.full_backing.times(),
            segments_count: segments.count(),
            segments_free_count: segments.free_count(),
            segments_damaged_count: damaged,
            segments_bad_count: bad,
            copies_not_taken_count: core.copies_not_taken.len() as u32,
            segments_waiting_count: segments.waiting_count(),
            map_memory_bytes: core.map.memory_bytes(),
            map_budget_bytes: core.map.budget_bytes() + self.0.frames.max_bytes(),
            frame_hits_count: self.0.frames.hits_count(),
            holds_count: core.held.holds_count,
            hold_waits_count: core.held.waits_count,
            hold_overruns_count: core.held.overruns_count,
            conflicts_most: core.held.conflicts_most,
            read_cache_hits_count,
            read_cache_misses_count,
            map_dirty_bytes: core.map.dirty_bytes(),
            map_hits_count: core.map.hits_count,
            map_loads_count: core.map.loads_count,
            map_evictions_count: core.map.evictions_count,
            log_since_checkpoint_bytes: core.log.since_checkpoint_bytes(),
            sequence: core.log.sequence(),
            durable_sequence: core.log.durable(),
            checkpoint_number: core.log.checkpoint(),
            runs: self.0.run.ids(),
            counters: core.counters,
            recovered: core.recovered,
            unwritten_memory_bytes: core.log.in_memory_bytes(),
            engine_nanoseconds: self.0.engine_nanoseconds(),
            parity: core.parity_status(),
            notes: core.notes.clone(),
        }
    }

    /// Adds time that the drive was open for writing, as the engine has no clock. The next checkpoint stores
    /// it.
    pub fn count_powered(&self, seconds: u64) {
        self.0.core().counters.powered_seconds += seconds;
    }

    /// Returns the bytes of live data, and the most that it may take by writes of any size. Cheaper than
    /// [`Drive::status`].
    pub fn space(&self) -> (u64, u64) {
        let core = self.0.core();
        let unit = UNIT_BYTES as u64;
        (core.segments.live_units() * unit, core.shown_limit_units() * unit)
    }

    /// Capacity that hosts see, in bytes.
    pub fn logical_capacity_bytes(&self) -> u64 {
        self.0.core().superblock.logical_capacity_bytes
    }

    /// 512 or 4096.
    pub fn sector_bytes(&self) -> u32 {
        self.0.core().superblock.sector_bytes
    }

    /// Changes the memory for map nodes and frames, in bytes (see [`OpenOptions`](crate::OpenOptions)). A
    /// smaller cache shrinks as it is used.
    pub fn set_map_budget_bytes(&self, bytes: u64) {
        self.0.core().map.set_budget_bytes(self.0.frames.set_budget_bytes(bytes));
    }

    /// Fails with the reason if the drive accepts no changes.
    pub fn writable(&self) -> Result<(), crate::Error> {
        self.0.core().mode.writable()
    }
}
