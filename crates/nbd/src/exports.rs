//! Devices that are offered, and the clients that use them.

pub(crate) mod export;
pub(crate) mod resources;
pub(crate) mod sessions;
