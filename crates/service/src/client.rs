//! Client side of the admin sockets of servers on this machine: where the sockets are (`runtime_dir`,
//! `names`), what is sent (`protocol`, `exchange`), which drives the servers have (`servers`), which one has
//! a drive (`search`, `wanted`) or is opening it (`opening`), and whether that is the drive at a path
//! (`other_file`). Also the marks of drives that are attached (`attached`).

pub(crate) mod attached;
pub(crate) mod exchange;
pub(crate) mod names;
pub(crate) mod opening;
pub(crate) mod other_file;
pub(crate) mod protocol;
pub(crate) mod runtime_dir;
pub(crate) mod search;
pub(crate) mod servers;
pub(crate) mod wanted;
