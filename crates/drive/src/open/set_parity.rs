//! Changing what segments set apart for parity while a drive is in use.
//!
//! Nothing moves: it holds for fillings that begin from then on, and cleaning takes the older ones along.
//! The superblock is the commit, as when a drive grows: the first filling of another form comes when it is
//! durable and a checkpoint names it.

use layout::{Features, Geometry, ParityForm, UNIT_BYTES};
use media::{Media, exact_size};

use crate::error::Error;
use crate::shared::Drive;
use crate::state::core::Core;

impl Core {
    /// Live bytes that the drive can hold with this form, and those that it holds.
    fn limit_with(&self, parity: ParityForm) -> (u64, u64) {
        let geometry = Geometry { parity, ..*self.geometry() };
        let limit = self.open_limit_units_of(self.segments.limit_units_with(&geometry));
        (limit * UNIT_BYTES as u64, self.taken_units() * UNIT_BYTES as u64)
    }

    fn must_hold_with(&self, parity: ParityForm) -> Result<(), Error> {
        let (limit, taken) = self.limit_with(parity);
        // A larger limit cannot be too small, also if more was taken than the limit now.
        let (now, _) = self.limit_with(self.geometry().parity);
        if taken <= limit || limit >= now {
            return Ok(());
        }
        let more = exact_size(taken - limit);
        let (taken, limit) = (exact_size(taken), exact_size(limit));
        Err(Error::Invalid(format!(
            "parity {parity} leaves room for {limit} of data and map, and {taken} are in use: free {more} first, or \
             make the drive larger"
        )))
    }
}

impl<M: Media> Drive<M> {
    /// Fillings of segments that begin from now on set apart what `form` says for parity. Parity of older
    /// ones stays. The superblock stores the form; [`Features::PARITY`] stays once it was set, as rows of
    /// segments keep the form of their last filling.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the drive holds more than it could with this form; nothing was changed then.
    /// [`Error::ReadOnly`], or errors of the medium.
    pub async fn set_parity(&self, form: ParityForm) -> Result<(), Error> {
        let shared = &self.0;
        let _right = shared.maintenance().await;
        let mut superblock = shared.writable_superblock()?;
        if superblock.geometry.parity == form {
            return Ok(());
        }
        {
            let mut core = shared.core();
            core.must_hold_with(form)?;
            // What is admitted from here on has room with either form.
            let geometry = Geometry { parity: form, ..superblock.geometry };
            core.segments.lower_limit(&geometry);
        }
        superblock.features.read_only_compatible |= Features::PARITY;
        superblock.geometry.parity = form;
        let mut written = shared.write_superblock(&mut superblock).await;
        if written.is_ok() {
            written = shared.announce_superblock(superblock.update).await;
        }
        {
            let mut core = shared.core();
            if written.is_ok() {
                core.log.set_geometry(superblock.geometry);
                core.superblock = superblock;
            }
            let geometry = *core.geometry();
            core.segments.set_room(geometry);
        }
        // Writers may have been waiting for space.
        shared.progress.notify(usize::MAX);
        written
    }

    /// Checks whether the drive could have parity of this form, also if it is only inspected.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] as for [`Drive::set_parity`].
    pub fn check_parity(&self, form: ParityForm) -> Result<(), Error> {
        self.0.core().must_hold_with(form)
    }
}
