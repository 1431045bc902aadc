//! Data sets of the user.

use std::path::PathBuf;

use crate::target::file_id;

/// A data set of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Its name. Those of Canonical's table are `warp`, `jpeg`, `covid`, `yuv` and `h264`.
    pub name: String,
    /// Folder or file.
    pub path: PathBuf,
}

/// Refuses data sets that reports could not tell apart, and those that are one and the same.
///
/// # Errors
/// Says which two have the same name, or lead to the same folder or file.
pub fn distinct_data(sets: &[DataSet]) -> std::result::Result<(), String> {
    for (at, set) in sets.iter().enumerate() {
        let id = file_id(&set.path);
        for other in &sets[..at] {
            if other.name == set.name {
                return Err(format!("data set {}: given twice, expected another name for each", set.name));
            }
            if id.is_some() && file_id(&other.path) == id {
                return Err(format!("data set {}: is the same as {}: leave one out", set.name, other.name));
            }
        }
    }
    Ok(())
}
