//! Writing what the backing has two copies of. One good copy is enough at any time.

use std::sync::Arc;

use layout::{Geometry, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;

/// Writes both copies of a superblock, `first` first. Returns the same as [`write_copies`].
pub(crate) async fn write_superblock<M: Media>(
    media: &M,
    superblock: &Superblock,
    first: usize,
) -> Result<[Option<Error>; 2], Error> {
    let mut page = IoBuf::zeroed(PAGE_BYTES);
    page.copy_from_slice(&superblock.encode());
    write_copies(media, [0, 1].map(Geometry::superblock_offset), first, page).await
}

/// Writes both copies durably, one after the other, `first` first, so that one is whole at any time. One is
/// enough: returns for each copy why the medium did not take it, if it did not. If there is no room for the
/// first, nothing has changed: that is an error.
pub(crate) async fn write_copies<M: Media>(
    media: &M,
    offsets: [u64; 2],
    first: usize,
    copy: IoBuf,
) -> Result<[Option<Error>; 2], Error> {
    let copy = Arc::new(copy);
    let mut taken = Taken::first(first);
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
    first: usize,
    errors: [Option<Error>; 2],
}

impl Taken {
    /// No copy is written yet. This one will be the first.
    pub(crate) fn first(first: usize) -> Taken {
        Taken { first, errors: [None, None] }
    }

    /// Numbers of the copies, in the order of writing.
    pub(crate) fn order(&self) -> [usize; 2] {
        [self.first, 1 - self.first]
    }

    /// Notes whether the medium took a copy. There is no room for the first: that is an error.
    pub(crate) fn note(&mut self, copy: usize, written: Result<(), Error>) -> Result<(), Error> {
        match written {
            Err(Error::BackingFull) if copy == self.first => Err(Error::BackingFull),
            written => {
                self.errors[copy] = written.err();
                Ok(())
            }
        }
    }

    /// Returns the same as [`write_copies`].
    pub(crate) fn finish(self) -> Result<[Option<Error>; 2], Error> {
        match self.errors {
            [Some(error), Some(_)] => Err(error),
            errors => Ok(errors),
        }
    }
}

/// Handles a result of [`write_copies`]: if there was no room for a copy, its place is not bad for that.
pub(crate) fn with_room(answers: [Option<Error>; 2]) -> Result<[Option<Error>; 2], Error> {
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
