//! Which fillings parity covers: for tests that lose pages of them.

use layout::ParityForm;
use media::Media;

use crate::shared::Drive;
use crate::state::segments::SegmentState;

/// A filling of which a durable sync says that its parity is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Its segment.
    pub segment: u32,
    /// Number of that filling, drawn at random.
    pub generation: u32,
    /// Where it begins on the backing, in bytes.
    pub position: u64,
    /// Form of its parity.
    pub form: ParityForm,
    /// Number of its last pack.
    pub last_sequence: u64,
}

impl<M: Media> Drive<M> {
    /// Returns the fillings in which something lives and whose rows say that their parity is there.
    pub fn covered(&self) -> Vec<Covered> {
        let mut core = self.0.core();
        core.mark_unchanged();
        let geometry = core.geometry();
        let known = core.segments.known().filter(|(_, row)| {
            row.has_parity() && row.live_units() > 0 && row.state() == SegmentState::Sealed
        });
        let of = |(segment, row): (u32, &crate::state::segment::Segment)| Covered {
            segment,
            generation: row.generation(),
            position: geometry.segment_offset(segment),
            form: row.parity(),
            last_sequence: row.last_sequence(),
        };
        known.map(of).collect()
    }
}
