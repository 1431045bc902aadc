//! The error for a file or block device that holds no drive. The engine cannot read its superblock and calls it corrupt,
//! whatever is there.

use std::path::Path;

use anyhow::{Result, anyhow};
use drive::CopyState;
use media::{AnyMedia, Direct, FileMedia};
use service::{IoChoice, ServiceError, run_here};

use crate::signatures;

/// Replaces the error of a drive that is corrupt, if the path does not hold even a damaged drive.
pub(crate) fn clarify(error: anyhow::Error) -> anyhow::Error {
    let corrupt = error.chain().find_map(|cause| match cause.downcast_ref::<ServiceError>() {
        Some(ServiceError::Drive { path, source: drive::Error::Corrupt(_) }) => Some(path.clone()),
        _ => None,
    });
    corrupt.and_then(|path| look(&path).ok().flatten()).unwrap_or(error)
}

/// What is wrong with a path that holds no drive; `None`: it holds one, perhaps a damaged one.
fn look(path: &Path) -> Result<Option<anyhow::Error>> {
    run_here(IoChoice::Auto, |_| async {
        let media = AnyMedia::from(FileMedia::open(path, true, Direct::Auto)?);
        let (superblocks, _) = drive::find_copies(&media).await;
        let none = superblocks.iter().all(|it| matches!(it.state, CopyState::Blank | CopyState::Foreign));
        Ok(if none { Some(error(path, &media).await) } else { None })
    })?
}

/// The error for a path that holds no drive, with what it seems to hold.
pub(crate) async fn error(path: &Path, media: &AnyMedia) -> anyhow::Error {
    let holds = match signatures::find(media).await {
        Ok(Some(what)) => format!(" (holds {what})"),
        Ok(None) => " (blank)".to_string(),
        Err(_) => String::new(),
    };
    anyhow!("{}: not a Pumice drive{holds}; check the path, or make one with `pumice create`", path.display())
}
