//! Error for a file or block device that is not a drive. It names the contents found instead.

use std::path::Path;

use anyhow::{Result, anyhow};
use media::{Direct, FileMedia};
use service::ServiceError;
use status::shown;

use crate::signatures::{self, Contents};

/// Replaces the error for a path that is not a drive. Returns other errors unchanged.
pub(crate) fn clarify(error: anyhow::Error) -> anyhow::Error {
    let no_drive = error.chain().find_map(|cause| match cause.downcast_ref::<ServiceError>() {
        Some(ServiceError::Drive { path, source: drive::Error::NotADrive }) => Some(path.clone()),
        _ => None,
    });
    no_drive.and_then(|path| describe(&path).ok()).unwrap_or(error)
}

/// Creates the error for a path that is not a drive, with its likely contents.
fn describe(path: &Path) -> Result<anyhow::Error> {
    let media = FileMedia::open(path, true, Direct::Auto)?;
    let holds = match media.reopen().and_then(|file| signatures::find(&file, path)).map(Contents::new) {
        Ok(Some(contents)) => format!(" (holds {contents})"),
        Ok(None) => " (blank)".to_string(),
        Err(_) => String::new(),
    };
    Ok(anyhow!(
        "{}: not a Pumice drive{holds}; check the path, or make one with `pumice create`",
        shown(path)
    ))
}
