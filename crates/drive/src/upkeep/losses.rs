//! A look at a segment before it is cleaned, on a drive that has met damage and is short of free segments. A
//! segment with a live record that cannot be read is never free again: to empty it would take room and give
//! none back, and the last free segments with it.

use layout::RecordKind;
use media::Media;

use crate::shared::{Shared, yield_now};
use crate::state::cleaning::{Cleaning, Losses, Pass};
use crate::state::core::Core;
use crate::state::found_record::FoundRecord;
use crate::state::map::Missing;
use crate::upkeep::clean::RECORDS_A_BATCH;

impl<M: Media> Shared<M> {
    /// Returns whether the segment at hand holds live records that were not found in it, as far as the medium
    /// returns no error: another attempt may succeed then.
    pub(crate) async fn look_for_losses(&self, work: &Cleaning, end: u64) -> Losses {
        let Cleaning { segment, generation, at, .. } = *work;
        let mut look = Cleaning {
            segment,
            generation,
            at,
            found_to: 0,
            window: None,
            pass: Pass { scans: true, verifies: true, ..Pass::default() },
            stuck: false,
            is_new: false,
            // It is pinned by the work itself.
            pin: None,
        };
        let mut live_units = 0;
        while look.at < end {
            self.next_window(&mut look, end).await;
            let Some(window) = look.window.take().filter(|_| !look.pass.unreadable) else {
                return Losses::Unread;
            };
            for batch in window.found.chunks(RECORDS_A_BATCH) {
                live_units += loop {
                    let counted = self.core().live_units_of(batch, &look.pass);
                    match counted {
                        Ok(units) => break units,
                        Err(missing) if self.load_for(missing, &mut look.pass).await => {}
                        Err(_) => return Losses::Unread,
                    }
                };
                yield_now().await;
            }
            look.at = window.end;
        }
        // What dies meanwhile was counted, perhaps.
        let core = self.core();
        match core.is_at_hand(work) && u64::from(core.segments.get(work.segment).live_units()) > live_units {
            true => Losses::Some,
            false => Losses::None,
        }
    }
}

impl Core {
    /// Returns whether a segment must not be emptied before a look at what it has lost.
    pub(crate) fn may_meet_losses(&self) -> bool {
        let (damaged, _) = self.segments.set_aside_counts();
        self.is_short() && (damaged > 0 || self.counters.corrupt_records_count > 0)
    }

    /// Returns the units of those of a batch that live, or what must be loaded first.
    fn live_units_of(&mut self, batch: &[FoundRecord], pass: &Pass) -> Result<u64, Missing> {
        let mut units = 0;
        for found in batch {
            let lives = match found.header.kind {
                RecordKind::Data => self.live_blocks(found).map(|blocks| blocks != 0),
                RecordKind::Node => self.has_node(found),
                RecordKind::Range | RecordKind::Overlay => Ok(false),
            };
            match lives {
                Ok(lives) => units += u64::from(lives) * u64::from(found.entry.units()),
                // Nobody knows whether it lives.
                Err(missing) if pass.corrupt_nodes.contains(&missing.id) => {}
                Err(missing) => return Err(missing),
            }
        }
        Ok(units)
    }
}
