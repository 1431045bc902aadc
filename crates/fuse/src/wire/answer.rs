//! From answers to bytes for the kernel.

use std::ops::Deref;

use rustix::io::Errno;

use super::parse::INIT_EXTENDED;
use super::{
    ANSWER_HEADER_BYTES, ASYNC_DIRECT_IO, Attributes, DIRECTORY, FILE, FILE_NAME, Operation, Question,
    TRANSFER_BYTES_MAX, sound_errno,
};

/// Newest version of the protocol that is understood here.
const MAJOR: u32 = 7;
const MINOR_MAX: u32 = 38;
/// Flags of INIT that are agreed to if the kernel has them: `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`,
/// `FUSE_MAX_PAGES`. `FUSE_HAS_RESEND` is not: what was not answered is in the area, and would be executed
/// twice.
const AGREED: u64 = 1 | 1 << 5 | 1 << 22 | ASYNC_DIRECT_IO | INIT_EXTENDED;
/// Requests of direct I/O in flight; as many as a loop device has.
const BACKGROUND_MAX: u16 = 128;
/// Number of them at which the kernel reports congestion: three quarters, as by default.
const CONGESTED: u16 = BACKGROUND_MAX / 4 * 3;
/// Most pages of a transfer: of 4 KiB, and one more if it does not begin with a page. Its bytes have a limit
/// of their own.
const PAGES_MAX: u16 = (TRANSFER_BYTES_MAX / 4096 + 1) as u16;

/// Names never change, and looking them up again must not empty a cache. In seconds.
const FOR_EVER: u64 = 1 << 30;
/// `FOPEN_DIRECT_IO | FOPEN_NOFLUSH | FOPEN_PARALLEL_DIRECT_WRITES`: nothing is kept in the page cache, and
/// to close a descriptor waits for no server. A process that is starting closes those that it has inherited.
const OPENED: u32 = 1 | 1 << 5 | 1 << 6;
/// `S_IFDIR`, `S_IFREG`.
const IS_DIRECTORY: u32 = 0o040_000;
const IS_FILE: u32 = 0o100_000;

/// Encoder of numbers in the byte order of this machine, as the kernel reads them.
struct Encoder<'a>(&'a mut Vec<u8>);

