//! Which faults a seed has.

use media::{Faults, SimRng};

use crate::executor::SLOTS_END_BYTES;

pub(super) fn draw_faults(rng: &mut SimRng, physical_bytes: u64) -> Faults {
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
