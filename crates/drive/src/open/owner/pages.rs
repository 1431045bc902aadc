//! Reading and writing the owner pages. One good copy is enough.

use std::sync::Arc;

use layout::owner::{OWNER_BYTES, OWNER_COPIES, Role};
use layout::{Geometry, OwnerPage, PAGE_BYTES};
use media::{IoBuf, Lease, Media};

use crate::error::Error;
use crate::open::copies::{sync, write_copies};

/// What the owner pages say.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pub(super) mark: Option<OwnerPage>,
    /// Those that wait for an answer, or did: the copies may differ for a moment.
    pub(super) challenges: Vec<OwnerPage>,
    pub(super) answers: Vec<OwnerPage>,
}

impl Pages {
    /// Reads them, past the caches of this machine.
    pub(super) async fn read<M: Media>(media: &M) -> Result<Pages, Error> {
        let mut pages = Pages::default();
        let mut unread = None;
        for copy in 0..OWNER_COPIES {
            let offset = Geometry::owner_offset(copy);
            let (buf, result) = media.read_shared(offset, IoBuf::pooled(OWNER_BYTES)).await;
            match result {
                Ok(()) => pages.add(&buf),
                Err(error) => _ = unread.replace(Error::io("reading", offset, &error)),
            }
        }
        // If one cannot be read, the other is relied on.
        match unread {
            Some(error) if pages.mark.is_none() => Err(error),
            _ => Ok(pages),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for (page, role) in bytes.chunks_exact(PAGE_BYTES).zip(Role::ALL) {
            let Ok(found) = OwnerPage::decode(page) else { continue };
            if found.role != role {
                continue;
            }
            match role {
                // Of two that were written at the same time, everybody chooses the same.
                Role::Mark => {
                    let rank = |page: &OwnerPage| (page.sequence, page.run);
                    if self.mark.as_ref().is_none_or(|best| rank(best) < rank(&found)) {
                        self.mark = Some(found);
                    }
                }
                Role::Challenge => self.challenges.push(found),
                Role::Answer => self.answers.push(found),
            }
        }
    }

    /// Returns the challenges of others that wait for an answer.
    pub(super) fn challenges_of_others(&self, run: [u8; 16]) -> impl Iterator<Item = &OwnerPage> {
        self.challenges.iter().filter(move |challenge| challenge.in_force && challenge.run != run)
    }

    /// Returns whether the process that wrote the mark has answered this challenge.
    pub(super) fn is_answered(&self, challenger: [u8; 16]) -> bool {
        let owner = self.mark.as_ref().map(|mark| mark.run);
        self.answers.iter().any(|answer| Some(answer.run) == owner && answer.answered == challenger)
    }
}

/// Writes an owner page durably. The medium takes at least one copy.
pub(super) async fn write_page<M: Media>(media: &M, page: &OwnerPage) -> Result<(), Error> {
    let offsets = [0, 1].map(|copy| Geometry::owner_page_offset(copy, page.role));
    let mut buf = IoBuf::zeroed(PAGE_BYTES);
    buf.copy_from_slice(&page.encode());
    let both = Arc::new(buf);
    let mut written = Ok(());
    for offset in offsets {
        written = written.and(media.write_shared(offset, both.clone()).await);
    }
    // Both with one sync is the usual case, and the quick one.
    if written.is_ok() && sync(media).await.is_ok() {
        return Ok(());
    }
    let mut buf = IoBuf::zeroed(PAGE_BYTES);
    buf.copy_from_slice(&page.encode());
    write_copies(media, &offsets, vec![0, 1], buf).await.map(drop)
}

/// Writes an owner page durably, each copy only if the lease holds by then.
pub(super) async fn write_page_while<M: Media>(
    media: &M,
    lease: &Arc<Lease>,
    page: &OwnerPage,
) -> Result<(), Error> {
    to_any_copy(page, |offset, buf| media.write_while(lease, offset, buf)).await?;
    media.sync().await.map_err(|error| Error::Io(error.to_string()))
}

/// Writes an owner page for others to see. It need not be durable, and a sync beside those of the engine
/// could take an error that concerns its writes.
pub(super) async fn show_page<M: Media>(media: &M, page: &OwnerPage) -> Result<(), Error> {
    to_any_copy(page, |offset, buf| media.write_shared(offset, buf)).await
}

/// Writes both copies of an owner page by `write`. One that succeeds is enough.
async fn to_any_copy<F: Future<Output = std::io::Result<()>>>(
    page: &OwnerPage,
    write: impl Fn(u64, Arc<IoBuf>) -> F,
) -> Result<(), Error> {
    let mut buf = IoBuf::zeroed(PAGE_BYTES);
    buf.copy_from_slice(&page.encode());
    let buf = Arc::new(buf);
    let mut written = Err(Error::Io("no copy".into()));
    for copy in 0..OWNER_COPIES {
        let offset = Geometry::owner_page_offset(copy, page.role);
        let result = write(offset, buf.clone()).await;
        written = written.or(result.map_err(|error| Error::io("writing", offset, &error)));
    }
    written
}

/// The last mark on a backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerFound {
    /// A process has the drive open, or did not close it properly.
    pub open: bool,
    /// When it was opened, or closed properly, in seconds since 1970; 0 if unknown.
    pub since_unix_seconds: u64,
    /// The process.
    pub process: layout::owner::Process,
}

/// Returns the last mark on a backing, if there is one that can be read. Nothing is written.
pub async fn find_owner<M: Media>(media: &M) -> Option<OwnerFound> {
    if media.size_bytes() < Geometry::owner_offset(OWNER_COPIES - 1) + OWNER_BYTES as u64 {
        return None;
    }
    let mark = Pages::read(media).await.ok()?.mark?;
    Some(OwnerFound {
        open: mark.in_force,
        since_unix_seconds: mark.written_unix_seconds,
        process: mark.process,
    })
}
