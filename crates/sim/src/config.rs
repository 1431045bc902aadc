//! Configuration of a seed's drive and its clients.

mod faults;
mod style;
mod zones;

use std::sync::Arc;

use codec::Policy;
use drive::ReadCache;
use layout::{Geometry, ParityForm};
use media::{SimGhosts, SimRng};

use crate::content::{Filler, SECTOR_BYTES};
use crate::ledger::BLOCK_BYTES;
use crate::oracle::ATOMIC_BYTES_MAX;
use crate::oracle::bytes::SHARED_BYTES;

use faults::BadCopy;
pub use faults::Trouble;
pub use style::Style;
pub(crate) use zones::GROUP_BYTES;

use style::Palette;
use zones::Zone;

/// Fewest segments that a drive can work with, including the space that does not make up a whole one.
const SEGMENTS_MIN: u64 = 26;

/// Number of segments of a drive whose size matters: small enough to be filled, and large enough for the
/// reserve to be a small share.
const LARGE_SEGMENTS: (u64, u64) = (200, 300);
/// Range covered by a leaf of the map. The annex begins at a multiple of it.
const LEAF_BYTES: u64 = 2 << 20;
/// Conflicts of a request after which others wait for it, as in production.
const CONFLICTS_BEFORE_HOLD: u32 = 8;
/// Size of the annex as a multiple of the backing.
const ANNEX_SIZES: u64 = 12;

/// Configuration of a seed.
#[derive(Clone, Debug)]
pub struct Config {
    /// UUID of the drive.
    pub uuid: [u8; 16],
    /// Sector size in bytes: 512 or 4096.
    pub sector_bytes: u32,
    /// Segment size in bytes.
    pub segment_bytes: u32,
    /// Physical size of the drive at first, in bytes.
    pub physical_bytes: u64,
    /// Size of the backing in bytes. If it is larger than `physical_bytes`, the drive grows into it during
    /// use.
    pub backing_bytes: u64,
    /// Part of the logical capacity that clients use, in bytes. The annex follows it.
    pub logical_bytes: u64,
    /// Codec of new blocks.
    pub codec: Policy,
    /// Memory for map nodes, in bytes.
    pub map_budget_bytes: u64,
    /// Cache of decompressed blocks, if there is one: the same for all lives and branches, which must not
    /// mix.
    pub read_cache: Option<Arc<ReadCache>>,
    /// Frames that are read at random often are cut.
    pub cuts_hot: bool,
    /// Bytes of log between checkpoints.
    pub checkpoint_bytes: u64,
    /// True if the write cache is on. If not, every write is durable before it is acknowledged.
    pub write_cache: bool,
    /// Number of concurrent clients.
    pub clients: u32,
    /// Number of operations of a client in a life.
    pub operations: u32,
    /// Number of requests in 32 that are given up if they take a while.
    pub drops: u64,
    /// Number of lives of the drive.
    pub lives: u32,
    /// Workload of the clients.
    pub style: Style,
    /// Beats between two ticks of the drive, unless nothing else can happen.
    pub beats_per_tick: u64,
    /// Number of beats in 16 at which maintenance is done.
    pub maintenance: u64,
    /// Number of tasks that do maintenance.
    pub maintainers: u64,
    /// Kind of the backing, and its faults.
    pub trouble: Trouble,
    /// True if single blocks all over the drive are used instead of the workload of the style.
    pub scattered: bool,
    /// Bytes of incompressible data in each block of such a drive.
    pub record_bytes: usize,
    /// True if a host reads what was written last, over and over.
    pub echoes: bool,
    /// True if a large drive's backing fails: it is filled, and clients use it as they use small ones.
    pub is_troubled: bool,
    /// True if dictionaries and data that needs them are used instead of the workload of the style.
    pub lessons: bool,
    /// True if hosts that know no sectors share two blocks.
    pub has_bytes: bool,
    /// Conflicts of a request after which others wait for it.
    pub conflicts_before_hold: u32,
    /// Tasks interrupt others at entries of the engine's critical section, as on several threads.
    pub switches: bool,
    /// True if the segments are as large as those of large drives, and mostly empty.
    pub is_roomy: bool,
    /// True if superblock and checkpoints have copies far from the start, if there is room for them.
    pub far_copies: bool,
    /// What segments set apart for parity.
    pub parity: ParityForm,
    /// True if that is changed while the drive is in use.
    pub changes_parity: bool,
    /// True if pages are lost also beyond the cover of parity.
    pub loses_data: bool,
    zones: Vec<Zone>,
    /// Ranges written in each round: first sector and length in sectors, of whole blocks.
    pub rounds: Vec<(u64, u64)>,
    /// Zone in which groups of blocks are written as a whole, aligned to the largest frame.
    groups: Zone,
    palette: Palette,
    fillers: Vec<Filler>,
}

