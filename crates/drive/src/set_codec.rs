//! Changing how a drive compresses, while it is used.

use media::Media;

use crate::error::Error;
use crate::recovery::policy_numbers;
use crate::shared::Drive;

impl<M: Media> Drive<M> {
    /// Compresses what is written from now on by another policy; what is there stays as it is. The superblock remembers it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], or what the medium answered.
    pub async fn set_codec(&self, policy: codec::Policy) -> Result<(), Error> {
        let shared = &self.0;
        let _right = shared.maintenance().await;
        let mut superblock = shared.writable_superblock()?;
        let (number, level) = policy_numbers(policy);
        if (superblock.codec_policy, superblock.codec_level) == (number, level) {
            return Ok(());
        }
        (superblock.codec_policy, superblock.codec_level) = (number, level);
        shared.write_superblock(&mut superblock).await?;
        shared.core().superblock = superblock;
        shared.set_codec(policy);
        Ok(())
    }
}