impl Encoder<'_> {
    fn u16(&mut self, number: u16) {
        self.0.extend_from_slice(&number.to_ne_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_ne_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_ne_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    /// `struct fuse_attr`. The owner is root, and times are those of the epoch.
    fn attributes(&mut self, node: u64, attributes: &Attributes) {
        let (mode, size_bytes) = match node {
            DIRECTORY => (IS_DIRECTORY | 0o700, 0),
            _ => (IS_FILE | u32::from(attributes.mode), attributes.size_bytes),
        };
        for number in [node, size_bytes, size_bytes / 512, 0, 0, 0] {
            self.u64(number);
        }
        for number in [0, 0, 0, mode, 1, 0, 0, 0, attributes.block_bytes, 0] {
            self.u32(number);
        }
    }

    /// `struct fuse_dirent`, if there is room for it.
    fn directory_entry(&mut self, entry: &DirectoryEntry, room: usize) -> bool {
        let length = (24 + entry.name.len()).next_multiple_of(8);
        if self.0.len() + length > room {
            return false;
        }
        self.u64(entry.node);
        self.u64(entry.next);
        self.u32(entry.name.len() as u32);
        self.u32(entry.mode >> 12);
        self.0.extend_from_slice(entry.name.as_bytes());
        self.zeros(length - 24 - entry.name.len());
        true
    }
}

struct DirectoryEntry {
    node: u64,
    /// Number of entries up to this one.
    next: u64,
    mode: u32,
    name: &'static str,
}

const DIRECTORY_ENTRIES: [DirectoryEntry; 3] = [
    DirectoryEntry { node: DIRECTORY, next: 1, mode: IS_DIRECTORY, name: "." },
    DirectoryEntry { node: DIRECTORY, next: 2, mode: IS_DIRECTORY, name: ".." },
    DirectoryEntry { node: FILE, next: 3, mode: IS_FILE, name: FILE_NAME },
];

/// Writes the answer to a question into `out`, header included, and removes what was there.
pub fn answer(unique: u64, question: &Question, attributes: &Attributes, out: &mut Vec<u8>) {
    out.clear();
    out.resize(ANSWER_HEADER_BYTES, 0);
    let header = match encode(question, attributes, &mut Encoder(out)) {
        Ok(()) => data_header(unique, (out.len() - ANSWER_HEADER_BYTES) as u32),
        Err(errno) => {
            out.truncate(ANSWER_HEADER_BYTES);
            error_answer(unique, errno)
        }
    };
    out[..ANSWER_HEADER_BYTES].copy_from_slice(&header);
}

/// Appends the body of an answer, or fails with its error number.
fn encode(question: &Question, attributes: &Attributes, out: &mut Encoder<'_>) -> Result<(), i32> {
    let exists = |node: u64| match node {
        DIRECTORY | FILE => Ok(node),
        _ => Err(Errno::NOENT.raw_os_error()),
    };
    match *question {
        Question::Init { .. } if question.lacks().is_some() => return Err(Errno::PROTO.raw_os_error()),
        Question::Init { minor, flags, .. } => {
            out.u32(MAJOR);
            out.u32(minor.min(MINOR_MAX));
            // Nothing is read ahead past the page cache.
            out.u32(0);
            out.u32((flags & AGREED) as u32);
            out.u16(BACKGROUND_MAX);
            out.u16(CONGESTED);
            out.u32(TRANSFER_BYTES_MAX);
            // Granularity of times, in nanoseconds.
            out.u32(1);
            out.u16(PAGES_MAX);
            out.zeros(2 + 8 * 4);
        }
        Question::Lookup { is_file: false } => return Err(Errno::NOENT.raw_os_error()),
        Question::Lookup { is_file: true } => {
            // Node, its generation, seconds for which name and attributes are valid.
            for number in [FILE, 0, FOR_EVER, FOR_EVER, 0] {
                out.u64(number);
            }
            out.attributes(FILE, attributes);
        }
        Question::SetAttributes { node: FILE, size_bytes: Some(size_bytes) }
            if size_bytes != attributes.size_bytes =>
        {
            return Err(Errno::PERM.raw_os_error());
        }
        Question::GetAttributes { node } | Question::SetAttributes { node, .. } => {
            let node = exists(node)?;
            // Until the keeper says otherwise: who asks for the size must not wait for a server.
            out.u64(FOR_EVER);
            out.zeros(8);
            out.attributes(node, attributes);
        }
        Question::Open => {
            out.u64(0);
            out.u32(OPENED);
            out.u32(0);
        }
        Question::OpenDirectory => out.zeros(16),
        Question::ReadDirectory { skip, room } => {
            let room = out.0.len() + room as usize;
            for entry in DIRECTORY_ENTRIES.iter().filter(|entry| entry.next > skip) {
                if !out.directory_entry(entry, room) {
                    break;
                }
            }
        }
        Question::StatFs => {
            let blocks = attributes.size_bytes / u64::from(attributes.block_bytes.max(1));
            // It is full: the file has all blocks. Two inodes, none free.
            for number in [blocks, 0, 0, 2, 0] {
                out.u64(number);
            }
            for number in [attributes.block_bytes, 255, attributes.block_bytes, 0] {
                out.u32(number);
            }
            out.zeros(6 * 4);
        }
        Question::Nothing => {}
        Question::Refused(errno) => return Err(errno),
    }
    Ok(())
}

fn header(unique: u64, length: u32, errno: i32) -> [u8; ANSWER_HEADER_BYTES] {
    let mut header = [0; ANSWER_HEADER_BYTES];
    header[..4].copy_from_slice(&(ANSWER_HEADER_BYTES as u32 + length).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The notice to the kernel that what it knows of the file's attributes is outdated.
pub fn forget_attributes() -> [u8; ANSWER_HEADER_BYTES + 24] {
    /// `FUSE_NOTIFY_INVAL_INODE`
    const FORGET: u32 = 2;
    let mut notice = [0; ANSWER_HEADER_BYTES + 24];
    notice[..4].copy_from_slice(&((ANSWER_HEADER_BYTES + 24) as u32).to_ne_bytes());
    notice[4..8].copy_from_slice(&FORGET.to_ne_bytes());
    notice[16..24].copy_from_slice(&FILE.to_ne_bytes());
    // No data: attributes only.
    notice[24..32].copy_from_slice(&(-1_i64).to_ne_bytes());
    notice
}

/// The answer to a request that failed. `errno` is positive; EIO replaces what the kernel does not accept.
pub fn error_answer(unique: u64, errno: i32) -> [u8; ANSWER_HEADER_BYTES] {
    header(unique, 0, sound_errno(errno))
}

/// The answer to a request that succeeded, without data.
pub fn ok_answer(unique: u64) -> [u8; ANSWER_HEADER_BYTES] {
    header(unique, 0, 0)
}

/// Header of the answer to a read, in front of `length` bytes of data.
pub fn data_header(unique: u64, length: u32) -> [u8; ANSWER_HEADER_BYTES] {
    header(unique, length, 0)
}

/// The answer to a write.
pub fn written_answer(unique: u64, count: u32) -> [u8; ANSWER_HEADER_BYTES + 8] {
    let mut answer = [0; ANSWER_HEADER_BYTES + 8];
    answer[..ANSWER_HEADER_BYTES].copy_from_slice(&header(unique, 8, 0));
    answer[ANSWER_HEADER_BYTES..ANSWER_HEADER_BYTES + 4].copy_from_slice(&count.to_ne_bytes());
    answer
}

/// The answer to a change or a flush, as bytes for the device.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    bytes: [u8; ANSWER_HEADER_BYTES + 8],
    len: usize,
}

impl Reply {
    /// The answer to an operation: all but a read that succeeded.
    pub fn new(unique: u64, operation: Operation, result: Result<(), i32>) -> Reply {
        match (result, operation) {
            (Ok(()), Operation::Write { length, .. }) => {
                let bytes = written_answer(unique, length);
                Reply { bytes, len: bytes.len() }
            }
            (result, _) => {
                let mut bytes = [0; ANSWER_HEADER_BYTES + 8];
                let header = header(unique, 0, result.err().map_or(0, sound_errno));
                bytes[..ANSWER_HEADER_BYTES].copy_from_slice(&header);
                Reply { bytes, len: ANSWER_HEADER_BYTES }
            }
        }
    }
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: Attributes = Attributes { size_bytes: 1 << 20, mode: 0o600, block_bytes: 4096 };

    fn answered(question: Question) -> Vec<u8> {
        let mut out = vec![9; 3];
        answer(7, &question, &ATTRIBUTES, &mut out);
        assert_eq!(number(&out, 0), out.len() as u32, "{question:?}");
        assert_eq!(number(&out, 8), 7);
        out
    }

    fn number(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn errno(question: Question) -> i32 {
        let out = answered(question);
        assert_eq!(out.len(), ANSWER_HEADER_BYTES);
        -(number(&out, 4) as i32)
    }

    #[test]
    fn answers_have_the_sizes_that_the_kernel_expects() {
        let init = Question::Init { major: 7, minor: 45, flags: u64::MAX };
        for (question, bytes) in [
            (init, 64),
            (Question::Lookup { is_file: true }, 128),
            (Question::GetAttributes { node: DIRECTORY }, 104),
            (Question::SetAttributes { node: FILE, size_bytes: Some(1 << 20) }, 104),
            (Question::Open, 16),
            (Question::OpenDirectory, 16),
            (Question::StatFs, 80),
            (Question::Nothing, 0),
            (Question::ReadDirectory { skip: 0, room: 4096 }, 3 * 32),
            (Question::ReadDirectory { skip: 0, room: 95 }, 2 * 32),
            (Question::ReadDirectory { skip: 2, room: 4096 }, 32),
            (Question::ReadDirectory { skip: 3, room: 4096 }, 0),
        ] {
            let out = answered(question);
            assert_eq!((out.len(), number(&out, 4)), (ANSWER_HEADER_BYTES + bytes, 0), "{question:?}");
        }
    }

    #[test]
    fn attributes_of_file_and_directory() {
        const MODE: usize = ANSWER_HEADER_BYTES + 16 + 60;
        const SIZE: usize = ANSWER_HEADER_BYTES + 16 + 8;
        let file = answered(Question::GetAttributes { node: FILE });
        assert_eq!((number(&file, MODE), number(&file, SIZE)), (0o100_600, 1 << 20));
        let directory = answered(Question::GetAttributes { node: DIRECTORY });
        assert_eq!((number(&directory, MODE), number(&directory, SIZE)), (0o040_700, 0));
        assert_eq!(errno(Question::GetAttributes { node: 3 }), 2);
        assert_eq!(errno(Question::SetAttributes { node: FILE, size_bytes: Some(1) }), 1);
        assert_eq!(errno(Question::Lookup { is_file: false }), 2);
        assert_eq!(errno(Question::Refused(38)), 38);
    }

    #[test]
    fn init_agrees_to_what_both_have_and_fails_without_parallel_direct_io() {
        let init = |minor, flags| Question::Init { major: 7, minor, flags };
        let out = answered(init(45, u64::MAX));
        assert_eq!(number(&out, ANSWER_HEADER_BYTES + 4), MINOR_MAX);
        assert_eq!(number(&out, ANSWER_HEADER_BYTES + 12), 0x4040_8021, "flags");
        assert_eq!(number(&out, ANSWER_HEADER_BYTES + 20), 256 << 10, "largest write");
        assert_eq!(number(&out, ANSWER_HEADER_BYTES + 32), 0, "more flags");
        let out = answered(init(31, ASYNC_DIRECT_IO));
        assert_eq!(number(&out, ANSWER_HEADER_BYTES + 4), 31);
        assert_eq!(number(&out, ANSWER_HEADER_BYTES + 12), ASYNC_DIRECT_IO as u32);
        assert_eq!(init(45, !ASYNC_DIRECT_IO).lacks(), Some("FUSE_ASYNC_DIO"));
        assert_eq!(errno(init(45, !ASYNC_DIRECT_IO)), 71);
        assert_eq!(errno(init(22, u64::MAX)), 71);
    }

    #[test]
    fn replies_to_operations() {
        let write = Operation::Write { offset: 0, length: 512 };
        let reply = Reply::new(7, write, Ok(()));
        assert_eq!(&*reply, &written_answer(7, 512));
        assert_eq!((number(&reply, 0), number(&reply, 16)), (24, 512));
        assert_eq!(&*Reply::new(7, write, Err(28)), &error_answer(7, 28));
        assert_eq!(&*Reply::new(7, Operation::Flush, Ok(())), &ok_answer(7));
        assert_eq!(number(&error_answer(7, 28), 4) as i32, -28);
    }
}
