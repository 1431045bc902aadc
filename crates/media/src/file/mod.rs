//! A regular file or block device as a backing.

mod backing;
mod below;
mod error;
mod interrupted;
mod lock;
mod open;
mod plain;
mod size_limit;
mod uring;

pub use error::MediaError;
pub use open::{Allocation, Direct};
pub use size_limit::SizeLimit;
pub use uring::{UringGuard, UringReactor};

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::range::check_range;
use crate::{IoBuf, LEASE_ENDED, Lease, Media};
use backing::{Backing, Order, Request};

/// A regular file or block device, locked against a second server for as long as it is open.
///
/// The size of a regular file is its length, rounded down to whole pages. It grows only by
/// [`FileMedia::grow`]. Clones share the open file, which stays locked until the last is dropped.
#[derive(Clone, Debug)]
pub struct FileMedia {
    backing: Arc<Backing>,
    /// Writes, syncs and discards are given to the kernel only while it holds.
    lease: Option<Arc<Lease>>,
}

impl FileMedia {
    /// Opens an existing file or block device, for reading and writing or only for reading.
    ///
    /// A writer excludes all other opens; readers exclude writers. A block device that is opened for writing
    /// is also claimed against mounts.
    ///
    /// The backing file of a loop device, or of a partition of one, is locked too, and so on down a chain of
    /// loop devices: the file and the device are one backing. A loop device whose backing file cannot be
    /// locked is not opened for writing, unless that file is deleted; see [`FileMedia::warning`].
    ///
    /// # Errors
    /// See [`MediaError`].
    pub fn open(path: impl AsRef<Path>, read_only: bool, direct: Direct) -> Result<FileMedia, MediaError> {
        let backing = open::open(path.as_ref(), read_only, direct)?;
        Ok(FileMedia { backing: Arc::new(backing), lease: None })
    }

    /// Creates a regular file of `size_bytes`, rounded down to whole pages and readable by its owner only,
    /// and opens it for writing. Its name and size are durable on return.
    ///
    /// # Errors
    /// See [`MediaError`]. A file that already exists is not changed.
    pub fn create(
        path: impl AsRef<Path>,
        size_bytes: u64,
        allocation: Allocation,
        direct: Direct,
    ) -> Result<FileMedia, MediaError> {
        let backing = open::create(path.as_ref(), size_bytes, allocation, direct)?;
        Ok(FileMedia { backing: Arc::new(backing), lease: None })
    }

    /// Makes the backing at least `size_bytes` long, rounded down to whole pages. A regular file grows (never
    /// shrinks); the size of a block device is read again. Durable on return. Returns the resulting size. It
    /// may be larger than requested, or smaller if a block device has not grown that far.
    ///
    /// # Errors
    /// See [`MediaError`]. The size is unchanged then. A file whose lease does not hold
    /// ([`FileMedia::leased`]) does not grow: this does not wait for it.
    pub fn grow(&self, size_bytes: u64, allocation: Allocation) -> Result<u64, MediaError> {
        let Some(lease) = &self.lease else {
            return open::grow(&self.backing, size_bytes, allocation, || true);
        };
        let failed = |error| MediaError::from_io(&self.backing.path, "grow it", error);
        let changing = lease.begin().map_err(failed)?;
        let grown = open::grow(&self.backing, size_bytes, allocation, || lease.holds());
        changing.end();
        grown
    }

