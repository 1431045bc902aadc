//! The oracle of space, rule 5: free segments are given back to the backing.

use super::{Run, Stop};
use crate::Subject;
use crate::backing::PART_BYTES;
use crate::executor::yield_now;

/// Ticks after which a quiet drive gives back all that is free.
const QUIET_TICKS: u32 = 1100;
/// Ticks between two looks for work.
const TICKS_A_LOOK: u32 = 50;
/// Steps of the executor after each look.
const STEPS_A_LOOK: u32 = 32;

impl<S: Subject> Run<S> {
    /// Checks the rule. The drive is quiet.
    pub(super) fn free_must_be_given_back(&mut self) -> Result<(), Stop> {
        // The clock of a served drive is its server's.
        if self.config.is_served() {
            return Ok(());
        }
        self.flush_quietly()?;
        let quiet = QUIET_TICKS / TICKS_A_LOOK;
        // A small drive discards one segment at a time, and a discard may still be in flight when maintenance
        // ends.
        let most = quiet + 2 * self.space()?.segments as u32;
        for look in 1..=most {
            if let Some(drive) = &self.drive {
                (0..TICKS_A_LOOK).for_each(|_| drive.tick());
            }
            self.maintenance_must_end()?;
            // A discard is in flight for steps of the executor, not for ticks.
            self.do_now("wait", async {
                for _ in 0..STEPS_A_LOOK {
                    yield_now().await;
                }
            })?;
            if look < quiet {
                continue;
            }
            let space = self.space()?;
            let held = self.overwrites.held_parts() * PART_BYTES;
            let in_use = (space.segments - space.free_segments) * space.segment_bytes + space.fixed_bytes;
            if held <= in_use {
                break;
            }
            if look == most {
                return Err(Stop::Failed(format!(
                    "a quiet drive has not given back what is free: its backing holds {held} bytes, and {in_use} are \
                     not free"
                )));
            }
        }
        self.count("space: free segments were given back");
        Ok(())
    }
}
