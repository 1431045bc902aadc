//! Changes of a drive as a whole: capacity, size, codec, wipe. A drive that a server has open is changed there,
//! through its admin socket; any other is opened here for the change.

use std::ops::ControlFlow;
use std::path::Path;

use drive::{CreateOptions, Drive, Spawner, WipeOptions, Wiped};
use media::{AnyMedia, FileMedia, Media};
use status::StatusReport;

use crate::answer::Answer;
use crate::client::protocol::Change;
use crate::client::servers::{change, find_served};
use crate::error::ServiceError;
use crate::serving::features::keeps_allocated;
use crate::serving::grow::{allocation, grow};
use crate::serving::open::{OpenSettings, Opened, inspect, open, open_media};
use crate::serving::ownership::{Claimed, Ownership};
use crate::watch::report::report;

/// Sets the logical capacity of the drive at `path`, served or not. Returns the status afterwards.
///
/// # Errors
///
/// Errors of [`Drive::set_logical_capacity`], of opening a drive, and of reaching its server.
pub fn set_capacity(
    path: &Path,
    bytes: u64,
    spawner: Spawner,
) -> Answer<'_, Result<StatusReport, ServiceError>> {
    Box::pin(async move {
        if let Some(report) = change(path, &Change::SetCapacity { bytes })? {
            return Ok(report);
        }
        let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
        // Opening and closing a drive leaves traces. Not if the change is refused anyway.
        inspect(path, false, spawner.clone()).await?.check_logical_capacity(bytes).map_err(failed)?;
        let mut opened = open(path, &OpenSettings::default(), spawner, None).await?;
        let changed = opened.drive.set_logical_capacity(bytes).await.map_err(failed);
        let closed = opened.close().await.map_err(failed);
        changed.and(closed)?;
        Ok(report_of(path, &opened).await)
    })
}

/// Compresses future writes to the drive at `path` by another policy, served or not. Returns the previous codec and
/// the status afterwards.
///
/// # Errors
///
/// Errors of [`Drive::set_codec`], of opening a drive, and of reaching its server.
pub fn set_codec(
    path: &Path,
    policy: codec::Policy,
    spawner: Spawner,
) -> Answer<'_, Result<(String, StatusReport), ServiceError>> {
    Box::pin(async move {
        if let Some(served) = find_served(path)?
            && let Some(report) = change(path, &Change::SetCodec { codec: policy.to_string() })?
        {
            return Ok((served.codec, report));
        }
        let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
        let before = inspect(path, false, spawner.clone()).await?.status().codec;
        let mut opened = open(path, &OpenSettings::default(), spawner, None).await?;
        let changed = opened.drive.set_codec(policy).await.map_err(failed);
        let closed = opened.close().await.map_err(failed);
        changed.and(closed)?;
        Ok((before.to_string(), report_of(path, &opened).await))
    })
}

/// Sets the physical size of the drive at `path`, served or not. A file is extended first.
///
/// # Errors
///
/// Errors of [`Drive::set_physical_size`], of opening a drive, and of reaching its server.
pub fn set_size(
    path: &Path,
    bytes: u64,
    preallocate: bool,
    spawner: Spawner,
) -> Answer<'_, Result<StatusReport, ServiceError>> {
    Box::pin(async move {
        if let Some(report) = change(path, &Change::SetSize { bytes, preallocate })? {
            return Ok(report);
        }
        let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
        inspect(path, false, spawner.clone()).await?.check_physical_size(bytes).map_err(failed)?;
        let mut opened = open(path, &OpenSettings::default(), spawner, None).await?;
        let changed = {
            let backing = (&opened.media, opened.lease().map(|lease| &**lease));
            grow(path, &opened.drive, backing, bytes, allocation(preallocate)).await
        };
        let closed = opened.close().await.map_err(failed);
        changed.and(closed)?;
        Ok(report_of(path, &opened).await)
    })
}

/// Reports a drive that was opened here.
async fn report_of(path: &Path, opened: &Opened) -> StatusReport {
    report(path, &opened.drive.status(), &opened.drive, keeps_allocated(&opened.media).await)
}

/// The space of a wiped drive.
#[derive(Debug)]
pub enum SpaceAfterWipe {
    /// Discarded in the backing.
    Discarded,
    /// Kept by request, or because the drive or the backing cannot discard.
    Kept,
    /// Discarding failed.
    Failed(drive::Error),
}

/// Wipes the drive at `path`, which no server may have. With `discard`, then discards its space in the backing.
/// `progress` gets the bytes done and the total. Returns the state of the space, and the result of the wipe.
/// `take_over` as in [`OpenSettings::take_over`].
///
/// # Errors
///
/// Errors of [`Drive::wipe`], and [`media::MediaError::InUse`] if a server has it. After an error the drive is not
/// wiped.
pub async fn wipe(
    path: &Path,
    options: WipeOptions,
    (discard, take_over): (bool, bool),
    spawner: Spawner,
    progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(SpaceAfterWipe, Wiped), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // Before anything is written.
    options.validate().map_err(failed)?;
    let file = open_media(path, &OpenSettings::default()).await?;
    let owned = Ownership::claim(path, file, Claimed::Drive, take_over, &spawner).await?;
    let wiped = wipe_owned(path, options, discard, progress, &owned.media).await;
    owned.give_back().await;
    wiped
}

async fn wipe_owned(
    path: &Path,
    options: WipeOptions,
    discard: bool,
    progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    media: &AnyMedia,
) -> Result<(SpaceAfterWipe, Wiped), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    let wiped = Drive::wipe(media, options).await.map_err(failed)?;
    if !discard {
        return Ok((SpaceAfterWipe::Kept, wiped));
    }
    let space = match Drive::discard_all(media, progress).await {
        Ok(true) => SpaceAfterWipe::Discarded,
        Ok(false) => SpaceAfterWipe::Kept,
        Err(error) => SpaceAfterWipe::Failed(error),
    };
    Ok((space, wiped))
}

/// Creates a drive on a backing that was opened for writing, whatever is there. `take_over` as in
/// [`OpenSettings::take_over`].
///
/// # Errors
///
/// Errors of [`Drive::create`], and if another process has a drive there, by another path or on another machine.
pub async fn create(
    path: &Path,
    media: &FileMedia,
    options: &CreateOptions,
    take_over: bool,
    spawner: Spawner,
) -> Result<(), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // Before anything is written.
    options.validate(media.size_bytes()).map_err(failed)?;
    let owned =
        Ownership::claim(path, media.clone(), Claimed::Backing(options.uuid), take_over, &spawner).await?;
    let created = Drive::create(&*owned.media, options).await;
    owned.give_back().await;
    created.map_err(failed)
}

/// Makes sure that no other process has a drive on a backing that was opened for writing: what is there is going to be cleared,
/// and the mark of its owner with it. `take_over` as in [`OpenSettings::take_over`].
///
/// # Errors
///
/// [`drive::Error::Owned`] if one has, by another path or on another machine.
pub async fn must_be_free(
    path: &Path,
    media: &FileMedia,
    take_over: bool,
    spawner: Spawner,
) -> Result<(), ServiceError> {
    let owned = Ownership::claim(path, media.clone(), Claimed::Backing([0; 16]), take_over, &spawner).await?;
    owned.give_back().await;
    Ok(())
}
