//! Media of any kind as one type, so that the engine is compiled once for all media of a test program.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use media::{IoBuf, Media};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`Media`] whose futures have one type.
trait AnyKind: Send + Sync {
    fn size_bytes(&self) -> u64;
    fn read(&self, offset: u64, buf: IoBuf) -> Answer<'_, (IoBuf, io::Result<()>)>;
    fn write(&self, offset: u64, buf: Arc<IoBuf>) -> Answer<'_, io::Result<()>>;
    fn sync(&self) -> Answer<'_, io::Result<()>>;
    fn discard(&self, offset: u64, len: u64) -> Answer<'_, io::Result<()>>;
}

impl<M: Media> AnyKind for M {
    fn size_bytes(&self) -> u64 {
        Media::size_bytes(self)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> Answer<'_, (IoBuf, io::Result<()>)> {
        Box::pin(Media::read(self, offset, buf))
    }

    fn write(&self, offset: u64, buf: Arc<IoBuf>) -> Answer<'_, io::Result<()>> {
        Box::pin(Media::write(self, offset, buf))
    }

    fn sync(&self) -> Answer<'_, io::Result<()>> {
        Box::pin(Media::sync(self))
    }

    fn discard(&self, offset: u64, len: u64) -> Answer<'_, io::Result<()>> {
        Box::pin(Media::discard(self, offset, len))
    }
}

/// A medium of any kind.
pub struct Erased(Arc<dyn AnyKind>);

/// Returns a medium for a drive. Whoever keeps the other handle can still look at it and disturb it.
pub fn erased(media: Arc<impl Media>) -> Arc<Erased> {
    Arc::new(Erased(media))
}

impl Media for Erased {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        self.0.read(offset, buf).await
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.0.write(offset, buf).await
    }

    async fn sync(&self) -> io::Result<()> {
        self.0.sync().await
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len).await
    }
}
