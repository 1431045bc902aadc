//! Whether the drive accepts changes, and why not.

use device::ReadOnly;

use crate::error::Error;

/// Whether the drive accepts changes. It opens for writing or read-only; a failure poisons it, and the last
/// request closes it. None of these is taken back before the next opening.
#[derive(Debug, Default)]
pub(crate) struct Mode {
    /// It was opened to be looked at only, or with damage.
    read_only: Option<ReadOnly>,
    /// Set by a failed write or sync. What the medium holds is unknown from then on.
    poisoned: Option<String>,
    closed: bool,
}

impl Mode {
    pub(crate) fn new(read_only: Option<ReadOnly>) -> Mode {
        Mode { read_only, ..Mode::default() }
    }

    /// Fails if the drive accepts no changes.
    pub(crate) fn writable(&self) -> Result<(), Error> {
        self.trusted()?;
        if let Some(why) = &self.read_only {
            return Err(Error::ReadOnly(why.clone()));
        }
        if self.closed {
            return Err(Error::ReadOnly(ReadOnly::Closed));
        }
        Ok(())
    }

    /// Fails if the drive is poisoned.
    pub(crate) fn trusted(&self) -> Result<(), Error> {
        self.poisoned.as_deref().map_or(Ok(()), |why| Err(Error::poisoned(why)))
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Returns why the drive is poisoned, if it is.
    pub(crate) fn poison_reason(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    /// Returns why the drive was opened read-only, if it was.
    pub(crate) fn read_only(&self) -> Option<&ReadOnly> {
        self.read_only.as_ref()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// No write is trusted from now on. The first reason stays.
    pub(crate) fn poison(&mut self, why: String) {
        tracing::debug!(why, "poisoned");
        self.poisoned.get_or_insert(why);
    }

    /// The opening found damage, perhaps not the first: the drive is read-only.
    pub(crate) fn damaged(&mut self, why: String) {
        let why = match self.read_only.take() {
            Some(ReadOnly::Damaged(before)) => format!("{before}; {why}"),
            _ => why,
        };
        self.read_only = Some(ReadOnly::Damaged(why));
    }

    /// Everything is refused from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }
}
