//! Names that administrators of ScaleFlux drives know: drive numbers, links `/dev/sfdvNn1`, and files with
//! the values that its driver shows in sysfs.
//!
//! The run-time directory, root's own and readable by all:
//!
//! ```text
//! /run/pumice-sfx/sfdv0n1/drive                                 path of the drive with number 0
//! /run/pumice-sfx/sfdv0n1/sfx_smart_features/sfx_capacity_stat  and other values, while it is attached
//! ```
//!
//! Source of names and values: Hyperscalers, *Gluster Scale Out Storage for Cloud using Computational Storage
//! Drives*, 2022.

mod link;
mod numbers;
mod publish;
mod values;

pub use link::{Link, link, linked};
pub(crate) use numbers::last_node;
pub use numbers::{claim, directory, drive, name, node, number_of};
pub(crate) use publish::{Published, clear};
