//! Growth of a drive that is open: first its backing, then the space it uses there.

use std::path::Path;
use std::sync::Arc;

use drive::Drive;
use media::{Allocation, AnyMedia, Lease, Media};

use crate::error::ServiceError;

/// Allocation of a file that is extended, as requested.
pub(crate) fn allocation(preallocate: bool) -> Allocation {
    if preallocate { Allocation::Preallocated } else { Allocation::Sparse }
}

/// Makes the backing long enough, then lets the drive use it. A drive that another process has taken over
/// does not grow.
pub(crate) async fn grow(
    path: &Path,
    drive: &Drive<AnyMedia>,
    (media, lease): (&Arc<AnyMedia>, Option<&Lease>),
    bytes: u64,
    allocation: Allocation,
) -> Result<(), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // If the drive refuses, the file must not have become longer.
    drive.check_physical_size(bytes).map_err(failed)?;
    if let AnyMedia::File(file) = &**media
        && file.size_bytes() < bytes
    {
        if let Some(lease) = lease {
            // Waits for the next check of the mark, if there was none recently. The file is not changed
            // without a lease.
            let lost = |source| ServiceError::LeaseLost { path: path.to_path_buf(), source };
            lease.confirm().await.map_err(lost)?;
        }
        let (media, before) = (media.clone(), file.size_bytes());
        // Allocating much space takes a while.
        let grown = tokio::task::spawn_blocking(move || match &*media {
            AnyMedia::File(file) => file.grow(bytes, allocation),
            AnyMedia::Memory(_) => Ok(before),
        });
        grown.await.map_err(|_| ServiceError::WorkerGone)??;
    }
    drive.set_physical_size(bytes).await.map_err(failed)
}
