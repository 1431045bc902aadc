//! Changing a drive as a whole: its capacity, its size, its codec, its being anything but empty. What a server has open changes
//! there, through its admin socket; what lies idle is opened for it here.

use std::path::Path;
use std::sync::Arc;

use drive::{Drive, Spawner, WipeOptions, Wiped};
use media::{Allocation, AnyMedia, Media};
use status::StatusReport;

use crate::control::admin::{Change, change, find_served};
use crate::error::ServiceError;
use crate::serving::features::keeps_allocated;
use crate::serving::open::{OpenSettings, inspect, open, open_media};
use crate::watch::report::report;

/// Sets the logical capacity of the drive at `path`, served or not. Answers how the drive is then.
///
/// # Errors
/// As [`Drive::set_logical_capacity`] and for opening a drive or reaching its server.
pub async fn set_capacity(path: &Path, bytes: u64, spawner: Spawner) -> Result<StatusReport, ServiceError> {
    if let Some(report) = change(path, &Change::SetCapacity { bytes })? {
        return Ok(report);
    }
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // Opening and closing a drive leaves its marks: not for what is refused anyway.
    inspect(path, false, spawner.clone()).await?.check_logical_capacity(bytes).map_err(failed)?;
    let (drive, media) = open(path, &OpenSettings::default(), spawner, None).await?;
    let changed = drive.set_logical_capacity(bytes).await.map_err(failed);
    let closed = drive.close().await.map_err(failed);
    changed.and(closed)?;
    Ok(report_of(path, &drive, &media).await)
}

/// Compresses what is written to the drive at `path` from now on by another policy, served or not. Answers the codec that it
/// had, and how the drive is then.
///
/// # Errors
/// As [`Drive::set_codec`] and for opening a drive or reaching its server.
pub async fn set_codec(
    path: &Path,
    policy: codec::Policy,
    spawner: Spawner,
) -> Result<(String, StatusReport), ServiceError> {
    if let Some(served) = find_served(Some(path)).into_iter().next()
        && let Some(report) = change(path, &Change::SetCodec { codec: policy.to_string() })?
    {
        return Ok((served.codec, report));
    }
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    let before = inspect(path, false, spawner.clone()).await?.status().codec;
    let (drive, media) = open(path, &OpenSettings::default(), spawner, None).await?;
    let changed = drive.set_codec(policy).await.map_err(failed);
    let closed = drive.close().await.map_err(failed);
    changed.and(closed)?;
    Ok((before.to_string(), report_of(path, &drive, &media).await))
}

/// Sets the physical size of the drive at `path`, served or not; a file is made longer first.
///
/// # Errors
/// As [`Drive::set_physical_size`] and for opening a drive or reaching its server.
pub async fn set_size(
    path: &Path,
    bytes: u64,
    preallocate: bool,
    spawner: Spawner,
) -> Result<StatusReport, ServiceError> {
    if let Some(report) = change(path, &Change::SetSize { bytes, preallocate })? {
        return Ok(report);
    }
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    inspect(path, false, spawner.clone()).await?.check_physical_size(bytes).map_err(failed)?;
    let (drive, media) = open(path, &OpenSettings::default(), spawner, None).await?;
    let changed = grow(path, &drive, &media, bytes, allocation(preallocate)).await;
    let closed = drive.close().await.map_err(failed);
    changed.and(closed)?;
    Ok(report_of(path, &drive, &media).await)
}

/// Reports a drive that was opened here.
async fn report_of(path: &Path, drive: &Drive<AnyMedia>, media: &AnyMedia) -> StatusReport {
    report(path, &drive.status(), drive, keeps_allocated(media).await)
}

pub(crate) fn allocation(preallocate: bool) -> Allocation {
    if preallocate { Allocation::Preallocated } else { Allocation::Sparse }
}

/// Makes the backing long enough, then lets the drive use it.
pub(crate) async fn grow(
    path: &Path,
    drive: &Drive<AnyMedia>,
    media: &Arc<AnyMedia>,
    bytes: u64,
    allocation: Allocation,
) -> Result<(), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // What the drive would refuse must not have made the file longer.
    drive.check_physical_size(bytes).map_err(failed)?;
    if let AnyMedia::File(file) = &**media
        && file.size_bytes() < bytes
    {
        let (media, before) = (media.clone(), file.size_bytes());
        // Taking much space from a filesystem takes a while.
        let grown = tokio::task::spawn_blocking(move || match &*media {
            AnyMedia::File(file) => file.grow(bytes, allocation),
            AnyMedia::Memory(_) => Ok(before),
        });
        grown.await.map_err(|_| ServiceError::WorkerGone)??;
    }
    drive.set_physical_size(bytes).await.map_err(failed)
}

/// The space of a drive that was wiped.
#[derive(Debug)]
pub enum SpaceAfterWipe {
    /// It was given back to the backing.
    Discarded,
    /// It was not, by request, or because the drive or the backing cannot.
    Kept,
    /// Giving it back failed.
    Failed(drive::Error),
}

/// Wipes the drive at `path`, which no server may have; with `discard` gives its space back to the backing then.
/// `progress` gets bytes done and bytes in all.
/// Answers what became of the space, and of the wipe.
///
/// # Errors
/// As [`Drive::wipe`], and [`media::MediaError::InUse`] where a server has it. After an error the drive is not wiped.
pub async fn wipe(
    path: &Path,
    options: WipeOptions,
    discard: bool,
    progress: impl FnMut(u64, u64),
) -> Result<(SpaceAfterWipe, Wiped), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    let media = open_media(path, &OpenSettings::default()).await?;
    let wiped = Drive::wipe(&media, options).await.map_err(failed)?;
    if !discard {
        return Ok((SpaceAfterWipe::Kept, wiped));
    }
    let space = match Drive::discard_all(&media, progress).await {
        Ok(true) => SpaceAfterWipe::Discarded,
        Ok(false) => SpaceAfterWipe::Kept,
        Err(error) => SpaceAfterWipe::Failed(error),
    };
    Ok((space, wiped))
}
