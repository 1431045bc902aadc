//! Client side of the admin sockets of servers on this machine: where the sockets are (`runtime_dir`), what is sent
//! (`protocol`, `exchange`), which drives the servers have (`servers`), and which one has a drive (`search`).

pub(crate) mod exchange;
pub(crate) mod protocol;
pub(crate) mod runtime_dir;
pub(crate) mod search;
pub(crate) mod servers;
