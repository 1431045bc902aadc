//! Values of an attached drive, kept current by its bridge.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use parking_lot::Mutex;

use super::{link, numbers, values};
use crate::server::find;

/// Interval of writing values.
const INTERVAL: Duration = Duration::from_secs(1);

/// The number and the values of an attached drive. Dropping it removes the values, and the link if there is one.
pub(crate) struct Published {
    number: u32,
    device: PathBuf,
    /// False once the values are removed.
    is_open: Arc<Mutex<bool>>,
}

impl Published {
    /// Writes the values of the drive at `path`, which is attached as `device`, from now on. `None` if it gets no number: the
    /// drive is more important than that.
    pub(crate) fn start(path: &Path, device: &Path) -> Option<Published> {
        let number = numbers::claim(path)
            .inspect_err(|error| tracing::warn!(%error, "no values under the names of ScaleFlux"))
            .ok()?;
        let published =
            Published { number, device: device.to_path_buf(), is_open: Arc::new(Mutex::new(true)) };
        let (path, folder, is_open) =
            (path.to_path_buf(), numbers::folder(number), published.is_open.clone());
        let write = move || {
            // Without a server, the last values stay.
            let Some(report) = find(&path) else { return true };
            let is_open = is_open.lock();
            if *is_open && let Err(error) = values::write(&folder, &report) {
                tracing::warn!(%error, folder = %folder.display(), "values are not written");
                return false;
            }
            *is_open
        };
        // The first ones are there as soon as the device is.
        write();
        std::thread::spawn(move || {
            while write() {
                sleep(INTERVAL);
            }
        });
        Some(published)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let mut is_open = self.is_open.lock();
        *is_open = false;
        remove(self.number, &self.device);
    }
}

/// Removes what a killed bridge has left of the drive at `path`.
pub(crate) fn clear(path: &Path, device: &Path) {
    // Without a number there is nothing.
    if let Ok(number) = numbers::claim(path) {
        remove(number, device);
    }
}

fn remove(number: u32, device: &Path) {
    values::remove(&numbers::folder(number));
    link::unlink(number, device);
}
