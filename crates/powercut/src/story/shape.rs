//! Configuration of a story's drive, disk and server.

use std::sync::Arc;

use layout::ParityForm;
use media::SimRng;

use super::Setting;
use crate::disk::Pace;
use crate::mode::Mode;
use crate::mount::Cache;

/// Segment sizes of drives with parity, in KiB.
const PARITY_SEGMENTS_KIB: [u32; 16] =
    [512, 512, 512, 512, 1024, 1024, 1024, 1024, 1024, 2048, 2048, 2048, 4096, 4096, 8192, 16384];
/// Fewest segments of these, with the space that does not make up a whole one.
const PARITY_SEGMENTS_MIN: u64 = 26;

/// Configuration drawn from the seed at the beginning.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Configuration of the drive and workload of its clients, drawn by the simulator.
    pub(super) config: Arc<sim::Config>,
    pub(super) cache: Cache,
    pub(super) parity: ParityForm,
    pub(super) pace: Pace,
    /// `uring` or `plain`. `plain` with the page cache, because kernels have lost requests of io_uring there:
    /// the server waits for ever for a request that never reached the FUSE file system (seen with Linux
    /// 6.18).
    pub(super) io: &'static str,
    /// Arguments of `pumice serve`.
    pub(super) arguments: Vec<String>,
    /// Least number of power cuts.
    pub(super) cuts: u64,
}

impl Shape {
    pub(super) fn draw(setting: &Setting, rng: &mut SimRng) -> Shape {
        let mode = setting.mode;
        let mut config = sim::Config::draw(rng, false);
        let mut parity = ParityForm::None;
        if mode == Mode::Parity {
            let forms = [ParityForm::Part32, ParityForm::Part64, ParityForm::Part16];
            parity = forms[(setting.seed % forms.len() as u64) as usize];
            config.segment_bytes = PARITY_SEGMENTS_KIB[rng.index(PARITY_SEGMENTS_KIB.len())] << 10;
            let segments = PARITY_SEGMENTS_MIN + rng.skewed(5);
            config.physical_bytes = segments * u64::from(config.segment_bytes) + 4096 * rng.below(64);
        }
        let through = [Cache::WriteThrough, Cache::WriteBack][rng.index(2)];
        let cache = match mode {
            Mode::Direct | Mode::StaleDisk | Mode::Kills | Mode::Attached | Mode::Parity => Cache::None,
            Mode::Cache | Mode::Fsyncgate => through,
        };
        let pace = [
            Pace::default(),
            Pace { write_us_max: 500, sync_us_max: 2000 },
            Pace { write_us_max: 4000, sync_us_max: 1000 },
            Pace { write_us_max: 200, sync_us_max: 12000 },
        ];
        let pace = pace[rng.index(pace.len())];
        let drawn = ["uring", "uring", "plain"][rng.index(3)];
        let io = if cache == Cache::None { drawn } else { "plain" };
        let mut arguments = vec![
            format!("--write-cache={}", if config.write_cache { "on" } else { "off" }),
            format!("--map-cache={}", config.map_budget_bytes),
            format!("--threads={}", 1 + rng.below(2)),
            format!("--background-cpu={}", [0, 10, 100][rng.index(3)]),
        ];
        // With the page cache, half of the servers try direct I/O and are refused, and half do not try.
        let off = rng.chance(1, 2);
        arguments.push(match cache {
            Cache::None => "--direct=on".to_string(),
            _ => format!("--direct={}", if off { "off" } else { "auto" }),
        });
        Shape { config: Arc::new(config), cache, parity, pace, io, arguments, cuts: 6 + rng.below(10) }
    }
}
