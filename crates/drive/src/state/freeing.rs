//! Progress of freeing the places of retired dictionaries.

/// A pass over the drive that frees a dictionary's place.
#[derive(Debug)]
pub(crate) struct Freeing {
    /// Number of the pass in this run. Results of an earlier pass do not apply to it.
    pub(crate) number: u64,
    pub(crate) ids: Vec<u16>,
    /// Segments whose newest pack is above this do not need the dictionaries.
    pub(crate) until: u64,
    pub(crate) next_block: u64,
}
