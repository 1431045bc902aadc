//! One type for all kinds of backing that a server opens.

use std::io;
use std::sync::Arc;

use crate::{FileMedia, IoBuf, Lease, Media, MemoryMedia};

/// A backing whose kind is chosen at run time, dispatched without a table of function pointers. The drives of
/// a server use this type.
#[derive(Debug)]
pub enum AnyMedia {
    /// A file or block device.
    File(FileMedia),
    /// Memory.
    Memory(MemoryMedia),
}

impl Media for AnyMedia {
    fn size_bytes(&self) -> u64 {
        match self {
            AnyMedia::File(media) => media.size_bytes(),
            AnyMedia::Memory(media) => media.size_bytes(),
        }
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        match self {
            AnyMedia::File(media) => media.read(offset, buf).await,
            AnyMedia::Memory(media) => media.read(offset, buf).await,
        }
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        match self {
            AnyMedia::File(media) => media.write(offset, buf).await,
            AnyMedia::Memory(media) => media.write(offset, buf).await,
        }
    }

    async fn sync(&self) -> io::Result<()> {
        match self {
            AnyMedia::File(media) => media.sync().await,
            AnyMedia::Memory(media) => media.sync().await,
        }
    }

    async fn read_shared(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        match self {
            AnyMedia::File(media) => media.read_shared(offset, buf).await,
            AnyMedia::Memory(media) => media.read_shared(offset, buf).await,
        }
    }

    async fn write_shared(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        match self {
            AnyMedia::File(media) => media.write_shared(offset, buf).await,
            AnyMedia::Memory(media) => media.write_shared(offset, buf).await,
        }
    }

    async fn write_while(&self, lease: &Arc<Lease>, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        match self {
            AnyMedia::File(media) => media.write_while(lease, offset, buf).await,
            AnyMedia::Memory(media) => media.write_while(lease, offset, buf).await,
        }
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match self {
            AnyMedia::File(media) => media.discard(offset, len).await,
            AnyMedia::Memory(media) => media.discard(offset, len).await,
        }
    }
}

impl From<FileMedia> for AnyMedia {
    fn from(media: FileMedia) -> AnyMedia {
        AnyMedia::File(media)
    }
}

impl From<MemoryMedia> for AnyMedia {
    fn from(media: MemoryMedia) -> AnyMedia {
        AnyMedia::Memory(media)
    }
}
