//! Changing how a drive compresses while it is in use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use media::Media;

use crate::error::Error;
use crate::open::create::codecs_of;
use crate::shared::{Drive, Shared};
use crate::state::policy::policy_numbers;

impl<M: Media> Shared<M> {
    /// Records all codecs that records of this run may have.
    pub(crate) async fn know_codecs(self: &Arc<Self>) -> Result<(), Error> {
        let mut superblock = self.writable_superblock()?;
        let codecs = superblock.codecs | codecs_of(self.codec(), self.offload.is_some());
        if codecs != superblock.codecs {
            superblock.codecs = codecs;
            self.write_superblock(&mut superblock).await?;
            self.core().superblock = superblock;
        }
        Ok(())
    }
}

impl<M: Media> Drive<M> {
    /// Compresses future writes by another policy. Existing data stays as it is. The superblock stores the
    /// policy.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], or errors of the medium.
    pub async fn set_codec(&self, policy: codec::Policy) -> Result<(), Error> {
        let shared = &self.0;
        let _right = shared.maintenance().await;
        let mut superblock = shared.writable_superblock()?;
        let (number, level) = policy_numbers(policy);
        if (superblock.codec_policy, superblock.codec_level) == (number, level) {
            return Ok(());
        }
        (superblock.codec_policy, superblock.codec_level) = (number, level);
        // Recorded before the first record with it.
        superblock.codecs |= codecs_of(policy, shared.offload.is_some());
        shared.write_superblock(&mut superblock).await?;
        shared.announce_superblock(superblock.update).await?;
        shared.core().superblock = superblock;
        shared.set_codec(policy);
        Ok(())
    }

    /// Sets whether more is to be written than there is processor time to compress it well. The `auto` policy
    /// then compresses by LZ4, and settling makes up for it later. Other policies are not affected.
    pub fn set_hurried(&self, hurried: bool) {
        self.0.hurried.store(hurried, Ordering::Relaxed);
    }

    /// See [`Drive::set_hurried`].
    pub fn is_hurried(&self) -> bool {
        self.0.hurried.load(Ordering::Relaxed)
    }
}
