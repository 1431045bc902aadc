//! Background work of a served drive: cleaning and checkpoints (`background`), training and settling (`improve`, on
//! the thread of `compute`), and scrubbing.

pub(crate) mod background;
pub(crate) mod compute;
pub(crate) mod improve;
pub(crate) mod pause;
pub(crate) mod scrub;
