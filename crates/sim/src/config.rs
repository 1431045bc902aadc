//! What a seed's drive and its clients are like.

use codec::Policy;
use media::{Faults, SimRng};

use crate::content::{Filler, SECTOR_BYTES};
use crate::executor::SLOTS_END_BYTES;
use crate::oracle::ATOMIC_BYTES_MAX;

/// The fewest segments a drive can live on, and what does not make a whole one.
const SEGMENTS_MIN: u64 = 26;

/// What the clients are up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Everything at a few places.
    Mixed,
    /// More data than the drive can hold.
    Fill,
    /// The same data again and again, so that the log goes round and cleaning has to keep up.
    Churn,
    /// Small writes all over a huge drive: a large map.
    Sparse,
    /// Incompressible data until the drive refuses it, and then everything that can be done with a full drive.
    Full,
}

impl Style {
    /// Whether it is about volume.
    fn is_large(self) -> bool {
        matches!(self, Style::Fill | Style::Churn | Style::Full)
    }
}

/// A stretch of the drive that clients like, in bytes.
#[derive(Clone, Copy, Debug)]
struct Zone {
    start: u64,
    len: u64,
}

/// The shape of a seed.
#[derive(Clone, Debug)]
pub struct Config {
    /// Of the drive.
    pub uuid: [u8; 16],
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Segment size.
    pub segment_bytes: u32,
    /// Size of the backing.
    pub physical_bytes: u64,
    /// Of the backing; where it is larger, the drive grows into it while it is used.
    pub backing_bytes: u64,
    /// What the host sees.
    pub logical_bytes: u64,
    /// How blocks are compressed.
    pub codec: Policy,
    /// Memory for map nodes.
    pub map_budget_bytes: u64,
    /// Log between checkpoints.
    pub checkpoint_bytes: u64,
    /// Off: every write is durable before it is acknowledged.
    pub write_cache: bool,
    /// Clients at a time.
    pub clients: u32,
    /// Operations of a client in a life.
    pub operations: u32,
    /// Of 32 requests, how many are given up if they take a while.
    pub drops: u64,
    /// Lives of the drive.
    pub lives: u32,
    /// What the clients are up to.
    pub style: Style,
    /// Beats from one tick of the drive's to the next, unless nothing else moves.
    pub beats_per_tick: u64,
    /// Of 16 beats, how many do some maintenance.
    pub maintenance: u64,
    /// The faults that are on while clients are at work. None in most seeds.
    pub faults: Faults,
    zones: Vec<Zone>,
    fillers: Vec<Filler>,
}

impl Config {
    /// Draws a shape.
    pub fn draw(rng: &mut SimRng) -> Config {
        let style = match rng.below(12) {
            0 => Style::Fill,
            1 | 2 => Style::Sparse,
            3 | 4 => Style::Churn,
            5 => Style::Full,
            _ => Style::Mixed,
        };
        let segment_bytes: u32 = if style.is_large() || rng.chance(3, 4) { 512 << 10 } else { 1 << 20 };
        let segments = SEGMENTS_MIN + if style.is_large() { 0 } else { rng.skewed(5) };
        let physical_bytes = segments * u64::from(segment_bytes) + 4096 * rng.below(64);
        let logical_bytes = match style {
            Style::Sparse => 1 << (36 + rng.below(5)),
            Style::Fill | Style::Full => physical_bytes * (1 + rng.below(2)) / 4096 * 4096,
            Style::Mixed | Style::Churn => physical_bytes * (1 + rng.below(4)),
        };
        let codecs = [Policy::Auto, Policy::Lz4, Policy::Lz4, Policy::Zstd(1), Policy::None];
        let fillers = match style {
            Style::Full => vec![Filler::Random],
            Style::Fill | Style::Churn => {
                vec![Filler::Random, Filler::Random, Filler::Random, Filler::Mixed, Filler::Zero]
            }
            _ => Filler::ALL.into_iter().chain([Filler::Text, Filler::Mixed, Filler::Random]).collect(),
        };
        let mut uuid = [0; 16];
        uuid.fill_with(|| rng.next_u64() as u8);
        Config {
            uuid,
            sector_bytes: if rng.chance(3, 4) { 512 } else { 4096 },
            segment_bytes,
            physical_bytes,
            backing_bytes: if rng.chance(1, 4) {
                physical_bytes * (2 + rng.below(2))
            } else {
                physical_bytes
            },
            logical_bytes,
            codec: codecs[rng.index(codecs.len())],
            map_budget_bytes: [64 << 10, 64 << 10, 96 << 10, 256 << 10, 16 << 20, 16 << 20][rng.index(6)],
            checkpoint_bytes: (256 << 10) << rng.below(9),
            write_cache: rng.chance(7, 8),
            clients: 1 + rng.below(6) as u32,
            operations: match style {
                Style::Mixed => 4 + rng.below(24),
                Style::Full => 40 + rng.below(60),
                _ => 20 + rng.below(30),
            } as u32,
            drops: [0, 0, 1, 8][rng.index(4)],
            lives: 1 + rng.below(5) as u32,
            style,
            beats_per_tick: [1, 4, 32][rng.index(3)],
            maintenance: [1, 4, 10, 16][rng.index(4)],
            faults: if rng.chance(1, 4) { draw_faults(rng, physical_bytes) } else { Faults::default() },
            zones: draw_zones(rng, style, physical_bytes, logical_bytes),
            fillers,
        }
    }

