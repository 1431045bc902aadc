//! Client side of the admin sockets of servers on this machine: where the sockets are (`runtime_dir`), what is sent
//! (`protocol`, `exchange`), and which drives the servers have (`servers`).

pub(crate) mod exchange;
pub(crate) mod protocol;
pub(crate) mod runtime_dir;
pub(crate) mod servers;
