//! A drive that was opened for a caller that may stop waiting for it. It is closed then: its backing is given
//! back, instead of being left as by a killed process.

use status::shown;
use tokio::runtime::Handle;

use crate::serving::open::Opened;
use crate::workers::openings::Opening;

/// A drive that was opened, and has to be taken. If it is dropped before, it is closed on its worker.
pub(crate) struct Untaken {
    opened: Option<(Opened, Opening)>,
    worker: Handle,
}

impl Untaken {
    /// On the worker that has opened the drive.
    pub(crate) fn new(opened: Opened, opening: Opening) -> Untaken {
        Untaken { opened: Some((opened, opening)), worker: Handle::current() }
    }

    /// The drive.
    pub(crate) fn get(&self) -> &Opened {
        match &self.opened {
            Some((opened, _)) => opened,
            None => unreachable!("it is there until it is taken or dropped"),
        }
    }

    /// Takes the drive. From now on the caller closes it.
    pub(crate) fn take(mut self) -> Opened {
        match self.opened.take() {
            Some((opened, _)) => opened,
            None => unreachable!("it is taken once"),
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let Some((mut opened, opening)) = self.opened.take() else { return };
        // If the worker has ended, the drive is left as by a killed process.
        drop(self.worker.spawn(async move {
            let path = opened.path.clone();
            match opened.close().await {
                Ok(()) => tracing::info!(drive = %shown(&path), "closed: its caller stopped waiting"),
                Err(error) => tracing::error!(drive = %shown(&path), %error, "not closed properly"),
            }
            drop(opening);
        }));
    }
}