impl Config {
    /// Draws a configuration. Style `Large` tests the space that drives report, so it is not drawn without
    /// `has_space`.
    pub fn draw(rng: &mut SimRng, has_space: bool) -> Config {
        let style = match Style::draw(rng) {
            Style::Large if !has_space => Style::Mixed,
            style => style,
        };
        let segment_bytes: u32 = match style.is_large() || rng.chance(3, 4) {
            true => 512 << 10,
            false => [1 << 20, 1 << 20, 2 << 20, 4 << 20][rng.index(4)],
        };
        let segments = match style {
            Style::Large => LARGE_SEGMENTS.0 + rng.below(LARGE_SEGMENTS.1 - LARGE_SEGMENTS.0),
            _ if style.is_large() => SEGMENTS_MIN,
            _ => SEGMENTS_MIN + rng.skewed(5),
        };
        let physical_bytes = segments * u64::from(segment_bytes) + 4096 * rng.below(64);
        let logical_bytes = match style {
            Style::Sparse => 1 << (36 + rng.below(5)),
            Style::Fill | Style::Full => physical_bytes * (1 + rng.below(2)) / 4096 * 4096,
            Style::Large => LEAF_BYTES,
            Style::Mixed | Style::Churn | Style::Frames | Style::Rounds => {
                physical_bytes * (1 + rng.below(4))
            }
        };
        let mut uuid = [0; 16];
        uuid.fill_with(|| rng.next_u64() as u8);
        let mut config = Config {
            uuid,
            sector_bytes: if style == Style::Rounds || rng.chance(3, 4) { 512 } else { 4096 },
            segment_bytes,
            physical_bytes,
            backing_bytes: physical_bytes
                * if style != Style::Large && rng.chance(1, 4) { 2 + rng.below(2) } else { 1 },
            logical_bytes,
            codec: style.draw_codec(rng),
            map_budget_bytes: [64 << 10, 64 << 10, 96 << 10, 256 << 10, 16 << 20, 16 << 20][rng.index(6)],
            read_cache: None,
            cuts_hot: false,
            checkpoint_bytes: (256 << 10) << rng.below(if style == Style::Rounds { 4 } else { 9 }),
            write_cache: rng.chance(7, 8),
            clients: if style == Style::Rounds { 2 + rng.below(6) } else { 1 + rng.below(6) } as u32,
            operations: style.draw_operations(rng),
            drops: [0, 0, 1, 8][rng.index(4)],
            lives: 1 + rng.below(5) as u32,
            style,
            beats_per_tick: [1, 4, 32][rng.index(3)],
            maintenance: [1, 4, 10, 16][rng.index(4)],
            maintainers: 1,
            trouble: if style != Style::Large && rng.chance(1, 3) {
                Trouble::draw(rng, physical_bytes, segment_bytes)
            } else {
                Trouble::none(rng)
            },
            scattered: false,
            record_bytes: BLOCK_BYTES as usize,
            echoes: false,
            is_troubled: false,
            lessons: false,
            has_bytes: false,
            conflicts_before_hold: CONFLICTS_BEFORE_HOLD,
            switches: false,
            is_roomy: false,
            far_copies: false,
            parity: ParityForm::None,
            changes_parity: false,
            loses_data: false,
            zones: zones::draw_zones(rng, style, physical_bytes, logical_bytes),
            rounds: zones::draw_rounds(rng, logical_bytes.max(physical_bytes)),
            groups: zones::draw_groups(rng, logical_bytes),
            palette: Palette::draw(rng),
            fillers: style.draw_fillers(rng),
        };
        if config.is_served() {
            // A client that does not wait does not cancel its request.
            config.drops = 0;
        }
        config
    }

