//! Writing what the backing has several copies of. One good copy is enough at any time.

use std::sync::Arc;

use layout::{PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;

/// For each copy, why the medium did not take it, if it did not.
pub(crate) type Answers = Vec<Option<Error>>;

/// Writes all copies of a superblock, in this order. Returns the same as [`write_copies`].
pub(crate) async fn write_superblock<M: Media>(
    media: &M,
    superblock: &Superblock,
    order: Vec<usize>,
) -> Result<Answers, Error> {
    let mut page = IoBuf::zeroed(PAGE_BYTES);
    page.copy_from_slice(&superblock.encode());
    write_copies(media, &superblock.geometry.superblock_places(), order, page).await
}

/// Writes all copies durably, one after the other, in this order, so that one is whole at any time. One is
/// enough: returns for each copy why the medium did not take it, if it did not. If there is no room for the
/// first, nothing has changed: that is an error.
pub(crate) async fn write_copies<M: Media>(
    media: &M,
    offsets: &[u64],
    order: Vec<usize>,
    copy: IoBuf,
) -> Result<Answers, Error> {
    let copy = Arc::new(copy);
    let mut taken = Taken::in_order(order);
    for at in taken.order() {
        // With a page cache, a page that takes no write shows as a failed sync.
        let written = async {
            write(media, offsets[at], copy.clone()).await?;
            sync(media).await
        };
        taken.note(at, written.await)?;
    }
    taken.finish()
}

/// Which copies the medium took, while they are written.
pub(crate) struct Taken {
    order: Vec<usize>,
    errors: Answers,
}

impl Taken {
    /// No copy is written yet. They will be in this order.
    pub(crate) fn in_order(order: Vec<usize>) -> Taken {
        let errors = vec![None; order.len()];
        Taken { order, errors }
    }

    /// Numbers of the copies, in the order of writing.
    pub(crate) fn order(&self) -> Vec<usize> {
        self.order.clone()
    }

    /// Notes whether the medium took a copy. There is no room for the first: that is an error.
    pub(crate) fn note(&mut self, copy: usize, written: Result<(), Error>) -> Result<(), Error> {
        match written {
            Err(Error::BackingFull) if self.order.first() == Some(&copy) => Err(Error::BackingFull),
            written => {
                self.errors[copy] = written.err();
                Ok(())
            }
        }
    }

    /// Returns the same as [`write_copies`].
    pub(crate) fn finish(self) -> Result<Answers, Error> {
        match self.errors.iter().all(Option::is_some) {
            true => Err(self.errors.into_iter().flatten().next().unwrap_or(Error::NotADrive)),
            false => Ok(self.errors),
        }
    }
}

/// Handles a result of [`write_copies`]: if there was no room for a copy, its place is not bad for that.
pub(crate) fn with_room(answers: Answers) -> Result<Answers, Error> {
    match answers.contains(&Some(Error::BackingFull)) {
        true => Err(Error::BackingFull),
        false => Ok(answers),
    }
}

pub(crate) async fn write<M: Media>(media: &M, offset: u64, buf: Arc<IoBuf>) -> Result<(), Error> {
    let doing = || format!("writing at byte {offset:#x} of the backing");
    media.write(offset, buf).await.map_err(|error| Error::not_taken(&doing(), &error))
}

pub(crate) async fn sync<M: Media>(media: &M) -> Result<(), Error> {
    media.sync().await.map_err(|error| Error::not_taken("a sync of the backing failed", &error))
}