    /// Whether anything but power cuts and kills goes wrong.
    pub fn is_faulty(&self) -> bool {
        self.does_damage() || self.faults.read_error_ppm > 0
    }

    /// Whether anything goes wrong that does not pass, as power cuts, kills and some errors of reading do.
    pub fn does_damage(&self) -> bool {
        let f = &self.faults;
        let rates =
            [f.sticky_read_error_ppm, f.write_error_ppm, f.sync_error_ppm, f.rot_ppm, f.misdirect_ppm];
        rates.iter().any(|&ppm| ppm > 0) || f.full_pages.is_some()
    }

    /// Whether dictionaries come and go on this drive, as often as they are trained.
    pub fn is_learning(&self) -> bool {
        self.uuid[0].is_multiple_of(4)
    }

    /// How the next write shall look.
    pub fn draw_filler(&self, rng: &mut SimRng) -> Filler {
        self.fillers[rng.index(self.fillers.len())]
    }

    /// Where the next operation shall go: first sector and number of them, in sectors of [`SECTOR_BYTES`].
    pub fn draw_range(&self, rng: &mut SimRng) -> (u64, u64) {
        let sector = u64::from(self.sector_bytes);
        let len = self.draw_len(rng).next_multiple_of(sector);
        let zone = if rng.chance(1, 2) { self.zones[0] } else { self.zones[rng.index(self.zones.len())] };
        let align = if rng.chance(1, 2) { sector } else { 4096 };
        let start = (zone.start + rng.below(zone.len)) / align * align;
        let len = len.min(self.logical_bytes - start);
        (start / SECTOR_BYTES as u64, len / SECTOR_BYTES as u64)
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

/// The first zone is the hottest. Zones may overlap and lie across anything.
fn draw_zones(rng: &mut SimRng, style: Style, physical_bytes: u64, logical_bytes: u64) -> Vec<Zone> {
    let share = rng.index(4);
    let mut zone = |len: u64| {
        let len = len.min(logical_bytes);
        Zone { start: rng.below(logical_bytes - len + 1) / 4096 * 4096, len: len / 4096 * 4096 }
    };
    match style {
        Style::Fill | Style::Full => vec![zone(16 << 20), zone(16 << 20), zone(1 << 20)],
        Style::Churn => {
            // From hardly any cleaning to hardly anything else.
            let share = [15, 30, 45, 60][share];
            vec![zone(physical_bytes * share / 100), zone(1 << 20), zone(64 << 10)]
        }
        Style::Sparse => vec![zone(logical_bytes), zone(64 << 30), zone(1 << 30), zone(64 << 10)],
        Style::Mixed => vec![zone(32 << 10), zone(512 << 10), zone(2 << 20), zone(logical_bytes)],
    }
}

fn draw_faults(rng: &mut SimRng, physical_bytes: u64) -> Faults {
    let mut faults = Faults::default();
    // One kind of trouble at a time, mostly: several at once hide each other.
    for _ in 0..1 + rng.below(2) {
        let ppm = 1000 << rng.below(4);
        match rng.below(9) {
            0 => faults.read_error_ppm = ppm * 5,
            1 => faults.sticky_read_error_ppm = ppm,
            2 => faults.write_error_ppm = ppm,
            3 | 4 => faults.sync_error_ppm = ppm * 8,
            5 | 6 => faults.rot_ppm = ppm * 8,
            7 => {
                faults.misdirect_ppm = ppm * 8;
                // Copies of superblock and checkpoints.
                faults.misdirect_once_below_bytes = SLOTS_END_BYTES;
            }
            _ => faults.full_pages = Some(physical_bytes / 4096 / (2 + rng.below(4))),
        }
    }
    faults.no_discard = rng.chance(1, 4);
    faults
}
