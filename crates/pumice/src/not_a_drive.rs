//! Error for a file or block device that is not a drive. It names the contents found instead.

use std::path::Path;

use anyhow::{Result, anyhow};
use media::{AnyMedia, Direct, FileMedia};
use service::{IoChoice, ServiceError, run_here};
use status::shown;

use crate::signatures;

/// Replaces the error for a path that is not a drive. Returns other errors unchanged.
pub(crate) fn clarify(error: anyhow::Error) -> anyhow::Error {
    let no_drive = error.chain().find_map(|cause| match cause.downcast_ref::<ServiceError>() {
        Some(ServiceError::Drive { path, source: drive::Error::NotADrive }) => Some(path.clone()),
        _ => None,
    });
    no_drive.and_then(|path| look(&path).ok()).unwrap_or(error)
}

fn look(path: &Path) -> Result<anyhow::Error> {
    run_here(IoChoice::Auto, |_| async {
        let media = AnyMedia::from(FileMedia::open(path, true, Direct::Auto)?);
        Ok(error(path, &media).await)
    })?
}

/// Creates the error for a path that is not a drive, with its likely contents.
async fn error(path: &Path, media: &AnyMedia) -> anyhow::Error {
    let holds = match signatures::find(media).await {
        Ok(Some(what)) => format!(" (holds {what})"),
        Ok(None) => " (blank)".to_string(),
        Err(_) => String::new(),
    };
    anyhow!("{}: not a Pumice drive{holds}; check the path, or make one with `pumice create`", shown(path))
}