    /// First block of the annex: blocks that no client touches, for [`Ledger`](crate::ledger::Ledger).
    pub fn annex_block(&self) -> u64 {
        self.logical_bytes.next_multiple_of(LEAF_BYTES) / BLOCK_BYTES
    }

    /// End of the annex.
    pub fn annex_end_block(&self) -> u64 {
        self.annex_block() + (self.backing_bytes * ANNEX_SIZES).next_multiple_of(LEAF_BYTES) / BLOCK_BYTES
    }

    /// Place of the blocks that hosts of bytes share, in bytes: behind the annex, away from the end of the
    /// drive.
    pub(crate) fn shared_offset(&self) -> u64 {
        self.annex_end_block() * BLOCK_BYTES + LEAF_BYTES / 2
    }

    /// Bytes of the blocks that hosts of bytes share, if there are any.
    pub(crate) fn shared_bytes(&self) -> u64 {
        if self.has_bytes { SHARED_BYTES as u64 } else { 0 }
    }

    /// The same as sectors: the first, and their number.
    pub(crate) fn shared_sectors(&self) -> (u64, u64) {
        (self.shared_offset() / SECTOR_BYTES as u64, self.shared_bytes() / SECTOR_BYTES as u64)
    }

    /// Logical capacity: the range of clients, the annex, a leaf for hosts of bytes, and on most drives part
    /// of a leaf.
    pub fn capacity_bytes(&self) -> u64 {
        let shared = if self.has_bytes { LEAF_BYTES } else { 0 };
        let more = match self.uuid[5] % 4 {
            0 => 0,
            _ => u64::from(self.uuid[6]) * 2 + 1,
        };
        (self.annex_end_block() + more) * BLOCK_BYTES + shared
    }

    /// Draws [`Trouble::bad_copy`] from a separate generator, so that everything else is as without it.
    pub fn draw_bad_copy(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xc091_bad1_c091_bad1;
        if !self.does_damage() {
            self.trouble.bad_copy = BadCopy::draw(&mut SimRng::new(seed ^ OF_ITS_OWN));
        }
    }

    /// Lets the backing of a third of the large drives fail. Drawn from a separate generator.
    pub fn draw_trouble_of_large(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x1a26_ebad_1a26_ebad;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if self.style == Style::Large && rng.chance(1, 3) {
            self.is_troubled = true;
            self.trouble = Trouble::draw(rng, self.physical_bytes, self.segment_bytes);
            self.logical_bytes = LEAF_BYTES << (2 + rng.below(4));
            self.zones = vec![
                Zone { start: 0, len: self.logical_bytes },
                Zone { start: LEAF_BYTES, len: LEAF_BYTES },
                Zone { start: 0, len: 64 << 10 },
            ];
        }
    }

    /// Turns some of the large drives into huge ones, with a map much larger than its memory. Drawn from a
    /// separate generator.
    pub fn draw_scattered(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x5ca7_7e2e_d5ca_77e2;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if self.style == Style::Large && !self.is_troubled && rng.chance(1, 3) {
            self.scattered = true;
            self.logical_bytes = 1 << (34 + rng.below(7));
            self.map_budget_bytes = (64 << 10) << rng.below(4);
            self.physical_bytes = (32 + rng.below(64)) * u64::from(self.segment_bytes);
            self.backing_bytes = self.physical_bytes;
            self.lives = 1 + rng.below(2) as u32;
            // Small records: the map is as large as the data, and records are many.
            if rng.chance(1, 4) {
                self.record_bytes = SECTOR_BYTES;
                self.physical_bytes = (26 + rng.below(8)) * u64::from(self.segment_bytes);
                self.backing_bytes = self.physical_bytes;
            }
        }
    }

    /// Turns some of the large drives into small ones with lessons. Drawn from a separate generator.
    pub fn draw_lessons(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x1e55_0115_1e55_0115;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if self.style == Style::Large && !self.is_troubled && !self.scattered && rng.chance(1, 2) {
            self.lessons = true;
            self.codec = [Policy::Auto, Policy::Auto, Policy::Zstd(3)][rng.index(3)];
            self.physical_bytes = (SEGMENTS_MIN + rng.below(32)) * u64::from(self.segment_bytes);
            self.backing_bytes = self.physical_bytes;
            self.map_budget_bytes = [64 << 10, 256 << 10, 16 << 20][rng.index(3)];
        }
    }

