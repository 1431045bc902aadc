//! Closes a drive, and discards the free space that its backing still holds.

use std::time::{Duration, Instant};

use drive::{Drive, Error};
use media::Media;

use crate::serving::run_memory::RunMemory;

/// Time limit of the discards: a client may wait for the close. The rest is discarded after the next opening.
const GIVE_BACK_PATIENCE: Duration = Duration::from_secs(5);

/// Closes a drive, removes the memory of its run, and discards its free space.
///
/// # Errors
///
/// Those of [`Drive::close`]. The memory is still there then: the next opening may need it.
pub(crate) async fn close<M: Media>(drive: &Drive<M>, memory: &mut Option<RunMemory>) -> Result<(), Error> {
    drive.close().await?;
    if let Some(memory) = memory.take() {
        memory.remove();
    }
    let since = Instant::now();
    while since.elapsed() < GIVE_BACK_PATIENCE && drive.discard_closed().await {}
    Ok(())
}
