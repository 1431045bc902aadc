//! Changes of a whole drive: capacity, size, codec, parity, wipe. A drive that a server has open is changed
//! through its admin socket. Any other is opened here.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ask::{Change, change, find_served};
use drive::{CreateOptions, Drive, Spawner, WipeOptions, WipeTarget, Wiped};
use layout::ParityForm;
use media::{AnyMedia, FileMedia, Lease, LeaseLost, Media};
use status::StatusReport;
use tokio::runtime::Handle;

use crate::answer::Answer;
use crate::error::{PrepareError, ServiceError};
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
        // Opening and closing a drive writes to it. A refused change must not.
        inspect(path, false, spawner.clone()).await?.check_logical_capacity(bytes).map_err(failed)?;
        let mut opened = open(path, &OpenSettings::default(), spawner, None).await?;
        let changed = opened.drive.set_logical_capacity(bytes).await.map_err(failed);
        let closed = opened.close().await.map_err(failed);
        changed.and(closed)?;
        Ok(report_of(path, &opened).await)
    })
}

/// Compresses future writes to the drive at `path` by another policy, served or not. Returns the previous
/// codec and the status afterwards.
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

/// Sets apart another share of new segments for parity, on the drive at `path`, served or not. Returns the
/// previous form and the status afterwards.
///
/// # Errors
///
/// Errors of [`Drive::set_parity`], of opening a drive, and of reaching its server.
pub fn set_parity(
    path: &Path,
    form: ParityForm,
    spawner: Spawner,
) -> Answer<'_, Result<(String, StatusReport), ServiceError>> {
    Box::pin(async move {
        if let Some(served) = find_served(path)?
            && let Some(report) = change(path, &Change::SetParity { parity: form.to_string() })?
        {
            return Ok((served.parity.form, report));
        }
        let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
        // Opening and closing a drive writes to it. A refused change must not.
        let drive = inspect(path, false, spawner.clone()).await?;
        drive.check_parity(form).map_err(failed)?;
        let before = drive.status().parity.form;
        drop(drive);
        let mut opened = open(path, &OpenSettings::default(), spawner, None).await?;
        let changed = opened.drive.set_parity(form).await.map_err(failed);
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

/// How a drive is wiped.
#[derive(Clone, Copy, Debug)]
pub struct Wipe {
    /// Settings that change.
    pub options: WipeOptions,
    /// Then its space in the backing is discarded.
    pub discard: bool,
    /// See [`OpenSettings::take_over`].
    pub take_over: bool,
}

/// Wipes the drive at `path`, which no server may have. `progress` gets the bytes discarded and the total.
/// Returns the state of the space, and the result of the wipe.
///
/// # Errors
///
/// Errors of [`Drive::wipe`], and [`media::MediaError::InUse`] if a server has it. After an error the drive
/// is not wiped.
pub async fn wipe(
    path: &Path,
    Wipe { options, discard, take_over }: Wipe,
    spawner: Spawner,
    progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(SpaceAfterWipe, Wiped), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // Before anything is written.
    options.validate().map_err(failed)?;
    let file = open_media(path, &OpenSettings::default()).await?;
    if options.target != WipeTarget::Any {
        // A claim takes another drive from its owner.
        Drive::must_be_wiped(&file, &options).await.map_err(failed)?;
    }
    let refused = |error| without_room(path, "wiped", &file, error);
    let owned = Ownership::claim(path, file.clone(), Claimed::Drive, take_over, &spawner).await;
    let owned = owned.map_err(refused)?;
    let wiped = wipe_owned(path, options, discard, progress, &owned.media).await;
    owned.give_back().await;
    wiped.map_err(refused)
}

/// Returns the error of a change that needs room on the backing, and is no opening: it cannot be done
/// read-only instead.
fn without_room(path: &Path, verb: &'static str, file: &FileMedia, error: ServiceError) -> ServiceError {
    use ServiceError::{BackingFull, BeyondLimit, Drive, NoRoom, Prepare};
    let lacks_room = match &error {
        BackingFull { .. } | Drive { source: drive::Error::BackingFull, .. } => true,
        Prepare(error) => is_without_room(&**error),
        _ => false,
    };
    let path = path.to_path_buf();
    match file.size_limit() {
        _ if !lacks_room => error,
        Some(limit) => BeyondLimit { path, verb, limit },
        None => NoRoom { path, verb },
    }
}

/// Returns whether a backing could not be prepared because it has no room.
fn is_without_room(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut kinds = causes.filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
    kinds.any(|kind| {
        matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    })
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

/// The right to change a backing, for code that blocks its thread.
pub struct MayChange {
    lease: Arc<Lease>,
    runtime: Handle,
}

impl MayChange {
    /// Waits until the backing may be changed. To be called just before each write.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another process has the backing now.
    pub fn confirm(&self) -> Result<(), LeaseLost> {
        self.runtime.block_on(self.lease.confirm())
    }
}

/// Prepares a backing for a new drive, on a thread of its own: it clears what is there, or refuses it by an
/// error. The owner pages ([`layout::owner`]) hold the claim, and must stay.
pub type Prepare = Box<dyn FnOnce(&MayChange) -> Result<(), PrepareError> + Send>;

/// Creates a drive on a backing that was opened for writing, once that is claimed and then prepared.
/// `take_over` as in [`OpenSettings::take_over`].
///
/// # Errors
///
/// Errors of [`Drive::create`] and of `prepare`, and if another process has a drive there, by another path or
/// on another machine.
pub async fn create(
    path: &Path,
    media: &FileMedia,
    options: &CreateOptions,
    take_over: bool,
    prepare: Prepare,
    spawner: Spawner,
) -> Result<(), ServiceError> {
    let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
    // Before anything is written.
    options.validate(media.size_bytes()).map_err(failed)?;
    let refused = |error| without_room(path, "created", media, error);
    let what = Claimed::Backing(options.uuid);
    let owned = Ownership::claim(path, media.clone(), what, take_over, &spawner).await.map_err(refused)?;
    let right = MayChange { lease: owned.lease.clone(), runtime: Handle::current() };
    // On another thread: this one keeps checking the mark.
    let prepared = tokio::task::spawn_blocking(move || prepare(&right)).await;
    let created = match prepared {
        Ok(Ok(())) => Drive::create(&*owned.media, options).await.map_err(failed),
        Ok(Err(error)) => Err(ServiceError::Prepare(error)),
        Err(_) => Err(ServiceError::WorkerGone),
    };
    owned.give_back().await;
    created.map_err(refused)
}