    /// Draws the number of maintenance tasks, more than one in half of the seeds, from a separate generator.
    pub fn draw_maintainers(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x3a17_7a13_3a17_7a13;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        self.maintainers = [1, 1, 2, 3][rng.index(4)];
    }

    /// Makes some backings full for a while, also for overwrites. Drawn from a separate generator, and
    /// combined with other faults.
    pub fn draw_full_on_overwrite(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x0f11_5ace_0f11_5ace;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if (self.style != Style::Large || self.is_troubled) && rng.chance(1, 12) {
            self.trouble.full_on_overwrite_ppm = 1000 << rng.below(7);
            // A bad copy excuses no error, so this fault must not hide its effects.
            self.trouble.bad_copy = None;
        }
    }

    /// Lets what a failed sync lost be shown for a while only, in half of the seeds that show it. Drawn from
    /// a separate generator.
    pub fn draw_fading(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xfade_d0ff_fade_d0ff;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if self.trouble.ghosts == SimGhosts::Shown && rng.chance(1, 2) {
            self.trouble.faults.fade_ppm = 1000 << rng.below(7);
        }
    }

    /// Lets bits rot in data of hosts only: in two thirds of the seeds with rot, and in some without other
    /// damage. Then nothing excuses a drive that does not open. Drawn from a separate generator.
    pub fn draw_rot_in_data(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xda7a_0207_da7a_0207;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        let faults = &mut self.trouble.faults;
        if faults.rot_ppm > 0 {
            faults.rot_in_data_only = rng.chance(2, 3);
        } else if (self.style != Style::Large || self.is_troubled) && rng.chance(1, 12) {
            faults.rot_in_data_only = true;
            faults.rot_ppm = 500 << rng.below(6);
        }
    }

    /// Gives half of the seeds a read cache, and all in which records soon take the place of others: a tiny
    /// one, or one so large that nothing is pushed out. Drawn from a separate generator.
    pub fn draw_read_cache(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xcac4_eb10_cac4_eb10;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if self.style == Style::Rounds || rng.chance(1, 2) {
            self.read_cache = ReadCache::new([256 << 10, 16 << 20][rng.index(2)]);
        }
    }

    /// Lets half of the seeds cut frames that are read at random often. Drawn from a separate generator.
    pub fn draw_cuts(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x0c07_0c07_0c07_0c07;
        self.cuts_hot = SimRng::new(seed ^ OF_ITS_OWN).chance(1, 2);
    }

    /// Lets hosts of bytes share blocks on some drives whose data is not damaged. Drawn from a separate
    /// generator, last.
    pub fn draw_bytes(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x0b17_e50b_17e5_0b17;
        let suits = matches!(self.style, Style::Mixed | Style::Churn | Style::Frames | Style::Rounds);
        let quiet = !self.does_damage() && !self.panics() && !self.is_served();
        self.has_bytes = suits && quiet && SimRng::new(seed ^ OF_ITS_OWN).chance(1, 2);
    }

    /// Lets a host read what was written last in half of the seeds whose writes fail: what the backing did
    /// not take is in memory for a while. Drawn from a separate generator.
    pub fn draw_echo(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xec40_0ec4_0ec4_00ec;
        self.echoes = self.writes_may_fail() && SimRng::new(seed ^ OF_ITS_OWN).chance(1, 2);
    }

    /// Returns whether the backing does not take some writes.
    pub fn writes_may_fail(&self) -> bool {
        let faults = &self.trouble.faults;
        faults.write_error_ppm > 0 || faults.bad_page_ppm > 0 || !self.trouble.bad_bytes.is_empty()
    }

    /// Lets requests wait for one that has lost against others once, twice or three times, in three quarters
    /// of the seeds. Drawn from a separate generator.
    pub fn draw_conflicts(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xc0f1_1c70_c0f1_1c70;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        if rng.chance(3, 4) {
            self.conflicts_before_hold = 1 + rng.below(3) as u32;
        }
    }

    /// Lets tasks interrupt others at entries of the engine's critical section, in half of the seeds. Drawn
    /// from a separate generator.
    pub fn draw_switches(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x5317_c4e5_5317_c4e5;
        self.switches = SimRng::new(seed ^ OF_ITS_OWN).chance(1, 2);
    }

