//! From an address to a client: listening, accepting, and a server that does both.

pub(crate) mod accept;
pub(crate) mod address;
pub(crate) mod inherited;
pub(crate) mod listener;
pub(crate) mod server;
