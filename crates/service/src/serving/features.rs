//! Additions to the format that a drive uses, as far as status reports show them.

use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Features, Geometry, PAGE_BYTES, Superblock};
use media::{AnyMedia, IoBuf, Media};

/// Returns whether the space of freed segments stays allocated in the backing, according to the newest copy
/// of the superblock. Features never change while a drive is open. False if no copy can be read.
pub(crate) async fn keeps_allocated(media: &AnyMedia) -> bool {
    let mut newest: Option<Superblock> = None;
    for copy in 0..SUPERBLOCK_COPIES {
        let (page, read) = media.read(Geometry::superblock_offset(copy), IoBuf::pooled(PAGE_BYTES)).await;
        let Some(found) = read.ok().and_then(|()| Superblock::decode(&page).ok()) else { continue };
        if newest.as_ref().is_none_or(|newest| newest.update < found.update) {
            newest = Some(found);
        }
    }
    newest.is_some_and(|newest| newest.features.compatible & Features::KEEP_ALLOCATED != 0)
}
