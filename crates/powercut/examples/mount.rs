//! Mounts the disk of the power cuts at a folder until a line comes from standard input: `mount FOLDER CACHE`.

use std::sync::Arc;

use media::SimRng;
use powercut::disk::{Disk, Pace, Stale};
use powercut::mount::{Cache, Mounted};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let cache = match arguments[2].as_str() {
        "direct" => Cache::None,
        "through" => Cache::WriteThrough,
        _ => Cache::WriteBack,
    };
    let pace = Pace { write_us_max: 500, sync_us_max: 2000 };
    let disk = Arc::new(Disk::new(64 << 20, pace, Stale::Hidden, SimRng::new(1)));
    let mounted = Mounted::new(disk, cache, std::path::Path::new(&arguments[1]))?;
    std::io::stdin().read_line(&mut String::new())?;
    mounted.unmount()
}