    /// Adds data with a structure to what clients write, in a quarter of the seeds whose data is of several
    /// kinds. Drawn from a separate generator.
    pub fn draw_structure(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x57c0_c7ed_57c0_c7ed;
        let suits = matches!(self.style, Style::Mixed | Style::Sparse | Style::Fill | Style::Churn);
        if suits && SimRng::new(seed ^ OF_ITS_OWN).chance(1, 4) {
            self.fillers.extend([Filler::Code, Filler::Columns, Filler::Code, Filler::Columns]);
        }
    }

    /// Gives some drives segments of 16 or 64 MiB. They stay mostly empty: to fill them would take too long.
    /// Drawn from a separate generator.
    pub fn draw_large_segments(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x1a26_e5e6_1a26_e5e6;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        let suits = matches!(self.style, Style::Mixed | Style::Sparse) && !self.does_damage();
        if suits && rng.chance(1, 6) {
            self.is_roomy = true;
            self.segment_bytes = [16 << 20, 64 << 20][rng.index(2)];
            self.physical_bytes = (SEGMENTS_MIN + rng.below(4)) * u64::from(self.segment_bytes);
            self.backing_bytes = self.physical_bytes;
        }
    }

    /// Gives half of the drives far copies. Drawn from a separate generator.
    pub fn draw_far(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0xfa2c_0b1e_5fa2_c0b1;
        self.far_copies = SimRng::new(seed ^ OF_ITS_OWN).chance(1, 2);
    }

    /// Gives three quarters of the drives parity, changes its form on some while they are in use, and loses
    /// more of some than it covers. Drawn from a separate generator.
    pub fn draw_parity(&mut self, seed: u64) {
        const OF_ITS_OWN: u64 = 0x9a21_7e5d_0b3c_48f1;
        let rng = &mut SimRng::new(seed ^ OF_ITS_OWN);
        self.parity = ParityForm::ALL[rng.index(4)];
        self.changes_parity = (self.style != Style::Large || self.is_troubled) && rng.chance(1, 4);
        let is_quiet = !self.does_damage() && self.trouble.bad_copy.is_none();
        self.loses_data = is_quiet && self.style != Style::Large && rng.chance(1, 4);
    }

    /// Returns whether some fillings may have parity.
    pub(crate) fn may_have_parity(&self) -> bool {
        self.parity != ParityForm::None || self.changes_parity
    }

