//! Values of an attached drive, kept current by its bridge.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use status::StatusReport;

use super::{link, numbers, values};

/// Least interval of writing values.
const INTERVAL: Duration = Duration::from_millis(900);

/// The number and the values of an attached drive. Dropping it removes the values, and the link if there is
/// one.
pub(crate) struct Published {
    number: u32,
    device: PathBuf,
    written_at: Option<Instant>,
    /// Values cannot be written. That was logged.
    has_failed: bool,
}

impl Published {
    /// Assigns a number to the drive at `path`, which is attached as `device`, and writes its first values.
    /// `None` if it gets no number: the attachment does not fail for that.
    pub(crate) fn start(path: &Path, device: &Path, report: Option<&StatusReport>) -> Option<Published> {
        let number = numbers::claim(path)
            .inspect_err(|error| tracing::warn!(%error, "no values under the names of ScaleFlux"))
            .ok()?;
        let mut published =
            Published { number, device: device.to_path_buf(), written_at: None, has_failed: false };
        // A failure here must not stop anything else.
        let _ = numbers::keep_node(number, device);
        // The values exist as soon as the device does.
        report.into_iter().for_each(|report| published.write(report));
        Some(published)
    }

    /// Updates the links of partitions, if the device has a link.
    pub(crate) fn link_partitions(&self) {
        if link::linked(self.number, &self.device) {
            link::link_partitions(self.number, &self.device);
        }
    }

    /// Writes the values of the drive, at most once a second. Without a server, the last values stay.
    pub(crate) fn write(&mut self, report: &StatusReport) {
        if self.has_failed || self.written_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        self.written_at = Some(Instant::now());
        let folder = numbers::folder(self.number);
        if let Err(error) = values::write(&folder, report) {
            tracing::warn!(%error, folder = %folder.display(), "values are not written");
            self.has_failed = true;
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        remove(self.number, &self.device);
    }
}

/// Removes what a killed bridge left for the drive at `path`.
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