    /// Drops what the page cache holds of the backing and is not dirty, so that it is read again: another
    /// machine may have written to it. Does nothing with direct I/O. Blocks.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn forget_cached(&self) -> io::Result<()> {
        match self.backing.direct {
            true => Ok(()),
            false => self.backing.forget_cached(0, 0),
        }
    }

    /// Opens the same file or device once more, whatever its path leads to by now, for reading and (unless
    /// the backing is read-only) writing at any offset: through the page cache, to its last byte. The lock
    /// stays with this backing.
    ///
    /// # Errors
    /// Those of `open(2)`. `/proc` must be mounted.
    pub fn reopen(&self) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.backing.file.as_raw_fd());
        File::options().read(true).write(!self.backing.read_only).open(path)
    }

    /// Makes the kernel read the partition table of a disk again. Does nothing on other backings, which have
    /// none.
    ///
    /// # Errors
    /// `EBUSY` if a partition is in use.
    pub fn forget_partitions(&self) -> io::Result<()> {
        if !self.backing.block_device {
            return Ok(());
        }
        match backing::reread_partitions(&self.backing.file) {
            // INVAL: a partition, or a device that has none. NOTTY: it does not know the call.
            Err(Errno::INVAL | Errno::NOTTY) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Returns the same open backing for one who may change it only as long as a lease holds: writes, syncs
    /// and discards wait for the lease, and fail once it is lost.
    pub fn leased(&self, lease: Arc<Lease>) -> FileMedia {
        FileMedia { backing: self.backing.clone(), lease: Some(lease) }
    }

    /// Returns the numbers under which the kernel knows the backing, and with it the locks on it: device and
    /// inode of a file, number of a block device and 0.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn identity(&self) -> io::Result<[u64; 2]> {
        let metadata = self.backing.file.metadata()?;
        Ok(match self.backing.block_device {
            true => [metadata.rdev(), 0],
            false => [metadata.dev(), metadata.ino()],
        })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.backing.path
    }

    /// Returns whether I/O bypasses the page cache.
    pub fn direct(&self) -> bool {
        self.backing.direct
    }

    /// Returns whether writes are refused.
    pub fn read_only(&self) -> bool {
        self.backing.read_only
    }

    /// One line for the log about what the lock does not cover, if anything: the backing file of a loop
    /// device that could not be locked.
    pub fn warning(&self) -> Option<&str> {
        self.backing.below.warning()
    }

    /// Returns the limit of this process on the size of files, if the backing is a file that is larger:
    /// writes behind the limit fail. A server handles that as a full backing.
    pub fn size_limit(&self) -> Option<SizeLimit> {
        SizeLimit::below(self.size_bytes()).filter(|_| !self.backing.block_device)
    }

    /// Returns whether a write or sync ever failed because a file system, a quota or a thin volume under a
    /// sparse backing was full, or because of a limit on the size of files.
    pub fn out_of_space(&self) -> bool {
        self.backing.out_of_space.load(Ordering::Relaxed)
    }

    /// Returns whether this is a block device rather than a regular file.
    pub fn block_device(&self) -> bool {
        self.backing.block_device
    }

    /// Returns the metadata of the open file or device, whatever its path leads to by now.
    ///
    /// # Errors
    /// As of `fstat(2)`. A file system on the network may block the thread.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.backing.file.metadata()
    }

    fn note(&self, result: &io::Result<()>) {
        let full = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            )
        };
        if result.as_ref().is_err_and(full) {
            self.backing.out_of_space.store(true, Ordering::Relaxed);
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.backing.read_only {
            true => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the backing is open read-only")),
            false => Ok(()),
        }
    }

    /// Performs a request that changes the backing. It waits until the lease holds at the moment at which the
    /// kernel is given it.
    async fn change(&self, mut request: Request) -> io::Result<()> {
        let Some(lease) = &self.lease else { return self.perform(request).await.1 };
        loop {
            let changing = lease.begin()?;
            let (back, result) = self.attempt(request, Some(lease.clone())).await;
            changing.end();
            match result {
                Some(result) => return result,
                None => request = back,
            }
            lease.confirm().await.map_err(io::Error::other)?;
        }
    }

    /// Performs a request, at any time.
    async fn perform(&self, mut request: Request) -> (Request, io::Result<()>) {
        loop {
            match self.attempt(request, None).await {
                (request, Some(result)) => return (request, result),
                // A ring gave up.
                (back, None) => request = back,
            }
        }
    }

    /// Performs a request if the lease holds when the kernel is given it.
    async fn attempt(&self, request: Request, lease: Option<Arc<Lease>>) -> backing::Outcome {
        let order = Order { backing: self.backing.clone(), lease, request };
        match &order.request {
            Request::Discard { .. } => plain::perform(order).await,
            _ => match uring::submit(order) {
                Ok(ticket) => ticket.await,
                Err(order) => plain::perform(order).await,
            },
        }
    }
}

impl Media for FileMedia {
    fn size_bytes(&self) -> u64 {
        self.backing.size_bytes.load(Ordering::Relaxed)
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        if let Err(error) = check_range(self.size_bytes(), offset, buf.len() as u64) {
            return (buf, Err(error));
        }
        if buf.is_empty() {
            return (buf, Ok(()));
        }
        let (Request::Read { buf, .. }, result) = self.perform(Request::Read { offset, buf }).await else {
            unreachable!("a read comes back as a read");
        };
        (buf, result)
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.check_writable()?;
        check_range(self.size_bytes(), offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let result = self.change(Request::Write { offset, buf }).await;
        self.note(&result);
        result
    }

    async fn sync(&self) -> io::Result<()> {
        let result = self.change(Request::Sync).await;
        // A file system that allocates late reports lack of space only here.
        self.note(&result);
        result
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        check_range(self.size_bytes(), offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.change(Request::Discard { offset, len }).await
    }

    async fn read_shared(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        if !self.backing.direct
            && let Err(error) = self.backing.forget_cached(offset, buf.len() as u64)
        {
            return (buf, Err(error));
        }
        self.read(offset, buf).await
    }

    async fn write_while(&self, lease: &Arc<Lease>, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.check_writable()?;
        check_range(self.size_bytes(), offset, buf.len() as u64)?;
        let mut request = Request::Write { offset, buf };
        // Repeated if a ring gave up.
        while lease.holds() {
            match self.attempt(request, Some(lease.clone())).await {
                (_, Some(result)) => {
                    self.note(&result);
                    return result;
                }
                (back, None) => request = back,
            }
        }
        Err(io::Error::other(LEASE_ENDED))
    }

    async fn write_shared(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.check_writable()?;
        let len = buf.len() as u64;
        check_range(self.size_bytes(), offset, len)?;
        let result = self.perform(Request::Write { offset, buf }).await.1;
        self.note(&result);
        result?;
        match self.backing.direct {
            true => Ok(()),
            false => self.backing.begin_writeback(offset, len),
        }
    }
}
