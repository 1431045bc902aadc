//! Progress of freeing the places of retired dictionaries.

/// A pass over the drive that makes a dictionary's place free.
#[derive(Debug)]
pub(crate) struct Freeing {
    /// Which pass of this run: what a step of an earlier one found says nothing of it.
    pub(crate) number: u64,
    pub(crate) ids: Vec<u16>,
    /// What lies in segments whose newest pack is above this does not need them.
    pub(crate) until: u64,
    pub(crate) next_block: u64,
}
