//! Client side of the admin sockets of servers on this machine: where the sockets are (`runtime_dir`,
//! `names`), what is sent (`protocol`, `exchange`), which drives the servers have (`servers`), which one has
//! a drive (`search`, `wanted`) or is opening it (`opening`), and all of that together (`find`). Also the
//! marks of drives that are attached (`attached`).

pub(crate) mod attached;
pub(crate) mod exchange;
pub(crate) mod find;
pub(crate) mod names;
pub(crate) mod opening;
pub(crate) mod protocol;
pub(crate) mod runtime_dir;
pub(crate) mod search;
pub(crate) mod servers;
pub(crate) mod wanted;
