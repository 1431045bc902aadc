//! Configuration of a story's drive, disk and server.

use std::sync::Arc;

use media::SimRng;

use crate::disk::Pace;
use crate::mode::Mode;
use crate::mount::Cache;

/// Configuration drawn from the seed at the beginning.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Configuration of the drive and workload of its clients, drawn by the simulator.
    pub(super) config: Arc<sim::Config>,
    pub(super) cache: Cache,
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
    pub(super) fn draw(mode: Mode, rng: &mut SimRng) -> Shape {
        let config = sim::Config::draw(rng, false);
        let through = [Cache::WriteThrough, Cache::WriteBack][rng.index(2)];
        let cache = match mode {
            Mode::Direct | Mode::StaleDisk | Mode::Kills | Mode::Attached => Cache::None,
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
        Shape { config: Arc::new(config), cache, pace, io, arguments, cuts: 6 + rng.below(10) }
    }
}
