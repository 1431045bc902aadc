//! The machine as the kernel shows it in `/proc` and `/sys`. One function per question: no other crate reads
//! these files.
//!
//! | module | question |
//! | --- | --- |
//! | [`mounts`] | which file systems are mounted, and where |
//! | [`disks`] | which disks are under a file or device |
//! | [`extents`] | where on its device a file is |
//! | [`loops`] | which file is under a loop device |
//! | [`groups`] | how much memory and processor time the control groups of a process allow |
//! | [`block`] | which partitions a device has, and what is made of it |
//! | [`users`] | who has a device open, or a file system on it |
//! | [`in_use`] | users of a file or device: mounts, swap, devices made of it, locks |
//! | [`process`] | name, arguments, state, open files of a process |
//! | [`memory`] [`processors`] | how much memory there is; which processors a process may run on |
//! | [`patience`] | the same, asked again while memory is short |
//! | [`shortage`] | what a process has told it for times when memory is short |
//! | [`file`] | whether two paths lead to the same file or device |
//! | [`foreign`] | the same for files of other processes, whose file systems may hang |
//!
//! Most functions take a [`Root`], so that a directory with such files can stand for the machine.

#![deny(unsafe_code)]

// `tree` names the crate as others do, whose tests include it.
#[cfg(test)]
extern crate self as host;

pub mod block;
pub mod disks;
pub mod extents;
pub mod file;
pub mod foreign;
pub mod groups;
pub mod in_use;
pub mod loops;
pub mod memory;
pub mod mounts;
pub mod patience;
pub mod process;
pub mod processors;
mod root;
pub mod shortage;
#[cfg(test)]
mod tree;
pub mod users;

pub use root::{Root, numbered};
