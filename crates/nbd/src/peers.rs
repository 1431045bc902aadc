//! The other ends of connections.

pub(crate) mod peer;
pub(crate) mod presence;
pub(crate) mod short;
pub(crate) mod writer;
