//! Background work of a served drive: cleaning and checkpoints (`background`), training and settling
//! (`improve`), and scrubbing.

pub(crate) mod background;
pub(crate) mod improve;
pub(crate) mod scrub;
