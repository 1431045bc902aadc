//! A FUSE file system with one file, whose contents come from its user ([`Contents`]). Bridges use it for the
//! file under a loop device, power cuts for a disk that loses writes.
//!
//! Requests may be answered later and from any thread: each comes with its reply. The user mounts and
//! unmounts it. Users differ in how they treat processes that still use the file.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;

/// Name of the file.
pub const FILE_NAME: &str = "drive";
const FILE: INodeNo = INodeNo(2);
/// Names never change, and looking them up again must not empty a cache.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Attributes of the file and its file system.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Permissions.
    pub mode: u16,
    /// Ids of user and group.
    pub owner: (u32, u32),
    /// Size of a block, in bytes.
    pub block_bytes: u32,
    /// The kernel asks for the size each time: it may change. Otherwise it never does.
    pub may_grow: bool,
    /// The file system shows its blocks as free. Otherwise it is full.
    pub is_free: bool,
}

/// Contents of the file.
pub trait Contents: Send + Sync + 'static {
    /// Size of the file, in bytes.
    fn size_bytes(&self) -> u64;

    /// Asks the kernel for what is needed.
    ///
    /// # Errors
    ///
    /// If it is missing: the file system cannot be used.
    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()>;

    /// How each opening of the file is cached.
    fn opened(&self) -> FopenFlags;

    /// Reads from `offset` on. `id`: that of the request; `flags`: those of the opening.
    fn read(&self, id: u64, offset: u64, size: u32, flags: OpenFlags, reply: ReplyData);

    /// Writes at `offset`.
    fn write(&self, offset: u64, data: &[u8], reply: ReplyWrite);

    /// Makes what was written durable.
    fn sync(&self, reply: ReplyEmpty);

    /// `fallocate(2)`.
    fn allocate(&self, offset: u64, length: u64, mode: FallocateFlags, reply: ReplyEmpty);
}

/// The file system.
#[derive(Debug)]
pub struct OneFile<C> {
    attributes: Attributes,
    contents: C,
}

impl<C: Contents> OneFile<C> {
    /// A file system with one file.
    pub fn new(attributes: Attributes, contents: C) -> OneFile<C> {
        OneFile { attributes, contents }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            FILE => (FileType::RegularFile, self.attributes.mode, self.contents.size_bytes()),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: self.attributes.owner.0,
            gid: self.attributes.owner.1,
            rdev: 0,
            blksize: self.attributes.block_bytes,
            flags: 0,
        })
    }

    /// Time for which the kernel may keep the attributes.
    fn attributes_last(&self) -> Duration {
        if self.attributes.may_grow { Duration::ZERO } else { FOR_EVER }
    }

    fn reply_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&self.attributes_last(), &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }
}

impl<C: Contents> Filesystem for OneFile<C> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.contents.init(config)
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(file) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry_with_ttls(&self.attributes_last(), &FOR_EVER, &file, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(inode, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // The size cannot be changed from here.
        let is_another = size.is_some_and(|size| self.attributes(inode).is_some_and(|it| it.size != size));
        if is_another {
            return reply.error(Errno::EPERM);
        }
        self.reply_attributes(inode, reply);
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), self.contents.opened());
    }

    fn read(
        &self,
        request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.contents.read(request.unique().0, offset, size, flags, reply);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.contents.write(offset, data, reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        self.contents.sync(reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.contents.allocate(offset, length, FallocateFlags::from_bits_retain(mode as u32), reply);
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        for (at, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let block_bytes = self.attributes.block_bytes;
        let blocks = self.contents.size_bytes() / u64::from(block_bytes);
        let free = if self.attributes.is_free { blocks } else { 0 };
        reply.statfs(blocks, free, free, 2, 0, block_bytes, 255, block_bytes);
    }
}
