//! Closes a drive, and discards the free space that its backing still holds.

use std::time::{Duration, Instant};

use drive::{Drive, Error};
use media::Media;

/// Time limit of the discards: a client may wait for the close. The rest is discarded after the next opening.
const GIVE_BACK_PATIENCE: Duration = Duration::from_secs(5);

/// Closes a drive, and discards its free space.
///
/// # Errors
///
/// Those of [`Drive::close`].
pub(crate) async fn close<M: Media>(drive: &Drive<M>) -> Result<(), Error> {
    drive.close().await?;
    let since = Instant::now();
    while since.elapsed() < GIVE_BACK_PATIENCE && drive.discard_closed().await {}
    Ok(())
}
