//! The file that a drive has open.

use std::sync::Weak;

use ask::file_id;
use media::AnyMedia;
use status::FileId;

/// Returns what a drive has open. `None` once it is closed, for a drive in memory, and if the file system
/// does not report it.
pub(crate) fn id_of_media(media: &Weak<AnyMedia>) -> Option<FileId> {
    match &*media.upgrade()? {
        AnyMedia::File(file) => file.metadata().ok().map(|found| file_id(&found)),
        AnyMedia::Memory(_) => None,
    }
}
