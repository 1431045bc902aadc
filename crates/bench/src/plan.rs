//! What scenes are made of.

use std::path::Path;

use crate::budget::Budget;
use crate::options::Options;
use crate::process::Stop;

/// See the module.
pub(crate) struct Plan<'a> {
    pub(crate) options: &'a Options,
    /// Folder for what is made for the run.
    pub(crate) folder: &'a Path,
    /// Size of stores that are made.
    pub(crate) size_bytes: u64,
    pub(crate) budget: &'a Budget,
    pub(crate) stop: &'a Stop,
}
