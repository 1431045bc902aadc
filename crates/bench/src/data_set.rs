//! Data sets of the user.

use std::path::PathBuf;

use crate::error::{BenchError, Result};
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
pub fn distinct_data(sets: &[DataSet]) -> Result<()> {
    for (at, set) in sets.iter().enumerate() {
        let wrong = |problem| BenchError::DataSet { name: set.name.clone(), problem };
        let id = file_id(&set.path);
        for other in &sets[..at] {
            if other.name == set.name {
                return Err(wrong("given twice, expected another name for each".to_string()));
            }
            if id.is_some() && file_id(&other.path) == id {
                return Err(wrong(format!("is the same as {}: leave one out", other.name)));
            }
        }
    }
    Ok(())
}