    /// Returns the sizes of the drive when it is created.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        let geometry = Geometry::without_far(self.physical_bytes, Some(self.segment_bytes)).ok()?;
        let geometry = Geometry { parity: self.parity, ..geometry };
        if self.far_copies { geometry.with_far().ok() } else { Some(geometry) }
    }

    /// Returns whether hosts lose against each other often: they share blocks, which take a while to prepare.
    pub(crate) fn is_contended(&self) -> bool {
        self.has_bytes && self.conflicts_before_hold < CONFLICTS_BEFORE_HOLD
    }

    /// Returns whether faults other than power cuts and kills occur.
    pub fn is_faulty(&self) -> bool {
        self.does_damage() || self.trouble.faults.read_error_ppm > 0
    }

    /// Returns whether faults with lasting effects occur, other than power cuts, kills and transient read
    /// errors.
    pub fn does_damage(&self) -> bool {
        let f = &self.trouble.faults;
        let errors = [f.sticky_read_error_ppm, f.write_error_ppm, f.sync_error_ppm, f.bad_page_ppm];
        let damage = [f.rot_ppm, f.misdirect_ppm, f.lost_range_ppm];
        let strikes = errors.iter().chain(&damage).any(|&ppm| ppm > 0);
        let is_full = f.full_pages.is_some() || self.trouble.full_on_overwrite_ppm > 0;
        strikes || is_full || !self.trouble.bad_bytes.is_empty()
    }

    /// Returns whether dictionaries are replaced on this drive as often as they are trained.
    pub fn is_learning(&self) -> bool {
        self.lessons || self.uuid[0].is_multiple_of(16) && self.style != Style::Frames
    }

    /// Returns whether dictionaries are trained at all. Training takes more time than everything else.
    pub fn is_training(&self) -> bool {
        self.is_learning() || (self.uuid[0] % 16 == 1 && self.style != Style::Frames)
    }

    /// Returns whether hosts reach the drive through a server. Not on large or sparse drives, which take too
    /// long. A panic ends the server.
    pub fn is_served(&self) -> bool {
        self.uuid[4].is_multiple_of(6) && !matches!(self.style, Style::Large | Style::Sparse)
    }

    /// Returns whether planned panics of the engine occur.
    pub fn panics(&self) -> bool {
        self.uuid[2].is_multiple_of(8)
    }

    /// Returns whether the codec is changed while the drive is in use.
    pub fn changes_codec(&self) -> bool {
        self.uuid[1].is_multiple_of(4) && self.style != Style::Large
    }

    /// Draws another codec, one of those that differ most.
    pub fn draw_other_codec(&self, rng: &mut SimRng) -> Policy {
        [Policy::None, Policy::None, Policy::Lz4, Policy::Auto][rng.index(4)]
    }

    /// Draws the largest number of blocks in a frame, for one opening.
    pub fn draw_frame_blocks(&self, rng: &mut SimRng) -> u64 {
        if self.style == Style::Large || (self.style == Style::Frames && rng.chance(2, 3)) {
            8
        } else {
            1 << rng.below(4)
        }
    }

    /// Draws the number of steps until a crash, if one is planned. Some mistakes show only in a long life.
    pub fn draw_steps(&self, rng: &mut SimRng) -> u64 {
        if self.style.is_large() && rng.chance(1, 2) { rng.below(1 << 13) } else { rng.skewed(11) }
    }

    /// Draws the number of moments in a life at which a crash is tried on a copy.
    pub fn draw_branches(&self, rng: &mut SimRng) -> u32 {
        let most = match self {
            // To open and check a large drive takes a while.
            config if config.is_troubled => [0, 2, 6, 16],
            // So does reading a damaged one block by block over NBD.
            config if config.is_served() && config.does_damage() => [0, 4, 12, 32],
            _ => [0, 16, 48, 128],
        };
        most[rng.index(4)]
    }

    /// Draws the filler of the next write.
    pub fn draw_filler(&self, rng: &mut SimRng) -> Filler {
        self.fillers[rng.index(self.fillers.len())]
    }

    /// Draws the filler of a group that is written as a whole.
    pub fn draw_filler_of_group(&self, rng: &mut SimRng) -> Filler {
        self.palette.draw_filler(rng)
    }

    /// Draws the range of the next operation: first sector and number of sectors, in units of
    /// [`SECTOR_BYTES`].
    pub fn draw_range(&self, rng: &mut SimRng) -> (u64, u64) {
        let sector = u64::from(self.sector_bytes);
        let len = self.draw_len(rng).next_multiple_of(sector);
        let zone = if rng.chance(1, 2) { self.zones[0] } else { self.zones[rng.index(self.zones.len())] };
        let align = if rng.chance(1, 2) { sector } else { 4096 };
        let start = (zone.start + rng.below(zone.len)) / align * align;
        let len = len.min(self.logical_bytes - start);
        (start / SECTOR_BYTES as u64, len / SECTOR_BYTES as u64)
    }

    /// Draws the first sector of a group of [`GROUP_BYTES`].
    pub fn draw_group(&self, rng: &mut SimRng) -> u64 {
        (self.groups.start + rng.below(self.groups.len / GROUP_BYTES) * GROUP_BYTES) / SECTOR_BYTES as u64
    }

    fn draw_len(&self, rng: &mut SimRng) -> u64 {
        let small = self.style == Style::Sparse;
        match rng.below(100) {
            0..20 => 1 + rng.below(16 << 10),
            20..90 if self.style.is_large() => (96 << 10) + rng.below(ATOMIC_BYTES_MAX - (96 << 10)),
            20..30 => 1 + rng.below(4096),
            30..60 => 4096 * (1 + rng.below(4)),
            60.. if small => 1 + rng.below(16 << 10),
            60..85 => 1 + rng.below(64 << 10),
            85..96 => 1 + rng.below(ATOMIC_BYTES_MAX),
            96..99 => ATOMIC_BYTES_MAX,
            _ => 1 + rng.below(2 << 20),
        }
    }
}
