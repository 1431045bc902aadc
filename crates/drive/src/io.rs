pub(crate) mod dense;
pub(crate) mod extents;
pub(crate) mod flush;
pub(crate) mod hold;
pub(crate) mod offloaded;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod write;
