//! Closing a drive, and giving back what its backing still holds of free space.

use std::time::{Duration, Instant};

use drive::{Drive, Error};
use media::Media;

/// Time after which what is left is not discarded now, because somebody may wait for the end. It is discarded
/// after the next opening.
const GIVE_BACK_PATIENCE: Duration = Duration::from_secs(5);

/// Closes a drive, and gives free space back.
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
