//! Which dictionaries new records may need, and which places of retired ones are wanted. The dictionaries
//! themselves are outside the lock ([`Dictionaries`](crate::state::dictionaries::Dictionaries)).

use layout::NextSegment;

use crate::state::freeing::Freeing;

/// Use of dictionaries, by their ids.
#[derive(Default)]
pub(crate) struct DictionaryUse {
    /// Dictionaries with which new records may be compressed.
    pub(crate) active: Vec<u16>,
    /// Retired dictionaries for which the segments that may need them are not counted yet. Records that need
    /// them may still be written.
    pub(crate) outgoing: Vec<u16>,
    /// Segments (with their generations) that heads were in when a dictionary was retired, or when a record
    /// that needs it was written.
    pub(crate) open_at_retirement: Vec<NextSegment>,
    /// Training found dictionaries worth keeping, but there is no place for them.
    pub(crate) places_wanted: bool,
    /// Places are being made.
    pub(crate) freeing: Option<Freeing>,
    /// Passes of that started in this run.
    pub(crate) freeing_passes: u64,
}

impl DictionaryUse {
    /// Returns whether records that need this one may be written.
    pub(crate) fn may_be_needed(&self, id: u16) -> bool {
        self.active.contains(&id) || self.outgoing.contains(&id)
    }

    /// Returns the pass of freeing with this number, while it continues.
    pub(crate) fn pass_of_freeing(&mut self, number: u64) -> Option<&mut Freeing> {
        self.freeing.as_mut().filter(|freeing| freeing.number == number)
    }
}
